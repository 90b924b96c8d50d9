//! For how long the tasks of each class have stalled on memory.
//!
//! Of several cgroups of a class the one that stalled longest between two readings counts. What stalls
//! in classes below is contained, for the kernel does not tell it apart.
//!
//! A machine with a thousand pods has a thousand files to read each second, and next to nothing to
//! read in them. The figures of a cgroup contain those of the cgroups below it: where [`SIBLINGS`]
//! and more lie side by side and nothing stalled in the cgroup that contains them, none of them is read.

use crate::fs::{Root, pressure};
use memtide_loop::world::ClassId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// So many cgroups of one cgroup are worth a reading of that one.
const SIBLINGS: usize = 4;

/// What was read of cgroups last.
#[derive(Debug, Default)]
pub struct ClassStalls {
    /// µs, of the cgroups that are a class's.
    own: BTreeMap<PathBuf, u64>,
    /// Likewise, of those that contain many of these.
    around: BTreeMap<PathBuf, u64>,
    /// µs since the first reading, by [`ClassId`].
    waited: Vec<u64>,
}

impl ClassStalls {
    /// Reads how long tasks of each of `classes` classes have stalled since the first reading, in µs, by
    /// [`ClassId`]; `None` if the kernel does not say. `charged` are the cgroups of all classes.
    pub fn read(
        &mut self,
        root: &Root,
        classes: usize,
        charged: &[(ClassId, &Path)],
    ) -> Vec<Option<u64>> {
        self.waited.resize(classes, 0);
        let calm = self.calm(root, charged);
        let mut before = std::mem::take(&mut self.own);
        let mut longest: Vec<Option<u64>> = vec![None; classes];
        for (class, directory) in charged {
            let known = before.remove_entry(*directory);
            let is_calm = directory
                .parent()
                .is_some_and(|around| calm.contains(around));
            let (came, entry) = match known {
                Some(known) if is_calm => (0, known),
                known => {
                    // Of one that cannot be read no more is known than of one that is not there.
                    let Ok(Some(total)) = pressure::of_cgroup(root, directory) else {
                        continue;
                    };
                    let (path, since) = known.unwrap_or_else(|| (directory.to_path_buf(), total));
                    (total.saturating_sub(since), (path, total))
                }
            };
            let longest = &mut longest[class.0 as usize];
            *longest = Some(longest.unwrap_or(0).max(came));
            self.own.insert(entry.0, entry.1);
        }
        let all = longest.into_iter().zip(&mut self.waited);
        let all = all.map(|(came, waited)| {
            *waited = waited.saturating_add(came?);
            Some(*waited)
        });
        all.collect()
    }

    /// The cgroups that contain many of `charged` and in which nothing stalled since they were read last. They
    /// are read before those that they contain: what stalls between the two readings counts the next time.
    fn calm<'a>(&mut self, root: &Root, charged: &[(ClassId, &'a Path)]) -> HashSet<&'a Path> {
        let mut siblings: HashMap<&Path, usize> = HashMap::new();
        for around in charged
            .iter()
            .filter_map(|(_, directory)| directory.parent())
        {
            *siblings.entry(around).or_default() += 1;
        }
        let mut before = std::mem::take(&mut self.around);
        let mut calm = HashSet::new();
        for (around, _) in siblings.into_iter().filter(|(_, count)| *count >= SIBLINGS) {
            let Ok(Some(total)) = pressure::of_cgroup(root, around) else {
                continue;
            };
            if before.remove(around) == Some(total) {
                calm.insert(around);
            }
            self.around.insert(around.to_path_buf(), total);
        }
        calm
    }
}
