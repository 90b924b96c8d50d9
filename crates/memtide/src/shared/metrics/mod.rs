//! A run's figures for those who watch machines: over HTTP on this machine, for Prometheus, and a file
//! for node_exporter's textfile collector.
//!
//! [`families`] says what a status means, [`exposition`] writes it down, [`http`] answers and
//! [`textfile`] writes the file. The loop only leaves its status behind, about once a second:
//! neither a slow client nor a slow disk makes it wait.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod dashboard;
mod exposition;
mod families;
mod http;
#[cfg(test)]
mod prometheus;
mod textfile;

pub use super::metrics_args::MetricsArgs;
use super::outside;
use super::pagers::PagerFigures;
use super::report::Printer;
use super::spreading::Figures;
use anyhow::Context as _;
use exposition::Exposition;
pub use families::Loaded;
use http::{AtAddress, AtSocket};
use memtide_core::units::PageSize;
use memtide_loop::report::Status;
use std::path::PathBuf;
use std::sync::Arc;
use textfile::TextFile;

/// How the places are called where they were given.
#[derive(Clone, Debug)]
pub struct Names {
    /// The address.
    pub address: String,
    /// The UNIX socket.
    pub socket: String,
    /// The file.
    pub file: String,
}

impl Names {
    /// Those of the command line.
    pub fn of_options() -> Names {
        Names {
            address: "--metrics".to_owned(),
            socket: "--metrics-socket".to_owned(),
            file: "--metrics-file".to_owned(),
        }
    }
}

/// The figures of a run, as it goes.
pub struct Metrics {
    exposition: Arc<Exposition>,
    args: MetricsArgs,
    answering: Option<AtAddress>,
    at_socket: Option<AtSocket>,
    file: Option<TextFile>,
}

impl Metrics {
    /// Begins to answer and to write, for the loop of this name.
    ///
    /// # Errors
    /// The address or the socket's path is taken, or the file cannot be written.
    pub fn begin(
        args: &MetricsArgs,
        names: &Names,
        name: &'static str,
        page: PageSize,
    ) -> anyhow::Result<Metrics> {
        let mut metrics = Metrics {
            exposition: Arc::new(Exposition::new(name, page)),
            args: MetricsArgs::default(),
            answering: None,
            at_socket: None,
            file: None,
        };
        metrics.follow(args, names)?;
        Ok(metrics)
    }

    /// Answers and writes where `args` want it from now on, with the latest figures. What has its place
    /// goes on there, so that nothing old comes over something new.
    ///
    /// # Errors
    /// As of [`begin`](Self::begin). Then the old place stays.
    pub fn follow(&mut self, args: &MetricsArgs, names: &Names) -> anyhow::Result<()> {
        if self.args.address != args.address {
            let bound = self.answering.as_ref().map(AtAddress::address);
            if bound.is_some() && bound == args.address {
                // The kernel chose this port for us.
                self.answering = None;
                self.args.address = None;
            }
            let answer = |address| {
                let exposition = Arc::clone(&self.exposition);
                let bound = http::answer(address, exposition, http::PATIENCE);
                bound.with_context(|| format!("{} {address}", names.address))
            };
            self.answering = args.address.map(answer).transpose()?;
            self.args.address = args.address;
        }
        if self.args.socket != args.socket {
            let answer = |path: &PathBuf| {
                let exposition = Arc::clone(&self.exposition);
                let bound = http::answer_at(path, exposition, http::PATIENCE);
                bound.with_context(|| format!("{} {}", names.socket, outside::path(path)))
            };
            self.at_socket = args.socket.as_ref().map(answer).transpose()?;
            self.args.socket.clone_from(&args.socket);
        }
        if self.args.file != args.file {
            let begin = |path: &PathBuf| {
                let exposition = Arc::clone(&self.exposition);
                let begun = TextFile::begin(path.clone(), &names.file, exposition);
                let path = outside::path(path);
                begun.with_context(|| format!("{}: cannot write {path}", names.file))
            };
            self.file = args.file.as_ref().map(begin).transpose()?;
            self.args.file.clone_from(&args.file);
        }
        Ok(())
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

    /// Where balancing stands beside the loop: its status, or none if it rests; nothing if nobody wants it.
    pub fn tell_of_balancing(&self, balancing: Option<Option<&Status>>) {
        self.exposition.tell_of_balancing(balancing);
    }

    /// What spreading by weights has done beside the loop, or none if it rests; nothing if nobody wants it.
    pub fn tell_of_spreading(&self, spreading: Option<Option<Figures>>) {
        self.exposition.tell_of_spreading(spreading);
    }

    /// What pagers of running programs do, or none if they are not seen; nothing if nobody wants it.
    pub fn tell_of_pagers(&self, pagers: Option<Option<PagerFigures>>) {
        self.exposition.tell_of_pagers(pagers);
    }

    /// What came of the configuration of a service.
    pub fn tell_of_configuration(&self, loaded: Loaded) {
        self.exposition.tell_of_configuration(loaded);
    }

    /// Where things stood at the end, which the file keeps.
    pub fn end(self, printer: &mut Printer, status: &Status) {
        self.exposition.tell(status);
        let file = self.file;
        if let Some(trouble) = file.and_then(|file| file.end(textfile::PATIENCE)) {
            printer.notice(&trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    fn asked(metrics: &Metrics) -> String {
        let address = metrics.answering.as_ref().unwrap().address();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What a reload of `[metrics]` does: neither the figures nor what is told of the reload begin again.
    #[test]
    fn a_new_place_has_the_latest_figures_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::of_options();
        let none = MetricsArgs::default();
        let mut metrics = Metrics::begin(&none, &names, "tier", PageSize::KIB_4).unwrap();
        metrics.exposition.tell(&Status {
            processes: 77,
            ..Status::default()
        });
        metrics.tell_of_configuration(Loaded {
            taken: Duration::from_secs(5),
            successful: true,
        });
        let of = |name: &str, address: Option<&str>| MetricsArgs {
            address: address.map(|address| address.parse().unwrap()),
            file: Some(folder.path().join(name)),
            socket: None,
        };
        let is_latest = |text: &str| {
            assert!(
                text.contains("memtide_processes{loop=\"tier\"} 77"),
                "{text}"
            );
            assert!(
                text.contains("memtide_config_last_reload_successful"),
                "{text}"
            );
        };
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        metrics.follow(&of("a.prom", None), &names).unwrap();
        is_latest(&read("a.prom"));
        // The file stays with who writes it.
        std::fs::write(folder.path().join("a.prom"), "").unwrap();
        let both = of("a.prom", Some("127.0.0.1:0"));
        metrics.follow(&both, &names).unwrap();
        assert_eq!(read("a.prom"), "");
        is_latest(&asked(&metrics));
        // The address, which the kernel chose, is ours.
        let address = metrics.answering.as_ref().unwrap().address().to_string();
        metrics
            .follow(&of("b.prom", Some(&address)), &names)
            .unwrap();
        is_latest(&read("b.prom"));
        is_latest(&asked(&metrics));
        // What cannot be had leaves the old place, and is called by its name.
        let said = metrics.follow(&of("gone/c.prom", Some(&address)), &names);
        let said = said.unwrap_err().to_string();
        assert!(said.starts_with("--metrics-file: cannot write "), "{said}");
        assert_eq!(metrics.args, of("b.prom", Some(&address)));
        assert!(metrics.file.is_some());
    }
}
