//! The options of `memtide pager`.

use crate::shared::words::{duration, pid, size};
use clap::{Args, Subcommand, ValueEnum};
use memtide_core::numbers;
use memtide_pager::MemoryPolicy;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How long a way may be measured.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3600);

/// Read a file in bounded memory, and compare with plain mmap under the same limit.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PagerArgs {
    #[command(subcommand)]
    pub command: Option<PagerCommand>,

    #[command(flatten)]
    pub trial: TrialArgs,
}

#[derive(Subcommand, Debug)]
pub enum PagerCommand {
    /// Run a program whose read-only file mappings stay within a budget
    Run(RunArgs),
    /// Show what the pagers of running programs do
    Status(StatusArgs),
    // One way of reading, in a process of its own.
    #[command(hide = true)]
    Worker(WorkerArgs),
    // Goes into a cgroup and becomes the program.
    #[command(hide = true)]
    Enter(EnterArgs),
}

#[derive(Args, Debug)]
pub struct TrialArgs {
    /// The file to read; one that --make wrote is checked byte by byte
    #[arg(value_name = "FILE", required_unless_present = "make")]
    pub file: Option<PathBuf>,

    /// Memory that the file's data may have
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true, required_unless_present = "make")]
    pub budget: Option<u64>,

    /// Threads that read [default: one for each CPU that may be used]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Which pages are read
    #[arg(long, value_enum, default_value_t = Pattern::Uniform)]
    pub pattern: Pattern,

    /// How the pager holds memory
    #[arg(long, value_enum, default_value_t = Hold::File)]
    pub mode: Hold,

    /// Where the data's memory comes from, such as weighted-interleave:0,2; plain mmap's too
    #[arg(long, value_name = "POLICY")]
    pub memory_policy: Option<MemoryPolicy>,

    /// How long each way is measured, after a warm-up of a quarter of that
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = measured, allow_negative_numbers = true)]
    pub duration: Duration,

    /// Write a file whose every byte is known, and do no more
    #[arg(long, value_name = "FILE", requires = "size", conflicts_with_all = ["file", "budget", "threads"])]
    pub make: Option<PathBuf>,

    /// Its size
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true, requires = "make")]
    pub size: Option<u64>,
}

/// Which pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Any page, each as likely as the others
    Uniform,
    /// 98 of 100 reads within a part half as large as the budget, the others anywhere
    Hot,
    /// Page after page to the end, then from the start; each thread begins elsewhere
    Sweep,
}

/// How the pager holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// A mapping of the file; the kernel reads, and the budget may be overrun for moments
    File,
    /// Memory of its own, filled fault by fault; the budget holds exactly
    Strict,
}

/// How the file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Plain mmap; the kernel reclaims what exceeds the limit of a cgroup
    Kernel,
    /// The pager, each page unmapped by itself as soon as it is evicted
    Eager,
    /// The pager as it is
    Lazy,
}

#[derive(Args, Debug)]
pub struct WorkerArgs {
    pub file: PathBuf,
    #[arg(long, value_enum)]
    pub way: Way,
    #[arg(long)]
    pub budget: u64,
    #[arg(long)]
    pub threads: usize,
    #[arg(long, value_enum)]
    pub pattern: Pattern,
    #[arg(long, value_enum)]
    pub mode: Hold,
    #[arg(long)]
    pub memory_policy: Option<MemoryPolicy>,
    #[arg(long, value_parser = duration)]
    pub duration: Duration,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Files that are kept, as a pattern of names such as '*.gguf', or of whole paths; may be given several times
    #[arg(long, value_name = "PATTERN", required = true)]
    pub files: Vec<String>,

    /// Memory that all their data together may have; with --local, the copies on each node
    #[arg(long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    pub budget: u64,

    /// Read copies on the node where the program runs, made by need and shared by all programs of one user
    #[arg(long, conflicts_with_all = ["eager", "plain"])]
    pub local: bool,

    /// Say at the end what was done: on standard error, or as a line of JSON at the end of a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "stderr")]
    pub stats: Option<PathBuf>,

    /// Unmap every page by itself as soon as it is evicted, for comparison
    #[arg(long)]
    pub eager: bool,

    /// Have the kernel keep the budget, by a memory cgroup, and no pager, for comparison
    #[arg(long, conflicts_with_all = ["eager", "stats"])]
    pub plain: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Show these processes only [default: all that have a pager]
    #[arg(value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pub pids: Vec<u32>,
}

#[derive(Args, Debug)]
pub struct EnterArgs {
    pub procs: PathBuf,
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// The word for `value` on a command line.
pub fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    match numbers::decimal(text) {
        Some(threads @ 1..=1024) => Ok(threads),
        _ => Err("not a number from 1 to 1024".to_owned()),
    }
}

fn measured(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if (SHORTEST..=LONGEST).contains(&time) => Ok(time),
        _ => Err("not a time from 100ms to 1h".to_owned()),
    }
}
