//! What the running kernel is, allows, and is set to.
//!
//! Every value is `None` where the kernel does not offer the file; which of
//! them matters is `memtide doctor`'s judgement.

use super::parse::{ParseError, Parsed, hex, lines, number, quoted, text};
use super::{Result, Root};

/// `kernel.numa_balancing`: a set of two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancingMode {
    /// Bit 0: pages follow the CPUs that use them.
    pub normal: bool,
    /// Bit 1: hot pages on slow nodes are promoted.
    pub tiering: bool,
}

/// A kernel's version, as far as it is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The 6 of 6.12.117.
    pub major: u32,
    /// The 12 of 6.12.117.
    pub minor: u32,
}

/// What the kernel hides even from root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lockdown {
    /// Nothing.
    None,
    /// The running kernel cannot be changed.
    Integrity,
    /// Neither changed nor read: no kernel memory, no kernel addresses.
    Confidentiality,
}

/// The capabilities that memtide has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

/// A capability, with its bit as in capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Trace processes of other users.
    SysPtrace = 19,
    /// Nearly everything.
    SysAdmin = 21,
    /// Move pages that other processes map too.
    SysNice = 23,
    /// Read kernel addresses.
    Syslog = 34,
    /// Open performance events beyond one's own processes.
    Perfmon = 38,
}

impl Capability {
    /// All of them, by bit.
    pub const ALL: [Capability; 5] = [
        Capability::SysPtrace,
        Capability::SysAdmin,
        Capability::SysNice,
        Capability::Syslog,
        Capability::Perfmon,
    ];

    /// The name as in capabilities(7).
    pub fn name(self) -> &'static str {
        match self {
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Syslog => "CAP_SYSLOG",
            Capability::Perfmon => "CAP_PERFMON",
        }
    }
}

impl Capabilities {
    /// From the mask in `/proc/PID/status`.
    pub fn from_bits(bits: u64) -> Capabilities {
        Capabilities(bits)
    }

    /// True if `capability` is among them. `CAP_SYS_ADMIN` does not stand in
    /// for others here, although the kernel sometimes lets it.
    pub fn has(self, capability: Capability) -> bool {
        self.0 >> (capability as u32) & 1 == 1
    }
}

/// The `kernel.numa_balancing` setting.
pub fn balancing(root: &Root) -> Result<Option<BalancingMode>> {
    root.parse("proc/sys/kernel/numa_balancing", parse_balancing)
}

/// The most that the kernel promotes a second, in MiB a node.
pub fn promote_rate_limit(root: &Root) -> Result<Option<u64>> {
    root.number("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps")
}

/// Whether reclaim demotes pages to slower nodes instead of swapping them.
pub fn demotion_enabled(root: &Root) -> Result<Option<bool>> {
    root.parse("sys/kernel/mm/numa/demotion_enabled", parse_bool)
}

/// How far performance events are closed to ordinary users: -1 not at all,
/// 2 no kernel profiling, some distributions 3 and 4.
pub fn perf_event_paranoid(root: &Root) -> Result<Option<i64>> {
    root.parse("proc/sys/kernel/perf_event_paranoid", parse_signed)
}

/// The kernel's version.
pub fn release(root: &Root) -> Result<Option<Release>> {
    root.parse("proc/sys/kernel/osrelease", parse_release)
}

/// What the kernel hides from root; `None` if it has no lockdown or
/// securityfs is not mounted.
pub fn lockdown(root: &Root) -> Result<Option<Lockdown>> {
    root.parse("sys/kernel/security/lockdown", parse_lockdown)
}

/// What this process may do.
pub fn capabilities(root: &Root) -> Result<Option<Capabilities>> {
    let bits = root.parse("proc/self/status", parse_cap_eff)?;
    Ok(bits.flatten().map(Capabilities))
}

/// Only the one field, so that the others cannot fail it.
fn parse_cap_eff(bytes: &[u8]) -> Parsed<Option<u64>> {
    lines(bytes)
        .find_map(|(line, content)| Some((line, content.strip_prefix(b"CapEff:")?)))
        .map(|(line, mask)| hex(mask.trim_ascii(), line, "CapEff"))
        .transpose()
}

/// Parses the setting; unknown bits are refused rather than misread.
pub fn parse_balancing(bytes: &[u8]) -> std::result::Result<BalancingMode, ParseError> {
    match number(bytes.trim_ascii(), 1, "numa_balancing")? {
        mode @ 0..=3 => Ok(BalancingMode {
            normal: mode & 1 != 0,
            tiering: mode & 2 != 0,
        }),
        mode => Err(ParseError::new(
            1,
            "numa_balancing",
            format!("{mode} is no mode known here"),
        )),
    }
}

/// Parses a switch; sysfs prints words or digits, depending on the kernel.
pub fn parse_bool(bytes: &[u8]) -> std::result::Result<bool, ParseError> {
    match bytes.trim_ascii() {
        b"true" | b"1" | b"Y" => Ok(true),
        b"false" | b"0" | b"N" => Ok(false),
        other => Err(ParseError::new(
            1,
            "switch",
            format!("{} is neither true nor false", quoted(other)),
        )),
    }
}

fn parse_signed(bytes: &[u8]) -> Parsed<i64> {
    let bytes = bytes.trim_ascii();
    text(bytes, 1, "value")?
        .parse()
        .map_err(|_| ParseError::new(1, "value", format!("{} is not a number", quoted(bytes))))
}

/// Parses a release such as `6.12.117-amd64` or `7.2-rc1`.
pub fn parse_release(bytes: &[u8]) -> std::result::Result<Release, ParseError> {
    let digits = |bytes: &[u8]| -> Option<(u32, usize)> {
        let length = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
        let value = std::str::from_utf8(&bytes[..length]).ok()?.parse().ok()?;
        Some((value, length))
    };
    let parse = |bytes: &[u8]| -> Option<Release> {
        let (major, length) = digits(bytes)?;
        let (minor, _) = digits(bytes[length..].strip_prefix(b".")?)?;
        Some(Release { major, minor })
    };
    let bytes = bytes.trim_ascii();
    parse(bytes).ok_or_else(|| {
        let problem = format!("{} does not begin with \"major.minor\"", quoted(bytes));
        ParseError::new(1, "release", problem)
    })
}

/// Parses the three words, the one in force in brackets.
pub fn parse_lockdown(bytes: &[u8]) -> std::result::Result<Lockdown, ParseError> {
    let words = bytes.split(u8::is_ascii_whitespace);
    let chosen = words
        .filter_map(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"))
        .next();
    match chosen {
        Some(b"none") => Ok(Lockdown::None),
        Some(b"integrity") => Ok(Lockdown::Integrity),
        Some(b"confidentiality") => Ok(Lockdown::Confidentiality),
        _ => Err(ParseError::new(
            1,
            "lockdown",
            format!("{} has no state known here in brackets", quoted(bytes)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_shapes_are_ordered() {
        let release = |text: &str| parse_release(text.as_bytes()).unwrap();
        assert_eq!(
            release("6.12.117-amd64\n"),
            Release {
                major: 6,
                minor: 12
            }
        );
        assert_eq!(release("7.2-rc1"), Release { major: 7, minor: 2 });
        assert_eq!(release("6.9+deb"), Release { major: 6, minor: 9 });
        assert!(release("6.9.0") < release("6.12.1"));
        for wrong in ["", "6", "6.", "v6.1", "6.x", "99999999999.1"] {
            assert!(parse_release(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings() {
        let mode = parse_balancing(b"2\n").unwrap();
        assert_eq!((mode.normal, mode.tiering), (false, true));
        assert_eq!(
            parse_balancing(b"4\n").unwrap_err().to_string(),
            "1: numa_balancing: 4 is no mode known here"
        );
        assert_eq!(parse_bool(b"true\n"), Ok(true));
        assert_eq!(parse_bool(b"0\n"), Ok(false));
        assert!(parse_bool(b"maybe").is_err());
        assert_eq!(parse_signed(b"-1\n"), Ok(-1));
        assert_eq!(
            parse_lockdown(b"none [integrity] confidentiality\n"),
            Ok(Lockdown::Integrity)
        );
        assert!(parse_lockdown(b"none integrity\n").is_err());
    }

    #[test]
    fn capabilities_by_name() {
        // 1 << 23 is CAP_SYS_NICE, 1 << 38 is CAP_PERFMON.
        let mask = parse_cap_eff(b"Name:\ta\nCapEff:\t0000004000800000\n").unwrap();
        let capabilities = Capabilities::from_bits(mask.unwrap());
        let held: Vec<&str> = Capability::ALL
            .into_iter()
            .filter(|capability| capabilities.has(*capability))
            .map(Capability::name)
            .collect();
        assert_eq!(held, ["CAP_SYS_NICE", "CAP_PERFMON"]);
        assert_eq!(parse_cap_eff(b"Name:\ta\n"), Ok(None));
    }
}
