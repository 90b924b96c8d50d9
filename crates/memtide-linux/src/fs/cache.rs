//! Caches of CPUs: `/sys/devices/system/cpu/cpuN/cache`.

use super::parse::{ParseError, number};
use super::{Result, Root, list};
use std::collections::{BTreeMap, BTreeSet};

/// The last-level caches of some CPUs. Machines have one a socket, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastLevel {
    /// The largest of them, in bytes.
    pub largest_bytes: u64,
    /// All of them together, each counted once.
    pub total_bytes: u64,
}

/// The last-level caches of `cpus`, or `None` if the kernel knows of none.
pub fn last_level(root: &Root, cpus: &BTreeSet<u32>) -> Result<Option<LastLevel>> {
    let mut caches: BTreeMap<BTreeSet<u32>, u64> = BTreeMap::new();
    for cpu in cpus {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
        let mut last: Option<(u64, String)> = None;
        for name in root.names(&folder)?.unwrap_or_default() {
            if let Some(level) = root.number(format!("{folder}/{name}/level"))?
                && last.as_ref().is_none_or(|(highest, _)| level > *highest)
            {
                last = Some((level, format!("{folder}/{name}")));
            }
        }
        let Some((_, index)) = last else { continue };
        let shared = root.parse(format!("{index}/shared_cpu_list"), list::parse)?;
        if let Some(bytes) = root.parse(format!("{index}/size"), parse_size)? {
            caches.insert(shared.unwrap_or_else(|| [*cpu].into()), bytes);
        }
    }
    Ok(caches
        .values()
        .copied()
        .max()
        .map(|largest_bytes| LastLevel {
            largest_bytes,
            total_bytes: caches.values().sum(),
        }))
}

/// Parses `32768K`.
fn parse_size(bytes: &[u8]) -> std::result::Result<u64, ParseError> {
    let text = bytes.trim_ascii();
    let (digits, factor) = match text.split_last() {
        Some((b'K', digits)) => (digits, 1 << 10),
        Some((b'M', digits)) => (digits, 1 << 20),
        _ => (text, 1),
    };
    let size = number(digits, 1, "size")?;
    size.checked_mul(factor)
        .ok_or_else(|| ParseError::new(1, "size", format!("{size} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!(last_level(&root, &[0].into()).unwrap(), None);
        let cache = |cpu: u32, index: u32, level: u32, size: &str, shared: &str| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let path = root.path(path);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("level"), format!("{level}\n")).unwrap();
            std::fs::write(path.join("size"), size).unwrap();
            std::fs::write(path.join("shared_cpu_list"), shared).unwrap();
        };
        for cpu in 0..4 {
            cache(cpu, 0, 1, "32K\n", &format!("{cpu}\n"));
        }
        cache(0, 3, 3, "32768K\n", "0-1\n");
        cache(1, 3, 3, "32768K\n", "0-1\n");
        cache(2, 3, 3, "16M\n", "2\n");
        let last = |cpus: &[u32]| last_level(&root, &cpus.iter().copied().collect()).unwrap();
        let expected = |largest: u64, total: u64| {
            Some(LastLevel {
                largest_bytes: largest << 10,
                total_bytes: total << 10,
            })
        };
        assert_eq!(last(&[0, 1]), expected(32768, 32768));
        assert_eq!(last(&[0, 1, 2, 3]), expected(32768, 32768 + 16384 + 32));
        assert!(parse_size(b"many\n").is_err());
        assert!(parse_size(b"99999999999999999999K\n").is_err());
    }
}
