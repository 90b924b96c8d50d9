//! `memtide_pager_statistics`.

use crate::code::quietly;
use memtide_pager::Pager;

/// As in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    budget_bytes: u64,
    resident_bytes: u64,
    peak_resident_bytes: u64,
    pending_pages: u64,
    evicted_pages: u64,
    rescued_pages: u64,
    probed_pages: u64,
    zapped_pages: u64,
    flush_calls: u64,
    dropped_pages: u64,
    refilled_pages: u64,
    filled_pages: u64,
    read_ahead_pages: u64,
    budget_overruns: u64,
    urgent_batches: u64,
    stuck_pages: u64,
    failed_calls: u64,
    read_errors: u64,
    evictor_us: u64,
    rounds: u64,
    held_back: u64,
}

impl Counters {
    fn of(pager: &Pager) -> Counters {
        let now = pager.statistics();
        Counters {
            budget_bytes: now.budget_bytes,
            resident_bytes: now.resident_bytes,
            peak_resident_bytes: now.peak_resident_bytes,
            pending_pages: now.pending_pages,
            evicted_pages: now.evicted_pages,
            rescued_pages: now.rescued_pages,
            probed_pages: now.probed_pages,
            zapped_pages: now.zapped_pages,
            flush_calls: now.flush_calls,
            dropped_pages: now.dropped_pages,
            refilled_pages: now.refilled_pages,
            filled_pages: now.filled_pages,
            read_ahead_pages: now.read_ahead_pages,
            budget_overruns: now.budget_overruns,
            urgent_batches: now.urgent_batches,
            stuck_pages: now.stuck_pages,
            failed_calls: now.failed_calls,
            read_errors: now.read_errors,
            evictor_us: now.evictor_us,
            rounds: now.rounds,
            held_back: now.held_back,
        }
    }
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_pager_statistics(
    pager: *const Pager,
    counters: *mut Counters,
    struct_bytes: usize,
) {
    quietly((), || {
        // SAFETY: the caller's promise.
        let now = unsafe { pager.as_ref() }.map_or_else(Counters::default, Counters::of);
        if counters.is_null() {
            return;
        }
        // SAFETY: the caller's promise: so many bytes are writable; no more
        // than there are is copied, and the rest is zeros.
        unsafe {
            counters.cast::<u8>().write_bytes(0, struct_bytes);
            let known = struct_bytes.min(size_of::<Counters>());
            (&raw const now)
                .cast::<u8>()
                .copy_to_nonoverlapping(counters.cast(), known);
        }
    });
}
