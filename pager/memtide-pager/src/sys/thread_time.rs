//! Processor time and nice value of the calling thread.

use super::Errno;

/// Processor time that the calling thread has used, in microseconds.
pub(crate) fn used_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1000
}

/// Sets the nice value of the calling thread.
pub(crate) fn set_nice(nice: i32) -> Result<(), Errno> {
    // On Linux the value belongs to a thread, and 0 names the calling one.
    // SAFETY: numbers only.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(super::last()),
    }
}
