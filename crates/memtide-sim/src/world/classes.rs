//! Which class each simulated process is in, and what each class uses: as the live
//! world says it, by cgroups.
//!
//! Programs tell their cgroups, and [`Rules`] say which class has them. What a class
//! uses are the pages that are charged to its cgroups. A walk of the tree of cgroups
//! is not needed: only those of programs exist.

use super::Machine;
use memtide_core::topology::Topology;
use memtide_loop::options::{Classes, Fitting, Looks, Rules};
use memtide_loop::world::{ClassId, ProcessSeen};

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

    /// The pages that each class uses on the top tier of `topology`.
    pub fn used<M: Machine>(&self, machine: &M, topology: &Topology, used: &mut Vec<Option<u64>>) {
        used.clear();
        let ids = (0..self.rules.len() as u32).map(ClassId);
        used.extend(ids.map(|class| self.rules.is_charged(class).then_some(0)));
        machine.charged(&mut |cgroup, node, pages| {
            if !topology.is_top_tier(node) {
                return;
            }
            let class = self.rules.class_of_cgroup(&self.fitting(cgroup));
            if let Some(Some(sum)) = class.and_then(|class| used.get_mut(class.0 as usize)) {
                *sum += pages;
            }
        });
    }

    fn fitting(&self, cgroup: &str) -> Fitting {
        let names = cgroup.split('/').filter(|name| !name.is_empty());
        let names: Vec<&[u8]> = names.map(str::as_bytes).collect();
        let fitting = |above, n| self.rules.fitting(&above, &names[..n], None);
        (0..=names.len()).fold(Fitting::new(), fitting)
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
