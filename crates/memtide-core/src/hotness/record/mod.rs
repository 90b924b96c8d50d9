//! One page's record: how it is packed and what an access does to it.
//!
//! Both layouts are fields in one word, so one set of functions serves them,
//! told apart by constants:
//!
//! | | node | frequency | time | ready |
//! |---|---|---|---|---|
//! | compact, 8 bits | - | 0-1 | 2-6, units of 128 ms | 7 |
//! | precise, 32 bits | 0-9 | 10-12 | 13-26, units of 1 ms | 31 |
//!
//! The time field holds the low bits of the clock, so an age is a difference
//! modulo its range: 4096 ms compact, 16384 ms precise. A record older than its
//! range looks young again; that costs a page at most one access too many, since
//! its frequency is re-tested when it is taken.
//!
//! An access makes this of a record:
//!
//! - last one longer ago than the window: the frequency starts again at 1;
//! - otherwise it grows by one and stays at the largest that fits;
//! - the time becomes now;
//! - at the threshold the ready bit is set. Below it, precise drops an old ready
//!   bit and compact keeps it: both as the kernel does. Taking re-tests anyway.
//!
//! A word of zero is a page that nobody reported. No recorded page has it,
//! because its frequency is at least 1.
//!
//! Precise keeps "no node" as bit 27 unset; the kernel leaves 27-30 spare.

use super::config::Config;
use crate::sync::{AtomicU8, AtomicU32, Ordering};
use crate::units::{Millis, NodeId};
use serde::Serialize;

/// What a record says at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hotness {
    /// Accesses counted, none further than a window from the next; at least 1.
    pub frequency: u8,
    /// Milliseconds since the last access; compact rounds to 128.
    pub age_ms: u32,
    /// Who accessed last, if the layout and the source keep that.
    pub node: Option<NodeId>,
    /// Whether a promotion is asked for.
    pub ready: bool,
}

/// An atomic word of a layout's width, seen as 32 bits.
pub(crate) trait Cell: Send + Sync + std::fmt::Debug {
    fn new(word: u32) -> Self;
    fn load(&self) -> u32;
    fn exchange(&self, old: u32, new: u32) -> Result<u32, u32>;
}

// The record orders nothing but itself; the ready marks publish it, and those
// are acquire and release read-modify-writes (see `drain`). Acquire and release
// here let a taker's later record of the same page build on what it saw.
macro_rules! cell {
    ($atomic:ty, $int:ty) => {
        impl Cell for $atomic {
            fn new(word: u32) -> Self {
                <$atomic>::new(word as $int)
            }
            #[inline]
            fn load(&self) -> u32 {
                u32::from(<$atomic>::load(self, Ordering::Relaxed))
            }
            #[inline]
            fn exchange(&self, old: u32, new: u32) -> Result<u32, u32> {
                self.compare_exchange_weak(
                    old as $int,
                    new as $int,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .map(u32::from)
                .map_err(u32::from)
            }
        }
    };
}
cell!(AtomicU8, u8);
cell!(AtomicU32, u32);

/// A layout's fields.
pub(crate) trait Format {
    type Cell: Cell;
    /// Pages that share one ready mark: a cache line of records or two.
    const GROUP_PAGES: usize;
    /// Pages whose records fill 64 bytes, a cache line.
    const LINE_PAGES: usize;
    const FREQUENCY_SHIFT: u32;
    const FREQUENCY_BITS: u32;
    const TIME_SHIFT: u32;
    const TIME_BITS: u32;
    /// The clock's bits below the time field.
    const BUCKET_SHIFT: u32;
    const READY: u32;
    /// The bit that says that the node field (bits 0-9) is set; zero without one.
    const NODE_KNOWN: u32;
    const KEEPS_READY: bool;

    const MAX_FREQUENCY: u32 = (1 << Self::FREQUENCY_BITS) - 1;
    const TIME_MASK: u32 = (1 << Self::TIME_BITS) - 1;
}

/// One byte a page.
#[derive(Debug)]
pub(crate) struct Compact;

impl Format for Compact {
    type Cell = AtomicU8;
    const GROUP_PAGES: usize = if cfg!(loom) { 4 } else { 64 };
    const LINE_PAGES: usize = 64;
    const FREQUENCY_SHIFT: u32 = 0;
    const FREQUENCY_BITS: u32 = 2;
    const TIME_SHIFT: u32 = 2;
    const TIME_BITS: u32 = 5;
    const BUCKET_SHIFT: u32 = 7;
    const READY: u32 = 1 << 7;
    const NODE_KNOWN: u32 = 0;
    const KEEPS_READY: bool = true;
}

/// Four bytes a page.
#[derive(Debug)]
pub(crate) struct Precise;

impl Format for Precise {
    type Cell = AtomicU32;
    const GROUP_PAGES: usize = if cfg!(loom) { 4 } else { 32 };
    const LINE_PAGES: usize = 16;
    const FREQUENCY_SHIFT: u32 = 10;
    const FREQUENCY_BITS: u32 = 3;
    const TIME_SHIFT: u32 = 13;
    const TIME_BITS: u32 = 14;
    const BUCKET_SHIFT: u32 = 0;
    const READY: u32 = 1 << 31;
    const NODE_KNOWN: u32 = 1 << 27;
    const KEEPS_READY: bool = false;
}

/// The settings that an update needs, in plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) threshold: u32,
    pub(crate) window_ms: u32,
    /// A whole number of the layout's time units.
    pub(crate) reorder_ms: u32,
}

impl Rules {
    /// The rules by which a store of this layout works.
    pub(crate) fn of<F: Format>(config: &Config) -> Rules {
        Rules {
            threshold: u32::from(config.threshold()),
            window_ms: config.window_ms(),
            // One tick late can be one unit back.
            reorder_ms: config.reorder_ms().next_multiple_of(1 << F::BUCKET_SHIFT),
        }
    }
}

#[inline]
pub(crate) fn frequency<F: Format>(word: u32) -> u32 {
    word >> F::FREQUENCY_SHIFT & F::MAX_FREQUENCY
}

#[inline]
pub(crate) fn is_ready<F: Format>(word: u32) -> bool {
    word & F::READY != 0
}

/// Milliseconds since the record's time, modulo the time range.
#[inline]
pub(crate) fn age_ms<F: Format>(word: u32, now: Millis) -> u32 {
    let now = (now.0 >> F::BUCKET_SHIFT) as u32;
    (now.wrapping_sub(word >> F::TIME_SHIFT) & F::TIME_MASK) << F::BUCKET_SHIFT
}

/// How old the record is, and whether its time is really ahead of `now`
/// because this report came late.
#[inline]
fn age_or_late<F: Format>(word: u32, now: Millis, rules: &Rules) -> (u32, bool) {
    let age = age_ms::<F>(word, now);
    let range = (F::TIME_MASK + 1) << F::BUCKET_SHIFT;
    if age + rules.reorder_ms >= range && rules.reorder_ms > 0 {
        (0, true)
    } else {
        (age, false)
    }
}

#[inline]
fn packed<F: Format>(frequency: u32, time: u32, node: Option<NodeId>, ready: bool) -> u32 {
    let node = match node {
        Some(node) if F::NODE_KNOWN != 0 && node.0 < NodeId::LIMIT => {
            F::NODE_KNOWN | u32::from(node.0)
        }
        _ => 0,
    };
    let ready = if ready { F::READY } else { 0 };
    node | frequency << F::FREQUENCY_SHIFT | (time & F::TIME_MASK) << F::TIME_SHIFT | ready
}

/// The record after an access.
#[inline]
pub(crate) fn accessed<F: Format>(
    word: u32,
    node: Option<NodeId>,
    now: Millis,
    rules: &Rules,
) -> u32 {
    let (age, late) = age_or_late::<F>(word, now, rules);
    let late = late && word != 0;
    let count = if age > rules.window_ms {
        1
    } else {
        (frequency::<F>(word) + 1).min(F::MAX_FREQUENCY)
    };
    let time = if late {
        word >> F::TIME_SHIFT
    } else {
        (now.0 >> F::BUCKET_SHIFT) as u32
    };
    let ready = count >= rules.threshold || (F::KEEPS_READY && is_ready::<F>(word));
    packed::<F>(count, time, node, ready)
}

/// Whether the page is hot at `now`, whatever its ready bit says.
#[inline]
pub(crate) fn is_hot<F: Format>(word: u32, now: Millis, rules: &Rules) -> bool {
    frequency::<F>(word) >= rules.threshold
        && age_or_late::<F>(word, now, rules).0 <= rules.window_ms
}

/// What a ready record that is no longer hot becomes: nothing if it is beyond
/// the window, else itself without its ready bit, so that its count goes on.
#[inline]
pub(crate) fn cooled<F: Format>(word: u32, now: Millis, rules: &Rules) -> u32 {
    if age_or_late::<F>(word, now, rules).0 > rules.window_ms {
        0
    } else {
        word & !F::READY
    }
}

/// The record after a taken one is put back onto what came in meanwhile.
#[inline]
pub(crate) fn put_back<F: Format>(current: u32, taken: u32) -> u32 {
    if current == 0 {
        return taken | F::READY;
    }
    let count = (frequency::<F>(current) + frequency::<F>(taken)).min(F::MAX_FREQUENCY);
    let cleared = current & !(F::MAX_FREQUENCY << F::FREQUENCY_SHIFT);
    cleared | count << F::FREQUENCY_SHIFT | F::READY
}

/// The record in plain terms, `None` for a page that nobody reported.
pub(crate) fn decoded<F: Format>(word: u32, now: Millis, rules: &Rules) -> Option<Hotness> {
    (word != 0).then(|| Hotness {
        frequency: frequency::<F>(word) as u8,
        age_ms: age_or_late::<F>(word, now, rules).0,
        node: (word & F::NODE_KNOWN != 0).then_some(NodeId((word & 0x3ff) as u16)),
        ready: is_ready::<F>(word),
    })
}

/// The word of a hotness seen at `now`.
pub(crate) fn encoded<F: Format>(hotness: &Hotness, now: Millis) -> u32 {
    let then =
        (now.0 >> F::BUCKET_SHIFT).wrapping_sub(u64::from(hotness.age_ms >> F::BUCKET_SHIFT));
    packed::<F>(
        u32::from(hotness.frequency).min(F::MAX_FREQUENCY),
        then as u32,
        hotness.node,
        hotness.ready,
    )
}

#[cfg(all(test, not(loom)))]
mod tests;
