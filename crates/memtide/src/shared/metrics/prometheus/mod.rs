//! A real Prometheus for tests: its programs, and a server over figures of a given time.
//!
//! The programs are looked for in `PATH`, and where `.ci/run` puts those of Debian's package
//! (`target/prometheus`). Where they are missing that is said, and the test is one that was skipped;
//! `cargo xtask test` counts that.
//!
//! Nothing is scraped. `promtool` makes blocks of figures with times of their own, so that no clock of this
//! machine is in what Prometheus answers.

mod server;

pub use server::{Line, Server};

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Prometheus' two programs.
#[derive(Clone, Debug)]
pub struct Programs {
    prometheus: PathBuf,
    promtool: PathBuf,
}

impl Programs {
    /// Where they are; where they are not that is said.
    pub fn find() -> Option<Programs> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let unpacked = Path::new(ROOT).join("target/prometheus/usr/bin");
        let folders = std::env::split_paths(&path).chain([unpacked]);
        let find = |folder: PathBuf| {
            let programs = Programs {
                prometheus: folder.join("prometheus"),
                promtool: folder.join("promtool"),
            };
            (programs.prometheus.is_file() && programs.promtool.is_file()).then_some(programs)
        };
        let found = folders.into_iter().find_map(find);
        if found.is_none() {
            static SAID: Once = Once::new();
            // The harness keeps to itself what a macro prints in a test that passes.
            SAID.call_once(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: prometheus and promtool are not installed"
                );
            });
        }
        found
    }

    /// Runs `promtool` in the repository, and gives it `input`.
    ///
    /// # Panics
    /// It fails. What it said is told.
    pub fn promtool(&self, words: &[&str], input: &str) -> String {
        let mut child = Command::new(&self.promtool)
            .args(words)
            .current_dir(ROOT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool");
        let mut to = child.stdin.take().expect("a pipe");
        // Who reads nothing may end before all is written; its status tells.
        let _ = to.write_all(input.as_bytes());
        drop(to);
        let output = child.wait_with_output().expect("promtool");
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "promtool {words:?}: {said}");
        said
    }
}
