//! Nodes of memory that come and go while memtide runs: an expander that somebody sets online, or takes away.

use memtide_linux::fs::{Root, node};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after nodes came or went, and could not be followed, that is tried again.
pub const AGAIN: Duration = Duration::from_secs(60);
/// Said where nothing is tiered until nodes come.
pub const LATER: &str = "tiering begins when other nodes have memory";

/// Which nodes have memory.
#[derive(Clone, Debug)]
pub struct NodesWatch<'a> {
    root: &'a Root,
    /// As the kernel lists them; none where it does not tell.
    list: Option<String>,
    /// The list when it was looked at last: several nodes may come one after the other.
    last: RefCell<Option<String>>,
    /// When it says once more that others have memory, though none came.
    again: Option<Instant>,
}

impl<'a> NodesWatch<'a> {
    /// Begins with those of now.
    pub fn new(root: &'a Root) -> NodesWatch<'a> {
        let list = list(root);
        NodesWatch {
            root,
            last: RefCell::new(list.clone()),
            list,
            again: None,
        }
    }

    /// The same for who could not follow those of now, and is to try again at that moment.
    #[must_use]
    pub fn again_at(self, again: Instant) -> NodesWatch<'a> {
        NodesWatch {
            again: Some(again),
            ..self
        }
    }

    /// Whether others have memory now, and had when that was asked last, than when it began.
    pub fn are_others(&self) -> bool {
        let now = list(self.root);
        let stays = *self.last.borrow() == now;
        let others = now != self.list && stays;
        *self.last.borrow_mut() = now;
        others || self.again.is_some_and(|again| again <= Instant::now())
    }

    /// Whether it is to say so once more.
    pub fn waits(&self) -> bool {
        self.again.is_some()
    }

    /// Raises `flag` if others have.
    pub fn tell(&self, flag: &AtomicBool) {
        if self.are_others() {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

fn list(root: &Root) -> Option<String> {
    std::fs::read_to_string(root.path("sys/devices/system/node/has_memory")).ok()
}

/// Whether nodes may come that have no memory yet: the kernel knows of them from the firmware. Some hypervisors
/// announce many that never appear.
pub fn may_come(root: &Root) -> bool {
    let Ok(sets) = node::sets(root) else {
        return false;
    };
    let has = sets.has_memory.unwrap_or(sets.online);
    let possible = sets.possible.unwrap_or_default();
    possible.iter().any(|node| !has.contains(node))
}

/// What changed, by the nodes of each tier.
pub fn changed(was: &str, is: &str) -> String {
    format!("the nodes were {was}, are {is}, fastest tier first")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_node_that_came_or_went_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = folder.path().join("sys/devices/system/node");
        std::fs::create_dir_all(&nodes).unwrap();
        let root = Root::new(folder.path());
        let write = |text| std::fs::write(nodes.join("has_memory"), text).unwrap();
        let flag = AtomicBool::new(false);
        // It has to stay so for another look.
        let told = |watch: &NodesWatch<'_>| {
            watch.tell(&flag);
            assert!(!flag.load(Ordering::Relaxed));
            watch.tell(&flag);
            // Who asks after that hears the same.
            flag.swap(false, Ordering::Relaxed) && watch.are_others()
        };
        let without = NodesWatch::new(&root);
        write("0-1\n");
        assert!(told(&without));
        let watch = NodesWatch::new(&root);
        assert!(!told(&watch));
        for others in ["0-2\n", "0\n"] {
            write(others);
            assert!(told(&watch), "{others}");
        }
        write("0-1\n");
        assert!(!told(&watch));
        // Who could not follow tries again in time.
        let now = Instant::now();
        assert!(!watch.waits());
        assert!(watch.clone().again_at(now).are_others());
        let later = watch.again_at(now + AGAIN);
        assert!(later.waits() && !later.are_others());
    }

    #[test]
    fn nodes_may_come_where_the_firmware_tells_of_more() {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtide-linux/tests/fixtures");
        let of = |name| may_come(&Root::new(fixtures.join(name)));
        for (name, may) in [
            ("one-node", false),
            ("two-sockets", false),
            ("hbm", false),
            // One has processors and no memory, another is absent.
            ("node-offline", true),
            ("two-sockets-cxl-hmat", true),
        ] {
            assert_eq!(of(name), may, "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(!may_come(&Root::new(folder.path())));
    }
}
