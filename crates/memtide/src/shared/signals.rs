//! The signals that end what is going on in order.

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The number of the signal that wants an end, or 0.
pub fn hear() -> anyhow::Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
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
