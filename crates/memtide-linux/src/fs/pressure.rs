//! For how long programs wait for memory: PSI of the machine and of cgroups.
//!
//! `/proc/pressure/memory` and a cgroup's `memory.pressure` have a line `some`, whose
//! `total` is the time in µs in which at least one task stalled. The averages lag, so
//! they are not read. A kernel without PSI, or one that was started with `psi=0`, has no
//! such files; others refuse to read them.

use super::kept::Kept;
use super::parse::{ParseError, lines, number, quoted, words};
use super::{Result, Root};
use std::path::Path;

/// The machine's file, under the root.
pub const MACHINE: &str = "proc/pressure/memory";
/// The longest of these files is some 200 bytes.
const MOST_BYTES: u64 = 4096;

/// The machine's, to be read often: [`parse`] takes it.
pub fn kept(root: &Root) -> Kept {
    Kept::new(root, MACHINE, MOST_BYTES)
}

/// The stall in µs of the cgroup in this directory and of those below it; `None` if there is no such file.
pub fn of_cgroup(root: &Root, directory: &Path) -> Result<Option<u64>> {
    root.parse_within(directory.join("memory.pressure"), MOST_BYTES, parse)
}

/// Parses either file: `total` of the line `some`.
pub fn parse(bytes: &[u8]) -> std::result::Result<u64, ParseError> {
    const ITEM: &str = "pressure";
    for (line, content) in lines(bytes) {
        let mut fields = words(content);
        if fields.next() != Some(b"some") {
            continue;
        }
        let mut totals = fields.filter_map(|field| field.strip_prefix(b"total="));
        let Some(total) = totals.next() else {
            let problem = format!("{} has no total", quoted(content));
            return Err(ParseError::new(line, ITEM, problem));
        };
        return number(total, line, "total");
    }
    Err(ParseError::new(1, ITEM, "no line \"some\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_counts() {
        let text = "some avg10=0.12 avg60=0.05 avg300=0.01 total=1234567\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        assert_eq!(parse(text.as_bytes()), Ok(1_234_567));
        // Whatever the order, and whatever comes later.
        assert_eq!(parse(b"full total=9\nsome new=1 total=8 avg10=0\n"), Ok(8));
    }

    #[test]
    fn what_is_no_pressure_is_refused_with_its_line() {
        for (wrong, says) in [
            ("", "1: pressure: no line \"some\""),
            ("full total=1\n", "1: pressure: no line \"some\""),
            (
                "full total=1\nsome avg10=0\n",
                "2: pressure: \"some avg10=0\" has no total",
            ),
            (
                "some total=x\n",
                "1: total: \"x\" is not an unsigned number",
            ),
            (
                "some total=-1\n",
                "1: total: \"-1\" is not an unsigned number",
            ),
        ] {
            let error = parse(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), says);
        }
    }

    #[test]
    fn a_machine_without_psi_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let mut machine = kept(&root);
        assert_eq!(machine.parse(parse).unwrap(), None);
        assert_eq!(of_cgroup(&root, Path::new("/a")).unwrap(), None);
    }
}
