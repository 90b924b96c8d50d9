//! The mode word: which of the seven policies, and the three flags beside it.
//!
//! A caller passes one integer. The three flags are its bits 13 to 15, the
//! rest is the mode. The word is checked before anything else of a call.

use super::errno::Errno;
use std::fmt;

/// `MPOL_F_STATIC_NODES`: keep the caller's node numbers when the cpuset changes.
pub const STATIC_NODES: u32 = 1 << 15;
/// `MPOL_F_RELATIVE_NODES`: the caller's numbers count within the cpuset.
pub const RELATIVE_NODES: u32 = 1 << 14;
/// `MPOL_F_NUMA_BALANCING`: hint faults may move pages among the bound nodes.
pub const NUMA_BALANCING: u32 = 1 << 13;
/// The three flags.
pub const MODE_FLAGS: u32 = STATIC_NODES | RELATIVE_NODES | NUMA_BALANCING;

/// The seven policies, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// No policy of one's own: the next wider one applies, at last local memory.
    Default = 0,
    /// One node first, then any by distance.
    Preferred = 1,
    /// Only the mask's nodes.
    Bind = 2,
    /// The mask's nodes in turn.
    Interleave = 3,
    /// The node of the CPU that asks, then any by distance.
    Local = 4,
    /// The mask's nodes first, then any by distance.
    PreferredMany = 5,
    /// The mask's nodes in turn, each as often as its weight says.
    WeightedInterleave = 6,
}

impl Mode {
    /// Every mode in the order of its number.
    pub const ALL: [Mode; 7] = [
        Mode::Default,
        Mode::Preferred,
        Mode::Bind,
        Mode::Interleave,
        Mode::Local,
        Mode::PreferredMany,
        Mode::WeightedInterleave,
    ];

    /// The kernel's number.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Whether pages go to the mask's nodes in turn.
    pub fn interleaves(self) -> bool {
        matches!(self, Mode::Interleave | Mode::WeightedInterleave)
    }
}

impl fmt::Display for Mode {
    /// As the kernel prints it, for example in `numa_maps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Default => "default",
            Mode::Preferred => "prefer",
            Mode::Bind => "bind",
            Mode::Interleave => "interleave",
            Mode::Local => "local",
            Mode::PreferredMany => "prefer (many)",
            Mode::WeightedInterleave => "weighted interleave",
        })
    }
}

/// The flags of a checked mode word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModeFlags {
    /// [`STATIC_NODES`].
    pub static_nodes: bool,
    /// [`RELATIVE_NODES`].
    pub relative_nodes: bool,
    /// [`NUMA_BALANCING`].
    pub numa_balancing: bool,
}

impl ModeFlags {
    /// The flags as bits of a mode word.
    pub fn bits(self) -> u32 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.static_nodes, STATIC_NODES)
            | bit(self.relative_nodes, RELATIVE_NODES)
            | bit(self.numa_balancing, NUMA_BALANCING)
    }

    /// Whether the caller's mask has its own meaning beside the cpuset.
    pub fn names_nodes(self) -> bool {
        self.static_nodes || self.relative_nodes
    }
}

/// Checks a mode word.
///
/// # Errors
///
/// `EINVAL` for an unknown mode or flag, for static together with relative,
/// and for balancing with a mode that is neither bind nor preferred-many.
pub fn parse_mode(word: u32) -> Result<(Mode, ModeFlags), Errno> {
    let mode = Mode::ALL
        .get((word & !MODE_FLAGS) as usize)
        .copied()
        .ok_or(Errno::EINVAL)?;
    let flags = ModeFlags {
        static_nodes: word & STATIC_NODES != 0,
        relative_nodes: word & RELATIVE_NODES != 0,
        numa_balancing: word & NUMA_BALANCING != 0,
    };
    let balanced = matches!(mode, Mode::Bind | Mode::PreferredMany);
    if flags.static_nodes && flags.relative_nodes || flags.numa_balancing && !balanced {
        return Err(Errno::EINVAL);
    }
    Ok((mode, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_a_mode_below_seven_and_three_flags() {
        assert_eq!(
            parse_mode(6),
            Ok((Mode::WeightedInterleave, ModeFlags::default()))
        );
        for word in [
            7,
            u32::MAX,
            1 << 12,
            1 << 16,
            STATIC_NODES | RELATIVE_NODES | 2,
        ] {
            assert_eq!(parse_mode(word), Err(Errno::EINVAL), "{word:#x}");
        }
        for mode in Mode::ALL {
            let word = mode.number() | NUMA_BALANCING | STATIC_NODES;
            let legal = matches!(mode, Mode::Bind | Mode::PreferredMany);
            assert_eq!(parse_mode(word).is_ok(), legal, "{mode}");
            if let Ok((m, flags)) = parse_mode(word) {
                assert_eq!(m.number() | flags.bits(), word);
            }
        }
    }
}
