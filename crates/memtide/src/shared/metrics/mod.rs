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

use super::report::Printer;
use anyhow::Context as _;
use clap::Args;
use exposition::Exposition;
use memtide_core::units::PageSize;
use memtide_loop::report::Status;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use textfile::TextFile;

/// Where figures go.
#[derive(Args, Clone, Debug, Default)]
pub struct MetricsArgs {
    /// Answer Prometheus at this address of this machine, as in 127.0.0.1:9779
    #[arg(long = "metrics", value_name = "ADDRESS:PORT", value_parser = loopback)]
    pub address: Option<SocketAddr>,

    /// Write metrics every 10 s for node_exporter's textfile collector
    #[arg(long = "metrics-file", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// An address that only this machine reaches.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "give an address and a port, as in 127.0.0.1:9779 or [::1]:9779".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(
            "other machines could reach it; give 127.0.0.1 or [::1], and put a proxy in front"
                .to_owned(),
        ),
    }
}

/// The figures of a run, as it goes.
pub struct Metrics {
    exposition: Arc<Exposition>,
    address: Option<SocketAddr>,
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
        let address = match args.address {
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
            address,
            file,
        })
    }

    /// Says where they are: of port 0 the user does not know what became.
    pub fn announce(&self, printer: &mut Printer) {
        if let Some(address) = self.address {
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

    /// Where things stood at the end, which the file keeps.
    pub fn end(self, printer: &mut Printer, status: &Status) {
        self.exposition.tell(status);
        if let Some(trouble) = self.file.and_then(TextFile::end) {
            printer.notice(&trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_can_ask() {
        for good in ["127.0.0.1:9779", "127.3.2.1:0", "[::1]:9779"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0:9779",
            "192.0.2.7:9779",
            "[::]:9779",
            "[2001:db8::1]:9779",
        ] {
            assert!(
                loopback(bad).unwrap_err().contains("other machines"),
                "{bad}"
            );
        }
        for bad in [
            "",
            "9779",
            ":9779",
            "127.0.0.1",
            "localhost:9779",
            "127.0.0.1:99999",
        ] {
            assert!(loopback(bad).unwrap_err().contains("a port"), "{bad}");
        }
    }
}
