//! A run's figures for those who watch machines: Prometheus over HTTP on this machine, and a file
//! for node_exporter's textfile collector.
//!
//! [`families`] says what a status means, [`exposition`] writes it down, [`http`] answers and
//! [`textfile`] writes the file. The loop only leaves its status behind, about once a second:
//! neither a slow client nor a slow disk makes it wait.

mod exposition;
mod families;
mod http;
mod textfile;

pub use super::metrics_args::MetricsArgs;
use super::report::Printer;
use anyhow::Context as _;
use exposition::Exposition;
pub use families::Loaded;
use http::Answering;
use memtide_core::units::PageSize;
use memtide_loop::report::Status;
use std::sync::Arc;
use textfile::TextFile;

/// The figures of a run, as it goes.
pub struct Metrics {
    exposition: Arc<Exposition>,
    answering: Option<Answering>,
    file: Option<TextFile>,
}

impl Metrics {
    /// Begins to answer and to write, for the loop of this name.
    ///
    /// # Errors
    /// The address is taken, or the file cannot be written.
    pub fn begin(
        args: &MetricsArgs,
        name: &'static str,
        page: PageSize,
    ) -> anyhow::Result<Metrics> {
        let exposition = Arc::new(Exposition::new(name, page));
        let answering = match args.address {
            None => None,
            Some(address) => {
                let bound = http::answer(address, Arc::clone(&exposition), http::PATIENCE);
                Some(bound.with_context(|| format!("--metrics {address}"))?)
            }
        };
        let file =
            match &args.file {
                None => None,
                Some(path) => {
                    let begun = TextFile::begin(path.clone(), Arc::clone(&exposition));
                    Some(begun.with_context(|| {
                        format!("--metrics-file: cannot write {}", path.display())
                    })?)
                }
            };
        Ok(Metrics {
            exposition,
            answering,
            file,
        })
    }

    /// Says where they are: of port 0 the user does not know what became.
    pub fn announce(&self, printer: &mut Printer) {
        if let Some(answering) = &self.answering {
            let address = answering.address();
            printer.notice(&format!("metrics are at http://{address}/metrics"));
        }
    }

    /// Where things stand: at the beginning, and then about once a second.
    pub fn tell(&self, printer: &mut Printer, status: &Status) {
        self.exposition.tell(status);
        if let Some(trouble) = self.file.as_ref().and_then(TextFile::trouble) {
            printer.notice(&trouble);
        }
    }

    /// What came of the configuration of a service.
    pub fn tell_of_configuration(&self, loaded: Loaded) {
        self.exposition.tell_of_configuration(loaded);
    }

    /// Where things stood at the end, which the file keeps.
    pub fn end(self, printer: &mut Printer, status: &Status) {
        self.exposition.tell(status);
        if let Some(trouble) = self.file.and_then(TextFile::end) {
            printer.notice(&trouble);
        }
    }
}
