//! In which order a program says that it reads.

/// As `madvise(2)` knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOrder {
    /// It does not say: the pager decides what is read around a fault.
    #[default]
    Normal,
    /// Here and there: nothing is read but what is touched.
    Random,
    /// One page after the other: the kernel reads ahead, for as long as memory is
    /// within the budget.
    Sequential,
}
