//! The signals that end what is going on in order.

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// The number of the signal that wants an end, or 0.
pub fn hear() -> anyhow::Result<Arc<AtomicUsize>> {
    hear_of(&[SIGINT, SIGTERM, SIGHUP])
}

/// The same for a service, and whether SIGHUP came: it wants a reload and no end.
pub fn hear_and_reload() -> anyhow::Result<(Arc<AtomicUsize>, Arc<AtomicBool>)> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, reload.clone()).context("cannot handle signals")?;
    Ok((hear_of(&[SIGINT, SIGTERM])?, reload))
}

fn hear_of(numbers: &[i32]) -> anyhow::Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for &number in numbers {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)
            .context("cannot handle signals")?;
    }
    Ok(signal)
}

/// The name of a signal that is heard.
pub fn name(number: usize) -> &'static str {
    match number as i32 {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        _ => "SIGHUP",
    }
}
