//! What the simulation asks of the processor that it runs on.

use branches::prefetch_read_data;

/// Asks the host for the line of an entry that will be needed, as near as it can be had.
#[inline(always)]
pub(crate) fn fetch<T>(from: &[T], at: usize) {
    if let Some(item) = from.get(at) {
        prefetch_read_data::<T, 0>(item);
    }
}
