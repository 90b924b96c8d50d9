//! The machine that the calls run on, and what the parent changes about it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};

use super::calls::{Answer, Call, Machine};
use super::sys;
use crate::guest::procfs::parse_list;

const NODES: &str = "/sys/devices/system/node";
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
const CGROUPS: &str = "/sys/fs/cgroup";

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// This machine as it is now, for a process that may use all of it and runs on a CPU of `node`.
///
/// # Errors
/// When a kernel file cannot be read.
pub fn here(node: u32) -> Result<Machine> {
    let memory_nodes = read(format!("{NODES}/has_memory"))?;
    let row = |node| {
        let row = read(format!("{NODES}/node{node}/distance"))?;
        let numbers = row.split_whitespace().map(str::parse);
        Ok(numbers.collect::<std::result::Result<_, _>>()?)
    };
    let possible_nodes = read(format!("{NODES}/possible"))?;
    let distances = parse_list(&possible_nodes)?.into_iter().map(row);
    let release = read("/proc/sys/kernel/osrelease")?;
    let numbers: Vec<&str> = release.split('.').take(2).collect();
    let (weights, auto) = table()?;
    Ok(Machine {
        cpu_nodes: read(format!("{NODES}/has_cpu"))?,
        possible_nodes,
        kernel: numbers.join("."),
        cpuset: memory_nodes.clone(),
        run_on: node,
        weights,
        auto,
        distances: distances.collect::<Result<_>>()?,
        memory_nodes,
        zero_page_node: sys::zero_page_node()?,
        capable: true,
    })
}

/// The kernel's weights, and whether it computes them.
///
/// # Errors
/// When the table cannot be read.
pub fn table() -> Result<(BTreeMap<u32, u32>, Option<bool>)> {
    let mut weights = BTreeMap::new();
    for entry in std::fs::read_dir(WEIGHTS).with_context(|| format!("no {WEIGHTS}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(node) = name.strip_prefix("node") {
            let weight = read(format!("{WEIGHTS}/{name}"))?;
            weights.insert(node.parse()?, weight.parse()?);
        }
    }
    let auto = match std::fs::read_to_string(format!("{WEIGHTS}/auto")) {
        Ok(text) => Some(text.trim() == "true"),
        Err(_) => None,
    };
    Ok((weights, auto))
}

/// Puts the table back to what it is after boot: computed by the kernel, or all ones.
///
/// # Errors
/// When the kernel refuses.
pub fn reset_table() -> Result<()> {
    let (weights, auto) = table()?;
    let mut writes: Vec<_> = weights
        .keys()
        .map(|node| (format!("node{node}"), "0"))
        .collect();
    if auto.is_some() {
        writes = vec![("auto".to_owned(), "0"), ("auto".to_owned(), "1")];
    }
    for (name, text) in writes {
        let path = format!("{WEIGHTS}/{name}");
        std::fs::write(&path, text).with_context(|| format!("cannot write {text} to {path}"))?;
    }
    Ok(())
}

/// One write(2), also of nothing; 0 or a negative error number.
fn write_once(path: &Path, text: &str) -> i64 {
    let written = rustix::fs::open(path, OFlags::WRONLY, Mode::empty())
        .and_then(|file| rustix::io::write(file, text.as_bytes()));
    match written {
        Ok(_) => 0,
        Err(error) => -i64::from(error.raw_os_error()),
    }
}

/// A cgroup of the executor's own; on drop, what is left in it ends, and it is removed.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes it, with a cpuset.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(name: &str) -> Result<Self> {
        let control = format!("{CGROUPS}/cgroup.subtree_control");
        std::fs::write(&control, "+cpuset").context("cannot have cpusets")?;
        let folder = Path::new(CGROUPS).join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.0.join(file);
        std::fs::write(&path, text).with_context(|| format!("{}: {text:?}", path.display()))
    }

    /// Makes a call that is the parent's, for process `pid` in this group.
    ///
    /// # Errors
    /// When a kernel file cannot be read afterwards, or the call is not the parent's.
    pub fn call(&self, pid: i32, call: &Call) -> Result<Answer> {
        let (file, text) = match call {
            Call::RunOn { node } => {
                let cpus = read(format!("{NODES}/node{node}/cpulist")).unwrap_or_default();
                let ret = match sys::run_on(pid, &parse_list(&cpus)?) {
                    Ok(()) => 0,
                    Err(error) => -i64::from(error.raw_os_error().unwrap_or(0)),
                };
                return Ok(plain(ret));
            }
            Call::Cpuset { nodes } => {
                return Ok(plain(write_once(&self.0.join("cpuset.mems"), nodes)));
            }
            Call::Weight { node, text } => (format!("node{node}"), text),
            Call::Auto { text } => ("auto".to_owned(), text),
            other => anyhow::bail!("not the parent's: {other:?}"),
        };
        let ret = write_once(&Path::new(WEIGHTS).join(file), text);
        let (weights, auto) = table()?;
        Ok(Answer {
            weights: Some(weights),
            auto,
            ..plain(ret)
        })
    }
}

fn plain(ret: i64) -> Answer {
    Answer {
        ret,
        ..Answer::default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        // Who was killed just now still counts for a moment.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
