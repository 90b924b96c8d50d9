//! `memtide pager`: a file read in bounded memory, beside plain mmap under the
//! same limit; `memtide pager run`, which gives the pager to a program; and `memtide
//! pager status`, which tells what it does there.
//!
//! Each way of reading is a worker process ([`worker`]), one after the other:
//! plain mmap in a cgroup whose limit is the budget, so that the kernel's own
//! reclaim does what it always does; then the pager, in a cgroup that allows a
//! seventh more, once with each page unmapped by itself and once as it is. Where
//! no memory cgroup can be had the first is left out, and the report says why.

mod args;
mod content;
mod limit;
mod plain;
mod preload;
mod print;
mod readers;
mod report;
mod status;
mod worker;

pub use args::PagerArgs as Args;

use crate::shared::context::{BadUsage, Context};
use crate::shared::signals;
use anyhow::{Context as _, bail};
use args::{PagerCommand, TrialArgs, Way};
use content::PAGE_BYTES;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use limit::Limit;
use memtide_linux::files::{Output, input};
use report::{Report, WayReport};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What tmpfs calls itself.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// The least budget: what [`memtide_pager::Builder::budget`] asks for.
const LEAST_BUDGET: u64 = 1 << 20;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(PagerCommand::Run(args)) if args.plain => plain::run(args, context),
        Some(PagerCommand::Run(args)) => preload::run(args, context),
        Some(PagerCommand::Status(args)) => status::run(args, context),
        Some(PagerCommand::Enter(args)) => plain::enter(args),
        Some(PagerCommand::Worker(args)) => worker::run(args, context),
        None => match (&args.trial.make, args.trial.size) {
            (Some(path), Some(bytes)) => make(path, bytes, context),
            _ => compare(&args.trial, context),
        },
    }
}

/// `--make`: writes a file that can be checked.
fn make(path: &Path, bytes: u64, context: &Context) -> anyhow::Result<ExitCode> {
    let bytes = bytes - bytes % PAGE_BYTES;
    if bytes == 0 {
        return Err(BadUsage(format!("--size: give at least {PAGE_BYTES} bytes")).into());
    }
    // Never over what is there: it may be somebody's weights.
    let shown = crate::shared::outside::path(path);
    let mut output =
        Output::create_new(path).with_context(|| format!("{shown}: cannot make it"))?;
    let bar = bar(bytes, "{bar:40} {bytes} of {total_bytes}  {eta} left");
    let written = content::write(&mut output, bytes, |at| bar.set_position(at));
    let written = written.and_then(|()| output.commit());
    bar.finish_and_clear();
    written.with_context(|| format!("{shown}: cannot write {bytes} bytes"))?;
    match context.json {
        true => context.print_json(&report::Made {
            made: path.display().to_string(),
            bytes,
        })?,
        false => context.print(&format!("{shown}: {} written\n", print::size(bytes)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the file in every way and prints the comparison.
fn compare(args: &TrialArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let (Some(path), Some(budget)) = (&args.file, args.budget) else {
        unreachable!("the parser asks for both");
    };
    if !context.root.is_live() {
        let root = context.root.path("/");
        bail!(
            "{}: files are read on the running machine only",
            root.display()
        );
    }
    let bytes = checked(path, budget)?;
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let limit = Limit::make(&context.root);
    let (ways, no_limit) = match &limit {
        Ok(_) => (&[Way::Kernel, Way::Eager, Way::Lazy][..], None),
        Err(why) => (&[Way::Eager, Way::Lazy][..], Some(why.clone())),
    };
    drop(limit);
    let trial = Trial {
        path,
        bytes,
        budget,
        threads,
        args,
        context,
        stop: signals::hear()?,
    };
    let mut reports = Vec::new();
    for way in ways {
        reports.push(trial.run(*way, no_limit.is_none())?);
    }
    let report = Report::new(
        &trial.path.display().to_string(),
        bytes,
        budget,
        threads,
        args,
        no_limit,
        reports,
    );
    match context.json {
        true => context.print_json(&report)?,
        false => context.print(&print::text(&report, context.styled))?,
    }
    let fine = report.ways.iter().all(|way| way.measured.wrong_pages == 0);
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The file's size, if it can be read and makes sense with this budget.
fn checked(path: &Path, budget: u64) -> anyhow::Result<u64> {
    // Opening a pipe would wait for its writer.
    let file = input::regular(path).map_err(|error| match error.raw_os_error() {
        Some(_) => anyhow::anyhow!("{}: cannot open it: {error}", path.display()),
        None => anyhow::anyhow!("{}: {error}", path.display()),
    })?;
    let bytes = file.metadata()?.len();
    let kind = rustix::fs::fstatfs(&file).map(|status| status.f_type);
    #[allow(
        clippy::useless_conversion,
        reason = "its type differs between machines"
    )]
    if kind.is_ok_and(|kind| i64::from(kind) == TMPFS_MAGIC) {
        bail!(
            "{}: lies on a file system in memory, from which nothing can be evicted; give a file \
             on a disk",
            path.display()
        );
    }
    let wrong =
        |why: String| Err(BadUsage(format!("--budget {}: {why}", print::size(budget))).into());
    if budget >= bytes {
        let size = print::size(bytes);
        return wrong(format!("all of {} fits, {size}; give less", path.display()));
    }
    if budget < LEAST_BUDGET {
        return wrong(format!("give at least {}", print::size(LEAST_BUDGET)));
    }
    Ok(bytes)
}

/// A bar on standard error, if that is a terminal.
fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// What all workers have in common.
struct Trial<'a> {
    path: &'a Path,
    bytes: u64,
    budget: u64,
    threads: usize,
    args: &'a TrialArgs,
    context: &'a Context,
    stop: Arc<AtomicUsize>,
}

impl Trial<'_> {
    /// Reads in one way, limited if that is possible.
    fn run(&self, way: Way, limited: bool) -> anyhow::Result<WayReport> {
        let limit = limited.then(|| Limit::make(&self.context.root).map_err(anyhow::Error::msg));
        let limit = limit.transpose()?;
        let mut worker = Worker::start(self, way)?;
        if let Some(limit) = &limit {
            limit.add(worker.0.id())?;
        }
        let mut output = BufReader::new(worker.0.stdout.take().context("a pipe was asked for")?);
        let mut input = worker.0.stdin.take().context("a pipe was asked for")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line != "ready\n" {
            return Err(worker.failed());
        }
        // Beside its data a mapping takes 8 bytes a page for the page table.
        let tables = self.bytes / (PAGE_BYTES / 8);
        let allowed = match way {
            Way::Kernel => self.budget + tables,
            // Of a limit the pager takes seven eighths for data.
            Way::Eager | Way::Lazy => self.budget + self.budget / 7 + tables,
        };
        let limit_bytes = limit
            .as_ref()
            .map(|limit| limit.allow(allowed))
            .transpose()?;
        input.write_all(b"go\n")?;
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            output.read_line(&mut line).map(|_| line)
        });
        self.wait(way, &reading)?;
        let line = reading.join().expect("reading a pipe does not panic")?;
        match serde_json::from_str(&line) {
            Ok(measured) => Ok(WayReport::new(way, limit_bytes, measured)),
            Err(_) => Err(worker.failed()),
        }
    }

    /// Draws the time that a worker takes, and ends early if told to.
    fn wait<T>(&self, way: Way, reading: &std::thread::JoinHandle<T>) -> anyhow::Result<()> {
        let seconds = self.args.duration.as_secs_f64() * 1.25;
        let template = format!("{{bar:40}} {{msg}}, about {seconds:.0} s");
        let bar = bar((seconds * 1000.0) as u64, &template);
        bar.set_message(print::way_words(way));
        let began = Instant::now();
        while !reading.is_finished() {
            if self.stop.load(Ordering::Relaxed) != 0 {
                bar.finish_and_clear();
                bail!("interrupted; nothing was compared");
            }
            bar.set_position(began.elapsed().as_millis() as u64);
            std::thread::sleep(Duration::from_millis(20));
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// A worker process. It does not outlive this.
struct Worker(Child);

impl Worker {
    fn start(trial: &Trial<'_>, way: Way) -> anyhow::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["pager", "worker", "--way", &args::word(way)])
            .args(["--pattern", &args::word(trial.args.pattern)])
            .args(["--budget", &trial.budget.to_string()])
            .args(["--mode", &args::word(trial.args.mode)])
            .args(["--threads", &trial.threads.to_string()])
            .args([
                "--duration",
                &humantime::format_duration(trial.args.duration)
                    .to_string()
                    .replace(' ', ""),
            ]);
        if let Some(policy) = &trial.args.memory_policy {
            command.args(["--memory-policy", &policy.to_string()]);
        }
        command
            .arg("--")
            .arg(trial.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Ok(Worker(command.spawn().context("cannot start a worker")?))
    }

    /// Why it ended without a result. What it said itself stands on standard
    /// error already.
    fn failed(&mut self) -> anyhow::Error {
        match self.0.wait() {
            Ok(status) => match status.signal() {
                Some(libc::SIGBUS) => anyhow::anyhow!(
                    "reading the file failed (SIGBUS): it was cut short meanwhile, or its disk fails"
                ),
                Some(libc::SIGKILL) => anyhow::anyhow!(
                    "a worker was killed: the memory limit may be too low for its threads"
                ),
                Some(signal) => anyhow::anyhow!("a worker ended by signal {signal}"),
                None => anyhow::anyhow!("a worker failed; it said why"),
            },
            Err(error) => anyhow::anyhow!("cannot wait for a worker: {error}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended already, except after an error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
