//! Weights of the nodes, and the table that holds them.
//!
//! Many threads read the table, once a page at worst; a writer comes once in a
//! while. So a reader takes a snapshot of the whole and a writer replaces the
//! whole: nobody ever sees half of a change, and nobody waits. The snapshot is
//! an `ArcSwap`; a [`WeightReader`] keeps the last one it saw and needs but
//! one shared load to learn that it is still the present one.

use crate::units::NodeId;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use std::ops::Deref;
use std::sync::Arc;

/// One weight a node: 1 to 255, or 0 where none was set, which counts as 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights(Vec<u8>);

impl Weights {
    /// Every node weighs 1.
    pub const ONES: Weights = Weights(Vec::new());

    /// Weights of nodes 0, 1, 2...; the others weigh 1.
    pub fn new(by_node: &[u8]) -> Weights {
        Weights(by_node.to_vec())
    }

    /// The weight of `node`, 1 to 255.
    pub fn get(&self, node: NodeId) -> u8 {
        self.0.get(node.index()).copied().unwrap_or(0).max(1)
    }

    /// Sets the weight of `node`; 0 puts the default back.
    pub fn set(&mut self, node: NodeId, weight: u8) {
        if self.0.len() <= node.index() {
            self.0.resize(node.index() + 1, 0);
        }
        self.0[node.index()] = weight;
    }
}

/// What the table holds at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    /// The weights.
    pub weights: Weights,
    /// Whether the kernel computes them (6.16 and later).
    pub auto: bool,
}

/// The table: readers never wait, a writer replaces the whole. Clones are the
/// same table.
#[derive(Clone, Debug)]
pub struct WeightTable(Arc<ArcSwap<TableState>>);

impl WeightTable {
    /// A table in this state.
    pub fn new(state: TableState) -> WeightTable {
        WeightTable(Arc::new(ArcSwap::from_pointee(state)))
    }

    /// The present state; drop it soon. Who asks often takes a
    /// [`WeightTable::reader`].
    pub fn load(&self) -> impl Deref<Target = Arc<TableState>> + use<> {
        self.0.load()
    }

    /// A view for one thread that asks often.
    pub fn reader(&self) -> WeightReader {
        WeightReader(Cache::new(Arc::clone(&self.0)))
    }

    /// Replaces the whole.
    pub fn store(&self, state: TableState) {
        self.0.store(Arc::new(state));
    }

    /// Replaces the whole by what `change` makes of the present state; it runs
    /// again if another writer was faster.
    pub fn update(&self, change: impl Fn(&mut TableState)) {
        self.0.rcu(|present| {
            let mut next = TableState::clone(present);
            change(&mut next);
            next
        });
    }
}

/// A thread's own view of a table.
#[derive(Clone, Debug)]
pub struct WeightReader(Cache<Arc<ArcSwap<TableState>>, Arc<TableState>>);

impl WeightReader {
    /// The present state. Costs one shared load while nobody writes.
    pub fn load(&mut self) -> &Arc<TableState> {
        self.0.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_that_was_never_set_counts_as_one() {
        let mut weights = Weights::new(&[5, 0]);
        assert_eq!([0, 1, 7].map(|n| weights.get(NodeId(n))), [5, 1, 1]);
        weights.set(NodeId(7), 255);
        weights.set(NodeId(0), 0);
        assert_eq!([0, 6, 7].map(|n| weights.get(NodeId(n))), [1, 1, 255]);
    }

    #[test]
    fn readers_never_see_half_of_a_change() {
        let state = |w: u8| TableState {
            weights: Weights::new(&[w; 64]),
            auto: false,
        };
        let table = WeightTable::new(state(1));
        let seen_whole = |reader: &mut WeightReader| {
            let weights = &reader.load().weights;
            let first = weights.get(NodeId(0));
            assert!((1..64).all(|n| weights.get(NodeId(n)) == first));
            first
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut reader = table.reader();
                    let mut last = 1;
                    while last < 200 {
                        let now = seen_whole(&mut reader);
                        assert!(now >= last, "an older state came back");
                        last = now;
                    }
                });
            }
            (1..=200).for_each(|w| table.store(state(w)));
        });
    }

    #[test]
    fn writers_of_different_nodes_do_not_lose_each_others_weights() {
        let table = WeightTable::new(TableState {
            weights: Weights::ONES,
            auto: true,
        });
        std::thread::scope(|scope| {
            for node in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for w in 1..=100 {
                        table.update(|state| state.weights.set(NodeId(node), w));
                    }
                });
            }
        });
        let end = table.load();
        assert!((0..4).all(|n| end.weights.get(NodeId(n)) == 100));
    }
}
