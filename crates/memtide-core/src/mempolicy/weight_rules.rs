//! What the files of the weight table accept, in both generations.
//!
//! `/sys/kernel/mm/mempolicy/weighted_interleave/nodeN` holds one integer, 1
//! to 255, read as C reads integers: `0x` is hexadecimal, a leading 0 octal.
//! Kernels 6.9 to 6.15 have a file for every possible node, and 0 or nothing
//! puts the default of 1 back. Kernels from 6.16 on have files only for nodes
//! with memory, refuse 0, and have a file `auto`: while it says true the
//! kernel computes the weights, and a weight written by hand makes it false.

use super::errno::Errno;
use super::machine::Machine;
use super::weights::{TableState, WeightTable, Weights};
use crate::nodemask::NodeMask;
use crate::units::NodeId;

/// The two generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightRules {
    /// 6.9 to 6.15.
    BeforeAuto,
    /// 6.16 and later.
    WithAuto,
}

/// The folder of the table. Clones share the table.
#[derive(Clone, Debug)]
pub struct WeightFiles {
    rules: WeightRules,
    knows_enable: bool,
    nodes: NodeMask,
    table: WeightTable,
    /// What the kernel computes from the bandwidths that it knows.
    computed: Option<Weights>,
}

impl WeightFiles {
    /// The folder as it is after boot. `computed` are the weights that the
    /// kernel makes of the bandwidths it knows, `None` if it knows none.
    pub fn new(machine: &Machine, computed: Option<Weights>) -> WeightFiles {
        let rules = machine.kernel().weight_rules;
        let input = machine.input();
        let (nodes, auto) = match rules {
            WeightRules::BeforeAuto => ((0..input.possible_nodes).map(NodeId).collect(), false),
            WeightRules::WithAuto => (input.memory_nodes, true),
        };
        let weights = match (&computed, auto) {
            (Some(weights), true) => weights.clone(),
            _ => Weights::ONES,
        };
        WeightFiles {
            rules,
            knows_enable: machine.kernel().knows_enable,
            nodes,
            table: WeightTable::new(TableState { weights, auto }),
            computed,
        }
    }

    /// The table behind the files.
    pub fn table(&self) -> &WeightTable {
        &self.table
    }

    /// Writes `text` to a node's file.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the node has no file, `EINVAL` for what is no weight.
    pub fn write_node(&self, node: NodeId, text: &[u8]) -> Result<(), Errno> {
        if !self.nodes.contains(node) {
            return Err(Errno::ENOENT);
        }
        // The kernel does not hand on a write of no bytes.
        if text.is_empty() {
            return Ok(());
        }
        let blank = matches!(c_string(text), b"" | b"\n");
        let weight = match self.rules {
            WeightRules::BeforeAuto if blank => 0,
            WeightRules::BeforeAuto => parse_u8(text).ok_or(Errno::EINVAL)?,
            WeightRules::WithAuto => parse_u8(text).filter(|&w| w > 0).ok_or(Errno::EINVAL)?,
        };
        self.table.update(|state| {
            state.weights.set(node, weight);
            state.auto = false;
        });
        Ok(())
    }

    /// What a node's file reads as, without the newline; `None` without a file.
    pub fn read_node(&self, node: NodeId) -> Option<u8> {
        let weight = || self.table.load().weights.get(node);
        self.nodes.contains(node).then(weight)
    }

    /// Writes `text` to `auto`.
    ///
    /// # Errors
    ///
    /// `ENOENT` before 6.16, `EINVAL` for what is no boolean, `ENODEV` for
    /// true where the kernel knows no bandwidth.
    pub fn write_auto(&self, text: &[u8]) -> Result<(), Errno> {
        if self.rules == WeightRules::BeforeAuto {
            return Err(Errno::ENOENT);
        }
        if text.is_empty() {
            return Ok(());
        }
        let on = parse_bool(text, self.knows_enable).ok_or(Errno::EINVAL)?;
        let computed = match (on, &self.computed) {
            (true, None) => return Err(Errno::ENODEV),
            (true, Some(weights)) => Some(weights),
            (false, _) => None,
        };
        self.table.update(|state| {
            state.auto = on;
            if let Some(weights) = computed {
                state.weights = weights.clone();
            }
        });
        Ok(())
    }

    /// What `auto` reads as; `None` where there is no such file.
    pub fn read_auto(&self) -> Option<bool> {
        (self.rules == WeightRules::WithAuto).then(|| self.table.load().auto)
    }
}

/// The bytes up to the first zero: the kernel reads C strings.
fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&b| b == 0).next().unwrap_or(text)
}

/// An integer of eight bits as C writes it: one `+` and one newline may be
/// around it, nothing else.
fn parse_u8(text: &[u8]) -> Option<u8> {
    let text = c_string(text);
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', rest @ ..] if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
            (rest, 16)
        }
        [b'0', ..] => (text, 8),
        _ => (text, 10),
    };
    let digits = digits.strip_suffix(b"\n").unwrap_or(digits);
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u8;
    for &byte in digits {
        let digit = char::from(byte).to_digit(radix)? as u8;
        value = value.checked_mul(radix as u8)?.checked_add(digit)?;
    }
    Some(value)
}

/// A boolean as the kernel reads it: by its first letter, `on` and `off` by two.
fn parse_bool(text: &[u8], knows_enable: bool) -> Option<bool> {
    match c_string(text) {
        [b'e' | b'E', ..] if knows_enable => Some(true),
        [b'd' | b'D', ..] if knows_enable => Some(false),
        [b'y' | b'Y' | b't' | b'T' | b'1', ..] | [b'o' | b'O', b'n' | b'N', ..] => Some(true),
        [b'n' | b'N' | b'f' | b'F' | b'0', ..] | [b'o' | b'O', b'f' | b'F', ..] => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Kernel, MachineInput};
    use super::*;

    fn files(kernel: Kernel, computed: Option<&[u8]>) -> WeightFiles {
        let (memory, cpus) = ("0,2".parse().unwrap(), "0".parse().unwrap());
        let machine = Machine::new(MachineInput::new(memory, cpus, kernel)).unwrap();
        WeightFiles::new(&machine, computed.map(Weights::new))
    }

    /// What node 0's file does with a text, starting from weight 9.
    fn after(kernel: Kernel, text: &str) -> (Result<(), i32>, u8) {
        let files = files(kernel, None);
        files.write_node(NodeId(0), b"9").unwrap();
        let result = files.write_node(NodeId(0), text.as_bytes());
        (
            result.map_err(Errno::code),
            files.read_node(NodeId(0)).unwrap(),
        )
    }

    #[test]
    fn both_generations_read_integers_as_c_does() {
        for kernel in [Kernel::BEFORE_AUTO, Kernel::WITH_AUTO] {
            for (text, weight) in [
                ("5\n", 5),
                ("5", 5),
                ("+7", 7),
                ("0x1F", 31),
                ("0X1f\n", 31),
                ("010", 8),
                ("255", 255),
                ("0000005", 5),
                ("5\0x", 5),
            ] {
                assert_eq!(after(kernel, text), (Ok(()), weight), "{text:?}");
            }
            for text in [
                "256",
                "-1",
                "3x",
                " 5",
                "5 ",
                "5\n\n",
                "08",
                "0x",
                "0xg",
                "++1",
                "+",
                "\n\n",
                "99999999999999999999",
            ] {
                assert_eq!(after(kernel, text), (Err(22), 9), "{text:?}");
            }
            assert_eq!(after(kernel, ""), (Ok(()), 9));
        }
    }

    #[test]
    fn zero_is_the_default_before_auto_and_refused_after() {
        for text in ["0", "00", "0\n", "\n", "0x0", "\0"] {
            assert_eq!(after(Kernel::BEFORE_AUTO, text), (Ok(()), 1), "{text:?}");
            assert_eq!(after(Kernel::WITH_AUTO, text), (Err(22), 9), "{text:?}");
        }
    }

    #[test]
    fn the_old_folder_has_every_possible_node_and_no_auto() {
        let files = files(Kernel::BEFORE_AUTO, None);
        assert_eq!(files.read_node(NodeId(1)), Some(1));
        assert_eq!(files.write_node(NodeId(3), b"1"), Err(Errno::ENOENT));
        assert_eq!(files.write_auto(b"1"), Err(Errno::ENOENT));
        assert_eq!(files.read_auto(), None);
    }

    #[test]
    fn the_new_folder_computes_until_a_weight_is_written() {
        let files = files(Kernel::WITH_AUTO, Some(&[3, 1, 1]));
        assert_eq!(files.read_node(NodeId(1)), None);
        assert_eq!(files.write_node(NodeId(1), b"1"), Err(Errno::ENOENT));
        assert_eq!(
            (files.read_auto(), files.read_node(NodeId(0))),
            (Some(true), Some(3))
        );
        files.write_node(NodeId(2), b"7").unwrap();
        assert_eq!(
            (files.read_auto(), files.read_node(NodeId(0))),
            (Some(false), Some(3))
        );
        for word in ["y", "Yes\n", "1", "t", "on", "yellow"] {
            files.write_auto(word.as_bytes()).unwrap();
            assert_eq!(
                (files.read_auto(), files.read_node(NodeId(2))),
                (Some(true), Some(1))
            );
        }
        // False freezes what stands there.
        for word in ["n", "NO", "0\n", "f", "off"] {
            files.write_auto(word.as_bytes()).unwrap();
            assert_eq!(
                (files.read_auto(), files.read_node(NodeId(0))),
                (Some(false), Some(3))
            );
        }
        for word in ["\n", "2", "o", "-1", " 1"] {
            assert_eq!(files.write_auto(word.as_bytes()), Err(Errno::EINVAL));
        }
        assert_eq!(files.write_auto(b""), Ok(()));
    }

    #[test]
    fn enable_is_a_word_for_newer_kernels_only() {
        let older = Kernel::of_version(6, 16);
        assert_eq!(
            files(older, None).write_auto(b"disable"),
            Err(Errno::EINVAL)
        );
        let newer = files(Kernel::WITH_AUTO, Some(&[3]));
        for (word, auto) in [("Disabled", false), ("enable\n", true), ("d", false)] {
            assert_eq!(newer.write_auto(word.as_bytes()), Ok(()));
            assert_eq!(newer.read_auto(), Some(auto));
        }
    }

    #[test]
    fn auto_needs_bandwidths() {
        let files = files(Kernel::WITH_AUTO, None);
        assert_eq!(files.read_auto(), Some(true));
        assert_eq!(files.write_auto(b"1"), Err(Errno::ENODEV));
        assert_eq!(files.write_auto(b"0"), Ok(()));
        assert_eq!(files.read_auto(), Some(false));
    }
}
