//! The few kernel files that measurements read. Parsing is pure and apart from reading.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// Clock ticks a second in /proc/PID/stat; fixed for user space on x86.
const TICKS: f64 = 100.0;

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The numbers of a list such as `0-1,3`.
///
/// # Errors
/// When the text is no such list.
pub fn parse_list(text: &str) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.parse::<u32>()
                .with_context(|| format!("no number: {text:?}"))
        };
        numbers.extend(number(first)?..=number(last)?);
    }
    Ok(numbers)
}

/// Nodes with CPUs: where hot pages belong.
///
/// # Errors
/// When the kernel file cannot be read.
pub fn dram_nodes() -> Result<Vec<u32>> {
    parse_list(&read("/sys/devices/system/node/has_cpu")?)
}

/// The CPUs that are online.
///
/// # Errors
/// When the kernel does not tell.
pub fn online_cpus() -> Result<Vec<u32>> {
    parse_list(&read("/sys/devices/system/cpu/online")?)
}

/// The CPUs of a node.
///
/// # Errors
/// When the node does not exist.
pub fn node_cpus(node: u32) -> Result<Vec<u32>> {
    parse_list(&read(format!(
        "/sys/devices/system/node/node{node}/cpulist"
    ))?)
}

/// Free memory of a node in MiB.
///
/// # Errors
/// When the node does not exist.
pub fn node_free_mib(node: u32) -> Result<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = read(&path)?;
    let line = text.lines().find(|line| line.contains("MemFree:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no MemFree"))? / 1024)
}

/// Has every CPU add what it counted by itself to the counters of nodes and zones, which it else does about
/// once a second. Only for a guest: it interrupts all CPUs.
///
/// # Errors
/// When the kernel does not let us.
pub fn refresh_counters() -> Result<()> {
    read("/proc/sys/vm/stat_refresh").map(drop)
}

/// All counters of /proc/vmstat.
///
/// # Errors
/// When it cannot be read.
pub fn vmstat() -> Result<BTreeMap<String, u64>> {
    Ok(read("/proc/vmstat")?
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect())
}

/// What numa_maps says of one mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaLine {
    /// Its policy, as the kernel writes it.
    pub policy: String,
    /// Pages by node; nodes without pages are left out.
    pub pages: BTreeMap<u32, u64>,
}

impl NumaLine {
    /// Pages on `node`.
    #[must_use]
    pub fn on(&self, node: u32) -> u64 {
        self.pages.get(&node).copied().unwrap_or(0)
    }

    /// The share on `node`, 0 for no pages.
    #[must_use]
    pub fn share(&self, node: u32) -> f64 {
        let all: u64 = self.pages.values().sum();
        self.on(node) as f64 / (all.max(1)) as f64
    }
}

/// What numa_maps says of the mapping of `pid` that `address` is in.
///
/// # Errors
/// When the process or the mapping is gone.
pub fn numa_line(pid: u32, address: usize) -> Result<NumaLine> {
    let path = format!("/proc/{pid}/numa_maps");
    parse_numa_maps(&read(&path)?, address).with_context(|| format!("{path} has no {address:x}"))
}

fn parse_numa_maps(text: &str, address: usize) -> Option<NumaLine> {
    let start = |line: &&str| {
        let word = line.split(' ').next().unwrap_or_default();
        usize::from_str_radix(word, 16).is_ok_and(|start| start <= address)
    };
    let mut words: Vec<&str> = text.lines().rfind(start)?.split(' ').skip(1).collect();
    // Two policies' names have a space in them.
    let name = if matches!(words[0], "weighted" | "prefer") {
        2
    } else {
        1
    };
    let rest = words.split_off(name.min(words.len()));
    let pages = rest.iter().filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    });
    Some(NumaLine {
        policy: words.join(" "),
        pages: pages.collect(),
    })
}

/// Free pages and watermarks of a node, summed over its zones that have pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeWater {
    /// Free pages.
    pub free: u64,
    /// The min watermark in pages.
    pub min: u64,
    /// The low watermark in pages.
    pub low: u64,
    /// The high watermark in pages.
    pub high: u64,
}

/// Free pages and watermarks of every node, by node number.
///
/// # Errors
/// When /proc/zoneinfo cannot be read.
pub fn zoneinfo() -> Result<BTreeMap<u32, NodeWater>> {
    Ok(parse_zoneinfo(&read("/proc/zoneinfo")?))
}

fn parse_zoneinfo(text: &str) -> BTreeMap<u32, NodeWater> {
    let mut nodes = BTreeMap::new();
    let mut node = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            node = rest
                .split(',')
                .next()
                .and_then(|number| number.parse().ok());
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(number), Some(mut name)) = (node, words.next()) else {
            continue;
        };
        if name == "pages" {
            name = words.next().unwrap_or_default();
        }
        let Some(value) = words.next().and_then(|value| value.parse::<u64>().ok()) else {
            continue;
        };
        let water: &mut NodeWater = nodes.entry(number).or_default();
        match name {
            "free" => water.free += value,
            "min" => water.min += value,
            "low" => water.low += value,
            "high" => water.high += value,
            _ => {}
        }
    }
    nodes
}

/// CPU time of a process: all of it, and the kernel's part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTime {
    /// User and system seconds.
    pub total: f64,
    /// System seconds.
    pub system: f64,
}

/// CPU time of process `pid`, or `None` when it is gone.
#[must_use]
pub fn cpu_time(pid: u32) -> Option<CpuTime> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<CpuTime> {
    // The name in parentheses may contain anything; fields are counted after its last one.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(CpuTime {
        total: (user + system) / TICKS,
        system: system / TICKS,
    })
}

/// KiB of huge pages in the mapping of `pid` that begins at `start` (`AnonHugePages`).
///
/// # Errors
/// When the process or the mapping is gone.
pub fn anon_huge_kib(pid: u32, start: usize) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let head = format!("{start:x}-");
    let mut block = text.lines().skip_while(|line| !line.starts_with(&head));
    let line = block.find(|line| line.starts_with("AnonHugePages:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.context("no AnonHugePages")
}

/// Processes whose name starts with one of `names`, as kernel threads of one purpose do.
#[must_use]
pub fn threads_named(names: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            names.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect()
}

/// Whether a process is on its way out: it may be in /proc for a while after whoever stopped it goes on.
#[must_use]
pub fn is_exiting(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |text| has_exiting_flag(&text))
}

fn has_exiting_flag(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    // The ninth field; the name in parentheses is the second.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| {
        let field = rest.split_whitespace().nth(6)?;
        field.parse::<u64>().ok()
    });
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// How a process ended that nobody has waited for yet, in words, or `None` if it runs or is gone. Waits for
/// a moment for one that is ending.
#[must_use]
pub fn how_it_ended(pid: u32) -> Option<String> {
    for _ in 0..20 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let words = ended_in_words(&stat);
        if words.is_some() || !has_exiting_flag(&stat) {
            return words;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

fn ended_in_words(stat: &str) -> Option<String> {
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.first() != Some(&"Z") {
        return None;
    }
    // The last field, the 52nd: the status of wait(2).
    let status: i32 = fields.last()?.parse().ok()?;
    Some(match status & 0x7f {
        0 => format!("{name} ended with status {}", status >> 8),
        signal => format!("{name} was ended by signal {signal}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-1,3\n").unwrap(), [0, 1, 3]);
        assert_eq!(parse_list("\n").unwrap(), Vec::<u32>::new());
        assert!(parse_list("a").is_err());
    }

    #[test]
    fn numa_maps_by_address() {
        let text = "1000 default anon=1 N0=1 kernelpagesize_kB=4\n\
                    3000 weighted interleave:0,2 anon=10 dirty=10 N0=9 N2=1 kernelpagesize_kB=4\n\
                    9000 bind=static:1 stack\n";
        let line = parse_numa_maps(text, 0x4000).unwrap();
        assert_eq!(line.policy, "weighted interleave:0,2");
        assert_eq!((line.on(0), line.on(1), line.on(2)), (9, 0, 1));
        assert!((line.share(2) - 0.1).abs() < 1e-12);
        assert_eq!(
            parse_numa_maps(text, 0x9000).unwrap().policy,
            "bind=static:1"
        );
        assert_eq!(parse_numa_maps(text, 0), None);
    }

    /// Two zones of node 0: free 3 + 100, min 1 + 10, low 2 + 12, high 3 + 15.
    #[test]
    fn zones_of_a_node_add_up() {
        let text = "Node 0, zone      DMA\n  pages free     3\n        boost    0\n        min      1\n\
                    \x20       low      2\n        high     3\nNode 0, zone    DMA32\n  pages free     100\n\
                    \x20       min      10\n        low      12\n        high     15\n  nr_free_pages 9\n";
        let water = parse_zoneinfo(text)[&0];
        assert_eq!(
            water,
            NodeWater {
                free: 103,
                min: 11,
                low: 14,
                high: 18
            }
        );
    }

    /// 2,129,984 is 0x208040 and lacks the bit 4, which 2,129,988 has.
    #[test]
    fn a_thread_that_ends_says_so() {
        let stat = |flags: u32| format!("9 (kdamond.0) I 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0");
        assert!(!has_exiting_flag(&stat(2_129_984)));
        assert!(has_exiting_flag(&stat(2_129_988)));
    }

    /// 11 is SIGSEGV; 256 is exit(1).
    #[test]
    fn who_ended_says_how() {
        let told = |stat: &str| ended_in_words(stat).unwrap();
        assert_eq!(told("9 (a) b) Z 1 0 11"), "a) b was ended by signal 11");
        assert_eq!(told("9 (a) Z 1 0 256"), "a ended with status 1");
        assert_eq!(ended_in_words("9 (a) S 1 0 0"), None);
    }

    /// Fields 14 and 15 are 150 and 50 ticks: 2.0 s in all, 0.5 s in the kernel.
    #[test]
    fn stat_with_a_nasty_name() {
        let text = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(
            parse_stat(text),
            Some(CpuTime {
                total: 2.0,
                system: 0.5
            })
        );
    }
}
