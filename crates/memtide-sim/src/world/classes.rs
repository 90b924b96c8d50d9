//! Which class each simulated process is in, and what each class uses: as the live
//! world says it, by cgroups.
//!
//! Programs tell their cgroups, and [`Rules`] say which class has them. What a class
//! uses are the pages that are charged to its cgroups. A walk of the tree of cgroups
//! is not needed: only those of programs exist.

use super::Machine;
use memtide_core::topology::Topology;
use memtide_loop::options::{Classes, Fitting, Looks, Rules};
use memtide_loop::world::{ClassId, ClassUse, Nesting, ProcessSeen};
use std::collections::BTreeMap;

/// Where cgroups would be mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The classes of a world; none by default.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    rules: Rules,
}

impl Membership {
    /// By what these classes ask for. Simulated processes have no users.
    pub fn new(classes: &Classes) -> Membership {
        Membership {
            rules: Rules::new(classes, MOUNT, |_| None),
        }
    }

    /// How many classes there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// The class that has a process of this cgroup.
    pub fn of_cgroup(&self, cgroup: &str) -> Option<ClassId> {
        self.rules.class_of(&self.fitting(cgroup), Looks::default())
    }

    /// Says of each process in which class it is.
    pub fn assign<M: Machine>(&self, machine: &M, seen: &mut [ProcessSeen]) {
        if self.rules.is_empty() {
            return;
        }
        for seen in seen {
            seen.class = self.of_cgroup(machine.cgroup(seen.process).unwrap_or(""));
        }
    }

    /// What each class uses on the top tier of `topology`, and which contains it.
    pub fn used<M: Machine>(&self, machine: &M, topology: &Topology, used: &mut Vec<ClassUse>) {
        used.clear();
        let ids = || (0..self.rules.len() as u32).map(ClassId);
        used.extend(ids().map(|class| ClassUse {
            pages: self.rules.is_charged(class).then_some(0),
            within: None,
        }));
        let mut nesting = Nesting::default();
        let mut known: BTreeMap<String, Option<ClassId>> = BTreeMap::new();
        machine.charged(&mut |cgroup, node, pages| {
            let class = match known.get(cgroup) {
                Some(class) => *class,
                None => {
                    let around = self.around(cgroup);
                    for (n, class) in around.iter().enumerate() {
                        nesting.note(*class, around[n + 1..].iter().copied());
                    }
                    let class = around.first().copied();
                    known.insert(cgroup.to_owned(), class);
                    class
                }
            };
            let of = class.and_then(|class| used.get_mut(class.0 as usize));
            if topology.is_top_tier(node)
                && let Some(sum) = of.and_then(|of| of.pages.as_mut())
            {
                *sum += pages;
            }
        });
        for (of, class) in used.iter_mut().zip(ids()) {
            of.within = nesting.within(class);
        }
    }

    fn fitting(&self, cgroup: &str) -> Fitting {
        self.along(cgroup).pop().unwrap_or_default()
    }

    /// What fits each cgroup from the root to this one.
    fn along(&self, cgroup: &str) -> Vec<Fitting> {
        let names = cgroup.split('/').filter(|name| !name.is_empty());
        let names: Vec<&[u8]> = names.map(str::as_bytes).collect();
        let fitting = |above: &mut Fitting, n| {
            *above = self.rules.fitting(above, &names[..n], None);
            Some(above.clone())
        };
        (0..=names.len()).scan(Fitting::new(), fitting).collect()
    }

    /// The class to which pages of this cgroup are charged, and those around it, the nearest first.
    pub fn around(&self, cgroup: &str) -> Vec<ClassId> {
        let along = self.along(cgroup);
        let all = along.iter().rev();
        let mut around: Vec<ClassId> = all
            .filter_map(|fitting| self.rules.class_of_cgroup(fitting))
            .collect();
        around.dedup();
        around
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_class_has_a_process() {
        let classes: Classes = toml::from_str(
            "[all]\ncgroup = '/tenants'\n[redis]\ncgroup = '/tenants/redis'\n\
             [unit]\nunit = 'db.service'",
        )
        .unwrap();
        let membership = Membership::new(&classes);
        let of = |cgroup| membership.of_cgroup(cgroup).map(|class| class.0);
        assert_eq!(of("/tenants/x"), Some(0));
        assert_eq!(of("/tenants/redis"), Some(1));
        assert_eq!(of("/tenants/redis/worker"), Some(1));
        assert_eq!(of("/system.slice/db.service"), Some(2));
        assert_eq!((of("/db"), of("")), (None, None));
    }
}
