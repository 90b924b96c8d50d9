//! `memtide_pager_options`.

use super::text;
use crate::code::Failure;
use memtide_pager::{Builder, MemoryPolicy, Mode, Pager, Policy, ReadAhead, Unmapping};
use std::ffi::c_char;

/// As in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    struct_bytes: usize,
    budget_bytes: u64,
    granule_bytes: u64,
    batch: u32,
    mode: u32,
    policy: u32,
    unmapping: u32,
    memory_policy: *const c_char,
    nice: i32,
    no_read_ahead: u32,
}

/// What they ask for.
///
/// # Safety
///
/// Null, or readable for as many bytes as its first member says; its texts are
/// texts.
pub unsafe fn builder(options: *const Options) -> Result<Builder, Failure> {
    // SAFETY: the caller's promise; the first member is there in every version.
    let size = match options.is_null() {
        true => return Err(Failure::argument("options: null")),
        false => unsafe { (&raw const (*options).struct_bytes).read() },
    };
    if size != size_of::<Options>() {
        return Err(Failure::argument(format!(
            "options: struct_bytes is {size}, here it is {}; begin with MEMTIDE_PAGER_OPTIONS and \
             build with this version's header",
            size_of::<Options>()
        )));
    }
    // SAFETY: the caller's promise, and the size is right.
    let options = unsafe { options.read() };
    let wrong =
        |what: &str, value: u32| Failure::argument(format!("{what} {value}: see the header"));
    let mut builder = Pager::builder()
        .budget(options.budget_bytes)
        .mode(match options.mode {
            0 => Mode::File,
            1 => Mode::Strict,
            other => return Err(wrong("mode", other)),
        })
        .policy(match options.policy {
            0 => Policy::ScanResistant,
            1 => Policy::Fifo,
            other => return Err(wrong("policy", other)),
        })
        .unmapping(match options.unmapping {
            0 => Unmapping::Lazy,
            1 => Unmapping::EagerPages,
            2 => Unmapping::EagerGranules,
            other => return Err(wrong("unmapping", other)),
        });
    if options.nice != 0 {
        builder = builder.nice(options.nice);
    }
    if options.granule_bytes > 0 {
        builder = builder.granule(usize::try_from(options.granule_bytes).unwrap_or(usize::MAX));
    }
    if options.batch > 0 {
        builder = builder.batch(options.batch as usize);
    }
    if options.no_read_ahead > 0 {
        builder = builder.read_ahead(ReadAhead {
            bytes: 0,
            threads: 0,
        });
    }
    if !options.memory_policy.is_null() {
        // SAFETY: the caller's promise.
        let words = unsafe { text(options.memory_policy, "memory_policy") }?;
        let policy: Result<MemoryPolicy, _> = words.to_string_lossy().parse();
        builder = builder.memory_policy(policy.map_err(|why| Failure::argument(why.to_string()))?);
    }
    Ok(builder)
}
