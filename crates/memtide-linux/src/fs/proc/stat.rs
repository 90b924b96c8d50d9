//! `/proc/PID/stat`: one line, fields by position.
//!
//! The second field is the program's name in parentheses, and the name may
//! hold spaces, parentheses and line feeds of its own. So the line is cut at
//! the *last* closing parenthesis; nothing after it can contain one.

use crate::fs::parse::{ParseError, Parsed, number, quoted, small, words};

/// The kernel's flag for its own threads, `PF_KTHREAD`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What memtide uses of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process id.
    pub pid: u32,
    /// The program's name, at most 15 bytes; bytes that are not UTF-8 are
    /// replaced, since it is for people only.
    pub name: String,
    /// `R`, `S`, `D`, `Z`, `T`, ... as in `ps`.
    pub state: char,
    /// The process that started it, or that it was handed to.
    pub parent: u32,
    /// True for the kernel's own threads.
    pub kernel_thread: bool,
    /// Page faults that it took, minor and major.
    pub faults: u64,
    /// CPU time spent in user space, in clock ticks.
    pub user_ticks: u64,
    /// CPU time spent in the kernel, in clock ticks.
    pub system_ticks: u64,
    /// How many threads it has.
    pub threads: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Size of its address space in bytes.
    pub address_space: u64,
}

impl Stat {
    /// False for kernel threads and zombies: there is nothing to move.
    pub fn has_address_space(&self) -> bool {
        self.address_space > 0
    }
}

/// Parses the line.
pub fn parse(bytes: &[u8]) -> Result<Stat, ParseError> {
    let open = bytes.iter().position(|byte| *byte == b'(');
    let close = bytes.iter().rposition(|byte| *byte == b')');
    let (Some(open), Some(close)) = (open, close) else {
        let problem = format!("no name in parentheses in {}", quoted(bytes));
        return Err(ParseError::new(1, "comm", problem));
    };
    if close < open {
        let problem = format!("parentheses the wrong way around in {}", quoted(bytes));
        return Err(ParseError::new(1, "comm", problem));
    }
    let fields: Vec<&[u8]> = words(&bytes[close + 1..]).collect();
    // proc(5) numbers the fields from 1; the third is the first one here.
    let field = |position: usize, name: &str| -> Parsed<&[u8]> {
        fields
            .get(position - 3)
            .copied()
            .ok_or_else(|| ParseError::new(1, name, format!("field {position} is missing")))
    };
    let value = |position, name: &str| number(field(position, name)?, 1, name);
    let state = match field(3, "state")? {
        [letter] if letter.is_ascii_alphabetic() => char::from(*letter),
        other => {
            let problem = format!("{} is not one letter", quoted(other));
            return Err(ParseError::new(1, "state", problem));
        }
    };
    Ok(Stat {
        pid: small(bytes[..open].trim_ascii(), 1, "pid")?,
        name: String::from_utf8_lossy(&bytes[open + 1..close]).into_owned(),
        state,
        parent: small(field(4, "ppid")?, 1, "ppid")?,
        kernel_thread: value(9, "flags")? & KERNEL_THREAD != 0,
        faults: value(10, "minflt")?.saturating_add(value(12, "majflt")?),
        user_ticks: value(14, "utime")?,
        system_ticks: value(15, "stime")?,
        threads: small(field(20, "num_threads")?, 1, "num_threads")?,
        start_ticks: value(22, "starttime")?,
        address_space: value(23, "vsize")?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A line whose every field from the tenth on holds its own number.
    pub(crate) fn line(pid: u32, name: &str, flags: u64, start: u64) -> String {
        format!(
            "{pid} ({name}) S 1 2 3 4 -1 {flags} 10 11 12 13 14 15 16 17 18 19 20 21 {start} 23 24\n"
        )
    }

    #[test]
    fn fields_are_counted_from_the_last_parenthesis() {
        let stat = parse(line(42, "a) S (b\n", 0x40_0000, 9000).as_bytes()).unwrap();
        assert_eq!(stat.pid, 42);
        assert_eq!(stat.name, "a) S (b\n");
        assert_eq!((stat.state, stat.parent), ('S', 1));
        assert!(!stat.kernel_thread);
        assert_eq!((stat.user_ticks, stat.system_ticks), (14, 15));
        assert_eq!(stat.faults, 10 + 12);
        assert_eq!((stat.threads, stat.start_ticks), (20, 9000));
        assert!(stat.has_address_space());
    }

    #[test]
    fn a_kernel_thread_is_told_by_its_flag() {
        // kswapd0 on a 6.18 host: 0x00220840 has the bit 0x00200000.
        let stat = parse(line(50, "kswapd0", 0x0022_0840, 3).as_bytes()).unwrap();
        assert!(stat.kernel_thread);
    }

    #[test]
    fn errors_name_the_field() {
        let says = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(says("7 (a) S 1"), "1: flags: field 9 is missing");
        assert_eq!(
            says("7 a S"),
            "1: comm: no name in parentheses in \"7 a S\""
        );
        assert_eq!(
            says(")("),
            "1: comm: parentheses the wrong way around in \")(\""
        );
        assert_eq!(says("7 (a) run"), "1: state: \"run\" is not one letter");
        let late = line(7, "a", 0, 5).replace(" 5 23", " soon 23");
        assert_eq!(
            says(&late),
            "1: starttime: \"soon\" is not an unsigned number"
        );
    }
}
