//! The memory limit under which this process runs.
//!
//! A budget above the limit of the process's memory cgroup cannot be reached. In
//! file mode the kernel then reclaims by itself before the pager would: the budget
//! is lowered to what the limit leaves, so that the pager stays ahead of it. In
//! strict mode the memory is anonymous, and the kernel would end the process: that
//! is refused.

use crate::sys::known_file::text_of;
use std::path::{Path, PathBuf};

/// The smallest limit of the process's memory cgroup and those above it, in bytes.
pub(crate) fn of_process(root: &Path) -> Option<u64> {
    let membership = text_of(&root.join("proc/self/cgroup"))?;
    let lines = membership.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some(("sys/fs/cgroup", path, "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(("sys/fs/cgroup/memory", path, "memory.limit_in_bytes"))
            }
            _ => None,
        }
    });
    lines
        .filter_map(|(mount, path, file)| smallest(&root.join(mount), path, file))
        .min()
}

/// Over a cgroup and those above it. A limit that is not set is `max` or beyond
/// any memory.
fn smallest(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let mut folder: PathBuf = mount.join(path);
    let mut least = None::<u64>;
    loop {
        let text = text_of(&folder.join(file)).unwrap_or_default();
        if let Ok(limit) = text.trim().parse::<u64>()
            && limit < 1 << 60
        {
            least = Some(least.map_or(limit, |before| before.min(limit)));
        }
        if folder == mount || !folder.pop() {
            return least;
        }
    }
}

/// What of a limit data may take: the process itself needs some.
pub(crate) fn for_data(limit: u64) -> u64 {
    limit / 8 * 7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(membership: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let membership = ("proc/self/cgroup", membership);
        for (path, text) in files.iter().chain([&membership]) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_holds() {
        let root = tree(
            "0::/a/b\n",
            &[
                ("sys/fs/cgroup/a/memory.max", "1000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ],
        );
        assert_eq!(of_process(root.path()), Some(1000));
        assert_eq!(for_data(1000), 875);
    }

    #[test]
    fn the_first_version_is_read_too() {
        let unlimited = "9223372036854771712\n";
        let root = tree(
            "4:cpu,memory:/x\n0::/\n",
            &[
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4096\n"),
            ],
        );
        assert_eq!(of_process(root.path()), Some(4096));
        let root = tree(
            "4:memory:/\n",
            &[("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited)],
        );
        assert_eq!(of_process(root.path()), None);
        assert_eq!(of_process(Path::new("/nowhere")), None);
    }
}
