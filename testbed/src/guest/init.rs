//! Process 1 and the worker below it.
//!
//! Process 1 makes the machine usable (file systems, modules, settings), holds what shall not come and
//! go while tests run ([`super::pins`]), then starts the worker and
//! from there on only collects dead children, so that no test sees a zombie that is not its own.
//! When the worker is gone it ends the machine through the debug-exit port: no shutdown sequence,
//! nothing to wait for. The worker does the job and sends the last report; if it dies before, the
//! host finds the report missing and fails the boot.
//!
//! In a guest with systemd, process 1 becomes systemd at once. The worker is then a service, which holds
//! the same things and ends the machine in the same way.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, wait};

use super::patches::Patches;
use super::{pace, pins, tests};
use crate::machine::{DEBUG_EXIT_PORT, DEBUG_EXIT_VALUE};
use crate::report::{JOB_PATH, Job, PORT_ERROR, PORT_OUTPUT, PORT_REPORT, Report, Work};
use crate::system::SYSTEMD;

/// Runs as process 1; does not return.
pub fn main() -> ! {
    if Path::new(SYSTEMD).exists() {
        let error = Command::new(SYSTEMD).exec();
        println!("init: {SYSTEMD}: {error}");
        power_off()
    }
    let ended = prepare().and_then(|()| {
        let _pins = pins::hold();
        supervise()
    });
    if let Err(error) = ended {
        println!("init: {error:#}");
    }
    power_off()
}

fn prepare() -> Result<()> {
    let mounts = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
        ("cgroup2", "/sys/fs/cgroup"),
    ];
    for (kind, place) in mounts {
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {kind} on {place}"))?;
    }
    let job = job()?;
    for path in &job.modules {
        let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
        match rustix::system::finit_module(file.as_fd(), c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => println!("init: cannot load {path}: {error}"),
        }
    }
    for (path, text) in &job.settings {
        std::fs::write(path, text).with_context(|| format!("cannot write {text:?} to {path}"))?;
    }
    Ok(())
}

pub(super) fn job() -> Result<Job> {
    let text = std::fs::read(JOB_PATH).with_context(|| format!("cannot read {JOB_PATH}"))?;
    serde_json::from_slice(&text).with_context(|| format!("{JOB_PATH} is no job"))
}

fn supervise() -> Result<()> {
    let worker = Command::new("/init")
        .arg("work")
        .env("PATH", "/bin")
        .env("HOME", "/root")
        .env("TERM", "linux")
        .spawn()
        .context("cannot start the worker")?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_nonzero().get() == worker.id().cast_signed() => {
                return Ok(());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the worker"),
        }
    }
}

fn power_off() -> ! {
    let end = || -> std::io::Result<()> {
        let mut port = File::options().write(true).open("/dev/port")?;
        port.seek(SeekFrom::Start(DEBUG_EXIT_PORT))?;
        port.write_all(&[DEBUG_EXIT_VALUE])
    };
    if let Err(error) = end() {
        println!("init: cannot end the machine: {error}");
    }
    // Returning from process 1 panics the kernel, which ends the machine as well.
    std::process::exit(1)
}

/// The report port: one JSON line per report.
#[derive(Debug)]
pub struct Reporter(File);

impl Reporter {
    /// Opens the port.
    ///
    /// # Errors
    /// When the machine has no such port.
    pub fn open() -> Result<Self> {
        Ok(Self(port(PORT_REPORT)?))
    }

    /// Sends one report.
    ///
    /// # Errors
    /// When the port cannot be written.
    pub fn send(&mut self, report: &Report) -> Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.0
            .write_all(&line)
            .context("cannot write the report port")
    }
}

/// Runs as the worker and as a service of systemd's; does not return.
pub fn serve() -> ! {
    let _pins = pins::hold_events();
    if let Err(error) = work() {
        println!("init: {error:#}");
    }
    power_off()
}

/// Opens the virtio port called `name`.
fn port(name: &str) -> Result<File> {
    let class = PathBuf::from("/sys/class/virtio-ports");
    let entries = std::fs::read_dir(&class).context("the machine has no virtio ports")?;
    for entry in entries.flatten() {
        let has = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if has.trim() == name {
            let device = PathBuf::from("/dev").join(entry.file_name());
            return File::options()
                .write(true)
                .open(&device)
                .with_context(|| format!("cannot open {}", device.display()));
        }
    }
    anyhow::bail!("the machine has no virtio port {name}")
}

/// Runs as the worker: does the job and reports its end.
///
/// # Errors
/// When the job cannot be done at all; the boot then lacks its last report.
pub fn work() -> Result<()> {
    let job = job()?;
    let mut reporter = Reporter::open()?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?
        .trim()
        .to_owned();
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let seconds = uptime
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0);
    reporter.send(&Report::Ready { release, seconds })?;
    let status = match job.work {
        Work::Command(command) => {
            let status = Command::new("/bin/sh")
                .arg("-c")
                .arg(command)
                .stdin(Stdio::null())
                .stdout(port(PORT_OUTPUT)?)
                .stderr(port(PORT_ERROR)?)
                .status()
                .context("cannot run the shell")?;
            status.code().unwrap_or(128)
        }
        Work::Interactive => {
            let status = Command::new("/bin/setsid")
                .args(["cttyhack", "/bin/sh"])
                .status();
            status
                .context("cannot run the shell")?
                .code()
                .unwrap_or(128)
        }
        Work::Tests(names) => {
            if Path::new("/dev/vda").exists() {
                mount("/dev/vda", "/mnt", "ext4", MountFlags::empty(), None)
                    .context("cannot mount the disk on /mnt")?;
            }
            pace::start()?;
            let patches = job.trace_patches.then(Patches::trace).transpose()?;
            reporter = tests::run_all(&names, reporter, patches.as_ref())?;
            0
        }
    };
    reporter.send(&Report::End { status })
}
