//! What classes use of fast memory, and which of them lie within others.

use super::ClassId;
use serde::{Deserialize, Serialize};

/// What a class uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassUse {
    /// Pages of fast memory, without those of the classes that lie within it; `None` if
    /// that is not known.
    pub pages: Option<u64>,
    /// The nearest class that contains it.
    pub within: Option<ClassId>,
}

/// Finds out which classes lie within others, from the cgroups of each.
///
/// A class lies within another one if each of its cgroups is below a cgroup of that one.
#[derive(Clone, Debug, Default)]
pub struct Nesting {
    /// The classes above all cgroups of each class that were told of, the nearest first;
    /// `None` before the first.
    above: Vec<Option<Vec<ClassId>>>,
}

impl Nesting {
    /// Notes a cgroup of `class`; `above` are the classes of the cgroups above it, from the
    /// nearest to the root's.
    pub fn note(&mut self, class: ClassId, above: impl Iterator<Item = ClassId>) {
        let at = class.0 as usize;
        if at >= self.above.len() {
            self.above.resize(at + 1, None);
        }
        let mut these: Vec<ClassId> = Vec::new();
        for one in above.filter(|one| *one != class) {
            if !these.contains(&one) {
                these.push(one);
            }
        }
        match &mut self.above[at] {
            Some(known) => known.retain(|one| these.contains(one)),
            unknown => *unknown = Some(these),
        }
    }

    /// The nearest class that contains `class`.
    pub fn within(&self, class: ClassId) -> Option<ClassId> {
        let above = self.above.get(class.0 as usize)?.as_ref()?;
        above.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nesting(cgroups: &[(u32, &[u32])]) -> Nesting {
        let mut nesting = Nesting::default();
        for (class, above) in cgroups {
            nesting.note(ClassId(*class), above.iter().copied().map(ClassId));
        }
        nesting
    }

    fn within(nesting: &Nesting, class: u32) -> Option<u32> {
        nesting.within(ClassId(class)).map(|class| class.0)
    }

    #[test]
    fn the_nearest_class_above_all_cgroups_contains_a_class() {
        let all = nesting(&[(0, &[]), (1, &[0]), (2, &[1, 0]), (2, &[0])]);
        assert_eq!(
            [0, 1, 2, 3].map(|n| within(&all, n)),
            [None, Some(0), Some(0), None]
        );
        // One of its cgroups is outside.
        assert_eq!(within(&nesting(&[(1, &[0]), (1, &[])]), 1), None);
        assert_eq!(within(&nesting(&[(1, &[]), (1, &[0])]), 1), None);
    }

    #[test]
    fn a_class_does_not_contain_itself() {
        let all = nesting(&[(0, &[]), (1, &[0]), (0, &[1, 0])]);
        assert_eq!((within(&all, 0), within(&all, 1)), (None, Some(0)));
    }
}
