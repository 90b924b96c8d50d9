//! A cgroup for a test's processes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";

/// A cgroup with a cpuset, removed on drop; its processes must be gone by then. The controller stays
/// on: see [`crate::guest::pins`].
#[derive(Debug)]
pub(in crate::guest::tests) struct Group(PathBuf);

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

impl Group {
    pub(in crate::guest::tests) fn create() -> Result<Self> {
        write(Path::new(CONTROLLERS), "+cpuset")?;
        let path = Path::new(ROOT).join("manners");
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the cgroup {}", path.display()))?;
        Ok(Self(path))
    }

    pub(in crate::guest::tests) fn path(&self) -> &Path {
        &self.0
    }

    /// Confines its processes to the memory of these nodes.
    pub(in crate::guest::tests) fn allow_nodes(&self, nodes: &str) -> Result<()> {
        write(&self.0.join("cpuset.mems"), nodes)
    }

    pub(in crate::guest::tests) fn take_in(&self, pid: u32) -> Result<()> {
        write(&self.0.join("cgroup.procs"), &pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
