//! What classes lose by one choice of pages that leave fast memory.

use super::budgets::Budgets;
use crate::world::ClassId;
use std::collections::BTreeMap;

/// How much one choice has taken from each class, and whether more may go.
#[derive(Debug)]
pub(super) struct Losses<'a> {
    budgets: &'a Budgets,
    /// The class for which pages leave: only what others within it keep is kept.
    around: Option<ClassId>,
    /// What each class loses, with those within it.
    lost: BTreeMap<ClassId, u64>,
}

impl<'a> Losses<'a> {
    /// Nothing was taken yet.
    pub fn new(budgets: &'a Budgets, around: Option<ClassId>) -> Losses<'a> {
        Losses {
            budgets,
            around,
            lost: BTreeMap::new(),
        }
    }

    /// Whether a folio of `class` with so many pages may go, beside what goes already. If so
    /// it counts.
    pub fn spares(&mut self, class: Option<ClassId>, pages: u64) -> bool {
        if self.budgets.lets_all_go() {
            return true;
        }
        if !self.budgets.tiered(class).demote {
            return false;
        }
        let budgets = self.budgets;
        let around = self.around;
        let inner = || {
            budgets
                .path(class)
                .take_while(move |class| Some(*class) != around)
        };
        let spares = inner().all(|class| {
            let lost = self.lost.get(&class).copied().unwrap_or(0);
            let spare = budgets.spare(class);
            spare.is_none_or(|spare| lost + pages <= spare)
        });
        if spares {
            for class in inner() {
                *self.lost.entry(class).or_default() += pages;
            }
        }
        spares
    }
}
