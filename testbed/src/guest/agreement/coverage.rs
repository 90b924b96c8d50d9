//! What sequences have tried: every mode with every combination of flags, in both calls that set one.

use std::collections::BTreeMap;

use super::calls::{Answer, Call};
use super::draw::{NUMA_BALANCING, RELATIVE, STATIC};

/// The modes by their numbers.
pub const MODES: [&str; 7] = [
    "DEFAULT",
    "PREFERRED",
    "BIND",
    "INTERLEAVE",
    "LOCAL",
    "PREFERRED_MANY",
    "WEIGHTED_INTERLEAVE",
];

/// Calls by mode word: tried, and accepted by the kernel.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    cells: BTreeMap<(&'static str, i64), (u64, u64)>,
    /// All calls of any kind, by name.
    pub calls: BTreeMap<String, u64>,
}

/// The eight combinations of flags, as bits of the mode word.
fn combinations() -> impl Iterator<Item = i64> {
    (0..8).map(|bits| bits << 13)
}

/// `STATIC+BALANCING`, or `none`.
fn words(flags: i64) -> String {
    let names = [
        (STATIC, "STATIC"),
        (RELATIVE, "RELATIVE"),
        (NUMA_BALANCING, "BALANCING"),
    ];
    let set = names.iter().filter(|(bit, _)| flags & bit != 0);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    if set.is_empty() {
        "none".to_owned()
    } else {
        set.join("+")
    }
}

impl Coverage {
    /// Counts one call.
    pub fn count(&mut self, call: &Call, answer: &Answer) {
        let (name, mode) = match call {
            Call::SetMempolicy { mode, .. } => ("set_mempolicy", *mode),
            Call::Mbind { mode, .. } => ("mbind", *mode),
            _ => return self.count_name(call),
        };
        self.count_name(call);
        let cell = self.cells.entry((name, mode)).or_default();
        cell.0 += 1;
        cell.1 += u64::from(answer.ret == 0);
    }

    fn count_name(&mut self, call: &Call) {
        let value = serde_json::to_value(call).unwrap_or_default();
        let name = value["call"].as_str().unwrap_or_default().to_owned();
        *self.calls.entry(name).or_default() += 1;
    }

    /// How many calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }

    fn cell(&self, call: &'static str, mode: usize, flags: i64) -> (u64, u64) {
        let word = mode as i64 | flags;
        self.cells.get(&(call, word)).copied().unwrap_or_default()
    }

    /// Cells that nobody tried.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for call in ["set_mempolicy", "mbind"] {
            for (mode, name) in MODES.iter().enumerate() {
                for flags in combinations() {
                    if self.cell(call, mode, flags).0 == 0 {
                        missing.push(format!("{call} {name} {}", words(flags)));
                    }
                }
            }
        }
        missing
    }

    /// A row for each call and combination, a column for each mode: accepted of tried.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<(String, String)>> {
        let mut rows = Vec::new();
        for call in ["set_mempolicy", "mbind"] {
            for flags in combinations() {
                let mut row = vec![
                    ("call".to_owned(), call.to_owned()),
                    ("flags".to_owned(), words(flags)),
                ];
                for (mode, name) in MODES.iter().enumerate() {
                    let (tried, accepted) = self.cell(call, mode, flags);
                    row.push(((*name).to_owned(), format!("{accepted}/{tried}")));
                }
                rows.push(row);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::Mask;
    use super::*;

    #[test]
    fn a_cell_that_nobody_tried_is_missing() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.missing().len(), 2 * 7 * 8);
        let call = Call::SetMempolicy {
            mode: 2 | STATIC | NUMA_BALANCING,
            mask: Mask::Null,
            maxnode: 0,
        };
        let refused = Answer {
            ret: -22,
            ..Answer::default()
        };
        coverage.count(&call, &refused);
        coverage.count(&call, &Answer::default());
        assert_eq!(coverage.missing().len(), 2 * 7 * 8 - 1);
        let cell = ("BIND".to_owned(), "1/2".to_owned());
        assert!(coverage.rows().iter().any(|row| {
            row[1].1 == "STATIC+BALANCING" && row.contains(&cell) && row[0].1 == "set_mempolicy"
        }));
        assert_eq!(coverage.total(), 2);
    }
}
