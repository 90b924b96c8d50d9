//! Where a run's figures go: words of the command line, and keys of the service's configuration.

use clap::Args;
use serde::{Deserialize, Deserializer, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where figures go.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsArgs {
    /// Answer Prometheus at this address of this machine, as in 127.0.0.1:9779
    #[arg(long = "metrics", value_name = "ADDRESS:PORT", value_parser = loopback)]
    #[serde(rename = "listen", deserialize_with = "loopback_text")]
    pub address: Option<SocketAddr>,

    /// Answer at this UNIX socket; who can open files in its folder may ask
    #[arg(long = "metrics-socket", value_name = "PATH")]
    #[serde(deserialize_with = "absolute")]
    pub socket: Option<PathBuf>,

    /// Write metrics every 10 s for node_exporter's textfile collector
    #[arg(long = "metrics-file", value_name = "FILE")]
    #[serde(deserialize_with = "absolute")]
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

fn loopback_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    loopback(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A service has no folder of its own that a file could be relative to.
fn absolute<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(from)?;
    match path.is_absolute() && path.file_name().is_some() {
        true => Ok(Some(path)),
        false => Err(serde::de::Error::custom(
            "not the path of a file that begins with /",
        )),
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
