//! A thread that touches known pages over and over.
//!
//! Accessed bits are set by the processor when it loads a translation, and a
//! translation that it still holds hides every further access. So the thread
//! has its translations flushed in each round. Sleeping alone does not do it:
//! a processor that idles and comes back to the same process keeps them.

use crate::sys::Errno;
use crate::sys::own_memory::OwnPages;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// More pages than those that x86 flushes one by one (33).
const SCRATCH_PAGES: usize = 64;
/// Well below every interval at which a source looks.
const NAP: Duration = Duration::from_millis(2);

/// How hard the thread works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A round every few milliseconds.
    Easy,
    /// Without a pause. The kernel takes pages away for hint faults only from
    /// threads that use up processor time.
    Busy,
    /// Nothing but reads, translations kept: for samplers, which would otherwise
    /// mostly see the flushing.
    ReadOnly,
}

/// The running thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Toucher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Toucher {
    /// Reads the pages `hot` of `pages`.
    ///
    /// # Errors
    ///
    /// There is no memory for the pages whose flushing flushes the others, or
    /// flushing is refused.
    pub fn start(pages: Arc<OwnPages>, hot: Vec<usize>, pace: Pace) -> Result<Toucher, Errno> {
        let mut scratch = OwnPages::map(SCRATCH_PAGES)?;
        (0..SCRATCH_PAGES).for_each(|page| scratch.write(page, 1));
        scratch.flush_translations()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                for &page in &hot {
                    std::hint::black_box(pages.read(page));
                }
                if pace == Pace::ReadOnly {
                    continue;
                }
                // It worked above, on the same pages.
                let _ = scratch.flush_translations();
                if pace == Pace::Easy {
                    std::thread::sleep(NAP);
                }
            }
        };
        Ok(Toucher {
            stop,
            thread: Some(std::thread::spawn(work)),
        })
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only reads; if it panicked there is nobody to tell.
            let _ = thread.join();
        }
    }
}
