//! `memtide_replicas_*` and `memtide_local_*`: copies on the node where a file is read.

use super::{give, open, take, text};
use crate::code::{Failure, call, quietly};
use memtide_pager::NodeId;
use memtide_pager::local::{LocalRegion, Replicas};
use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_replicas_start(
    budget_bytes: u64,
    replicas: *mut *mut Replicas,
) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(Replicas::start(budget_bytes, None)?, replicas, "replicas") })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_replicas_stop(replicas: *mut Replicas) {
    quietly((), || {
        // SAFETY: the caller's promise.
        if let Some(replicas) = unsafe { take(replicas) } {
            replicas.end();
        }
    });
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_replicas_open(
    replicas: *const Replicas,
    path: *const c_char,
    node: c_int,
    region: *mut *mut LocalRegion,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (replicas, path) = unsafe { (open(replicas, "replicas")?, text(path, "path")?) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let node = match node {
            -1 => None,
            node => Some(u16::try_from(node).map(NodeId).map_err(|_| {
                Failure::argument(format!("node {node}: give a node's number, or -1"))
            })?),
        };
        // SAFETY: the caller's promise.
        unsafe { give(replicas.open(path, node)?, region, "region") }
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_local_data(region: *const LocalRegion) -> *const c_void {
    // SAFETY: the caller's promise.
    quietly(null(), || {
        unsafe { region.as_ref() }.map_or(null(), |region| region.address() as *const c_void)
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_local_bytes(region: *const LocalRegion) -> usize {
    // SAFETY: the caller's promise.
    quietly(0, || unsafe { region.as_ref() }.map_or(0, LocalRegion::len))
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_local_copied(region: *const LocalRegion) -> u64 {
    // SAFETY: the caller's promise.
    quietly(0, || {
        unsafe { region.as_ref() }.map_or(0, LocalRegion::local_bytes)
    })
}

/// See the header.
///
/// # Safety
///
/// As the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtide_local_close(region: *mut LocalRegion) {
    // SAFETY: the caller's promise.
    quietly((), || drop(unsafe { take(region) }));
}
