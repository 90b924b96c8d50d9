//! How far the runs of a scenario are, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;

/// Steps of a configuration.
const STEPS: f64 = 1000.0;

/// A bar on standard error, if that is a terminal.
pub struct Bar {
    bar: ProgressBar,
    /// What each configuration has done, in steps.
    done: Mutex<Vec<u64>>,
}

impl Bar {
    /// A bar for a scenario with so many configurations.
    pub fn new(scenario: &str, configurations: usize) -> Bar {
        let bar = ProgressBar::new(configurations as u64 * STEPS as u64);
        let style =
            ProgressStyle::with_template("{msg}  {bar:40} {percent} %  {elapsed}, {eta} left");
        bar.set_style(style.expect("a valid template"));
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_message(scenario.to_owned());
        Bar {
            bar,
            done: Mutex::new(vec![0; configurations]),
        }
    }

    /// A configuration has done this share of its run.
    pub fn at(&self, configuration: usize, share: f64) {
        let mut done = match self.done.lock() {
            Ok(done) => done,
            // Whoever panicked there left whole numbers behind.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(steps) = done.get_mut(configuration) {
            *steps = (share.clamp(0.0, 1.0) * STEPS) as u64;
        }
        self.bar.set_position(done.iter().sum());
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
