//! What crosses between host and guest: one job in, lines of JSON out.
//!
//! The host writes a [`Job`] to `/etc/testbed/job.json` of the initial ram file system. The guest
//! answers on the virtio port named [`PORT_REPORT`], one [`Report`] a line; a shell command's own
//! output goes unchanged through [`PORT_OUTPUT`] and [`PORT_ERROR`]. A guest that ends without
//! [`Report::End`] did not end well, whatever its console says.

use serde::{Deserialize, Serialize};

/// Port of the [`Report`] lines.
pub const PORT_REPORT: &str = "testbed.report";
/// Port of a command's standard output.
pub const PORT_OUTPUT: &str = "testbed.output";
/// Port of a command's standard error.
pub const PORT_ERROR: &str = "testbed.error";
/// Where the guest finds its job.
pub const JOB_PATH: &str = "/etc/testbed/job.json";

/// What one boot shall do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Kernel modules to load, dependencies first, as paths in the image.
    pub modules: Vec<String>,
    /// Kernel settings to write once before the work: path and text.
    pub settings: Vec<(String, String)>,
    /// Tell after each test what the kernel patched in its own code.
    pub trace_patches: bool,
    /// How many random programs the test of them runs.
    pub random_programs: u32,
    /// The work.
    pub work: Work,
}

/// The work of one boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Run one command through the shell and end with its status.
    Command(String),
    /// A shell on the console; ends when it exits.
    Interactive,
    /// Run the named tests in this order.
    Tests(Vec<String>),
}

/// One line from the guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Report {
    /// Init is up; `seconds` since the kernel started.
    Ready {
        /// `uname -r`.
        release: String,
        /// Seconds of guest uptime.
        seconds: f64,
    },
    /// A test starts.
    Started {
        /// The test's name.
        test: String,
    },
    /// A line of progress for people.
    Note {
        /// The text.
        text: String,
    },
    /// Figures of a test: one row of a table.
    Row {
        /// The table's name.
        table: String,
        /// Column name and printed value, in order.
        cells: Vec<(String, String)>,
    },
    /// A promise of time was not kept, and its test is tried again.
    Late {
        /// The test's name.
        test: String,
        /// Which try it was and what was late, in one line.
        told: String,
    },
    /// A test ended.
    Verdict {
        /// The test's name.
        test: String,
        /// How.
        verdict: Verdict,
        /// Seconds it took.
        seconds: f64,
    },
    /// All work is done.
    End {
        /// The exit status of the command; 0 for tests.
        status: i32,
    },
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "snake_case")]
pub enum Verdict {
    /// All that it promises holds.
    Passed,
    /// Something does not; the reason in one line.
    Failed(String),
    /// It cannot run here; the reason in one line.
    Skipped(String),
}
