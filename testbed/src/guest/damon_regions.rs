//! DAMON's own answer to hot pages on slow memory: a scheme that migrates the regions it finds hot.
//!
//! Set up as its documentation shows (`Documentation/admin-guide/mm/damon/usage.rst`): a process's
//! addresses, the default intervals and numbers of regions, and the action `migrate_hot` to a DRAM
//! node for what was found accessed in a quarter of an aggregation's samples. It is what memtide has to
//! beat or to match where memory is large.

use std::path::Path;

use anyhow::{Context, Result};

const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// Runs by default on some kernels and keeps others out.
const STATISTICS: &str = "/sys/module/damon_stat/parameters/enabled";
/// Most of anything.
const ANY: &str = "4294967295";

/// A scheme at work; off, and the kernel's settings as before, when dropped.
#[derive(Debug)]
pub struct DamonRegions {
    statistics: Option<String>,
}

impl DamonRegions {
    /// Why this kernel cannot do it, if it cannot: before 6.17 there is no such scheme for a process's
    /// addresses, and one for physical ones takes what it likes.
    #[must_use]
    pub fn missing() -> Option<String> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut parts = release
            .split(['.', '-'])
            .map_while(|part| part.parse().ok());
        let version: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        (version < (6, 17)).then(|| {
            let release = release.trim();
            format!("Linux {release} migrates no regions of a process (since 6.17)")
        })
    }

    /// Sets it to work on these processes, with `node` as the goal.
    ///
    /// # Errors
    /// When the kernel refuses a setting.
    pub fn start(pids: &[u32], node: u32) -> Result<Self> {
        let statistics = std::fs::read_to_string(STATISTICS).ok();
        let started = Self { statistics };
        if started.statistics.is_some() {
            write(STATISTICS, "N")?;
        }
        admin("nr_kdamonds", "1")?;
        admin("0/contexts/nr_contexts", "1")?;
        admin("0/contexts/0/operations", "vaddr")?;
        admin("0/contexts/0/targets/nr_targets", &pids.len().to_string())?;
        for (number, pid) in pids.iter().enumerate() {
            let path = format!("0/contexts/0/targets/{number}/pid_target");
            admin(&path, &pid.to_string())?;
        }
        for (name, value) in [
            ("monitoring_attrs/intervals/sample_us", "5000"),
            ("monitoring_attrs/intervals/aggr_us", "100000"),
            ("monitoring_attrs/intervals/update_us", "1000000"),
            ("monitoring_attrs/nr_regions/min", "10"),
            ("monitoring_attrs/nr_regions/max", "1000"),
            ("schemes/nr_schemes", "1"),
            ("schemes/0/action", "migrate_hot"),
            ("schemes/0/target_nid", &node.to_string()),
            ("schemes/0/access_pattern/sz/min", "4096"),
            ("schemes/0/access_pattern/sz/max", "18446744073709551615"),
            ("schemes/0/access_pattern/nr_accesses/min", "5"),
            ("schemes/0/access_pattern/nr_accesses/max", ANY),
            ("schemes/0/access_pattern/age/min", "0"),
            ("schemes/0/access_pattern/age/max", ANY),
        ] {
            admin(&format!("0/contexts/0/{name}"), value)?;
        }
        admin("0/state", "on")?;
        Ok(started)
    }
}

impl Drop for DamonRegions {
    fn drop(&mut self) {
        let _ = admin("0/state", "off");
        let _ = admin("nr_kdamonds", "0");
        if let Some(before) = &self.statistics {
            let _ = write(STATISTICS, before.trim());
        }
    }
}

fn admin(name: &str, text: &str) -> Result<()> {
    write(&format!("{ADMIN}/{name}"), text)
}

fn write(path: &str, text: &str) -> Result<()> {
    std::fs::write(Path::new(path), text)
        .with_context(|| format!("cannot write {text:?} to {path}"))
}
