//! How far the runs of a scenario are, on a terminal.

use crate::shared::outside::outside;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memtide_sim::scenario::Progress;
use std::io::IsTerminal;
use std::sync::Mutex;

/// Steps of a run.
const STEPS: f64 = 1000.0;

/// A bar on standard error, if that is a terminal.
pub struct Bar {
    bar: ProgressBar,
    /// What each run has done, in steps.
    done: Mutex<Vec<u64>>,
}

impl Bar {
    /// A bar for a scenario with so many runs.
    pub fn new(scenario: &str, runs: usize) -> Bar {
        let bar = ProgressBar::new(runs as u64 * STEPS as u64);
        let style =
            ProgressStyle::with_template("{msg}  {bar:40} {percent} %  {elapsed}, {eta} left");
        bar.set_style(style.expect("a valid template"));
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_message(outside(scenario).into_owned());
        Bar {
            bar,
            done: Mutex::new(vec![0; runs]),
        }
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn at(&self, run: usize, share: f64) {
        let mut done = match self.done.lock() {
            Ok(done) => done,
            // Whoever panicked there left whole numbers behind.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(steps) = done.get_mut(run) {
            *steps = (share.clamp(0.0, 1.0) * STEPS) as u64;
        }
        self.bar.set_position(done.iter().sum());
    }
}
