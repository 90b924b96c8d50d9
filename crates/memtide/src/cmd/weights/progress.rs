//! How far a measurement is, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use memtide_core::units::NodeId;
use memtide_linux::measure::Progress;
use std::io::IsTerminal;
use std::time::Duration;

/// A bar on standard error, if that is a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of so many turns, which take about so long together.
    pub fn new(turns: usize, time: Duration) -> Bar {
        let bar = ProgressBar::new(turns as u64);
        let about = time.as_secs();
        let template = format!("{{bar:30}} {{elapsed}} of about {about}s  {{msg}}");
        bar.set_style(ProgressStyle::with_template(&template).expect("a valid template"));
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_message("taking memory");
        Bar(bar)
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn turn(&mut self, node: NodeId, what: &str) {
        self.0.set_message(format!("node {node}: {what}"));
        self.0.inc(1);
    }
}
