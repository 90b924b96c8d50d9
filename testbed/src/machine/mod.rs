//! One boot of the virtual machine, from command line to verdict.
//!
//! QEMU runs in software emulation, one thread per CPU. The guest's console goes to a file that is
//! kept; its results come over virtio ports backed by files, which this side reads as they grow. The
//! guest ends the machine itself through the debug-exit device, so an orderly end is told from every
//! other one: [`Ending::Orderly`] needs both QEMU's exit status and the guest's last report.
//!
//! How a boot ended is judged in [`ending`].

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::ending::{judge, last_lines, oops_line, read_lossy};
use crate::fetch::Program;
use crate::host_sys::{die_with_parent, run_before_others};
use crate::kernel::Kernel;
use crate::lock::{Lock, guest_lock_path};
use crate::report::{PORT_ERROR, PORT_OUTPUT, PORT_REPORT, Report};
use crate::topology::Topology;

pub mod ending;
pub use ending::Ending;

/// What the guest writes to the debug-exit port; QEMU then exits with twice that plus one.
pub const DEBUG_EXIT_VALUE: u8 = 0x20;
/// The debug-exit device's port.
pub const DEBUG_EXIT_PORT: u64 = 0xf4;

/// A boot to make.
#[derive(Debug)]
pub struct Boot<'a> {
    /// QEMU.
    pub qemu: &'a Program,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Nodes, memory and CPUs.
    pub topology: &'a Topology,
    /// More words for the kernel's command line.
    pub cmdline: &'a str,
    /// The initial ram file system.
    pub initrd: &'a [u8],
    /// A raw disk image, /dev/vda in the guest; written to a copy-on-write layer that is dropped.
    pub disk: Option<&'a Path>,
    /// Folder for this boot's files; it must exist.
    pub folder: &'a Path,
    /// The console is the terminal instead of a file, and there is no time limit.
    pub interactive: bool,
    /// After these the machine is killed.
    pub limits: Limits,
}

/// How long a boot may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In all.
    pub boot: Duration,
    /// From one report to the next, so that one hang cannot eat the time of all that comes after it.
    pub silence: Duration,
}

/// What is left of a boot.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The console's file.
    pub console: PathBuf,
    /// Wall time of the boot.
    pub elapsed: Duration,
}

impl Outcome {
    /// The console's last `count` lines, or more if the kernel's death takes more.
    #[must_use]
    pub fn last_console_lines(&self, count: usize) -> String {
        last_lines(&read_lossy(&self.console), count)
    }
}

/// What a running boot tells its caller.
#[derive(Debug)]
pub enum Event<'a> {
    /// A report line.
    Report(Report),
    /// Bytes of the command's standard output.
    Output(&'a [u8]),
    /// Bytes of the command's standard error.
    Error(&'a [u8]),
}

/// Boots, waits for the guests' lock first, and hands every event to `on_event` as it comes.
///
/// # Errors
/// When QEMU cannot be started or the boot's files cannot be written. A guest that fails is an
/// [`Ending`], not an error.
pub fn run(boot: &Boot<'_>, mut on_event: impl FnMut(Event<'_>)) -> Result<Outcome> {
    let _lock = Lock::take(guest_lock_path(), |holder| {
        let holder = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
        eprintln!(
            "guest: waiting for {holder}, which has {}",
            guest_lock_path().display()
        );
    })?;
    let initrd = boot.folder.join("initrd.cpio");
    std::fs::write(&initrd, boot.initrd)
        .with_context(|| format!("cannot write {}", initrd.display()))?;
    let console = boot.folder.join("console.log");
    File::create(&console)?;
    let mut ports = Vec::new();
    for name in [PORT_REPORT, PORT_OUTPUT, PORT_ERROR] {
        let path = boot.folder.join(name);
        File::create(&path)?;
        ports.push(Tail::open(path)?);
    }
    let started = Instant::now();
    let errors = boot.folder.join("qemu.log");
    let mut child = command(boot, &initrd, &console)
        .stdin(if boot.interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stderr(File::create(&errors)?)
        .spawn()
        .with_context(|| format!("cannot run {}", boot.qemu.path.display()))?;
    let mut status = None;
    let mut lines = Vec::new();
    let mut hang: Option<String> = None;
    let mut last_report = Instant::now();
    let mut console_tail = Tail::open(console.clone())?;
    let mut oops: Option<(String, Instant)> = None;
    loop {
        let ended = child.try_wait()?;
        if drain(&mut ports, &mut lines, &mut status, &mut on_event)? {
            last_report = Instant::now();
        }
        let fresh = String::from_utf8_lossy(&console_tail.fresh()?).into_owned();
        if oops.is_none() {
            oops = oops_line(&fresh).map(|line| (line, Instant::now()));
        }
        if let Some(ended) = ended {
            let oops = oops.map(|(line, _)| line);
            let ending = judge(ended, status, oops, hang, &console, &errors);
            let _ = std::fs::remove_file(initrd);
            return Ok(Outcome {
                ending,
                console,
                elapsed: started.elapsed(),
            });
        }
        // A dead kernel may still print for a moment; its last words are the useful ones.
        let dead = oops
            .as_ref()
            .is_some_and(|(_, at)| at.elapsed() > Duration::from_secs(3));
        if !boot.interactive && hang.is_none() {
            hang = over_limit(boot.limits, started.elapsed(), last_report.elapsed());
        }
        if hang.is_some() || dead {
            kill(&mut child);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The time limit that a boot has passed, in words.
fn over_limit(limits: Limits, elapsed: Duration, silent: Duration) -> Option<String> {
    if silent > limits.silence {
        Some(format!("no report for {} s", limits.silence.as_secs()))
    } else if elapsed > limits.boot {
        Some(format!("not done after {} s", limits.boot.as_secs()))
    } else {
        None
    }
}

fn kill(child: &mut Child) {
    // It may have ended in between; try_wait tells either way.
    let _ = child.kill();
}

/// Words of every kernel's command line. The emulator translates code by the address at which it runs, so
/// that a program at another address at each start is translated again each time: `memtide tier` used
/// 0.4 s of processor time before its first look, of which 0.3 were translation.
const KERNEL_WORDS: &str = "console=ttyS0 panic=-1 quiet norandmaps";

fn command(boot: &Boot<'_>, initrd: &Path, console: &Path) -> Command {
    let mut command = Command::new(&boot.qemu.path);
    if let (Some(libraries), Some(root)) = (boot.qemu.library_path(), &boot.qemu.root) {
        command.env("LD_LIBRARY_PATH", libraries).env(
            "QEMU_MODULE_DIR",
            root.join("usr/lib/x86_64-linux-gnu/qemu"),
        );
    }
    command
        .args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ])
        .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
        .args(boot.topology.qemu_arguments())
        .arg("-kernel")
        .arg(&boot.kernel.image)
        .arg("-initrd")
        .arg(initrd)
        .arg("-append")
        .arg(
            [KERNEL_WORDS, boot.cmdline, boot.topology.kernel_words()]
                .join(" ")
                .trim_end(),
        )
        .args([
            "-device",
            &format!("isa-debug-exit,iobase={DEBUG_EXIT_PORT:#x},iosize=1"),
        ])
        .args(["-device", "virtio-serial-pci,max_ports=8"]);
    if boot.interactive {
        command.args([
            "-chardev",
            "stdio,id=console,signal=off",
            "-serial",
            "chardev:console",
        ]);
    } else {
        command.args(["-serial", &format!("file:{}", escape(console))]);
    }
    for name in [PORT_REPORT, PORT_OUTPUT, PORT_ERROR] {
        command
            .args([
                "-chardev",
                &format!("file,id={name},path={}", escape(&boot.folder.join(name))),
            ])
            .args([
                "-device",
                &format!("virtserialport,chardev={name},name={name}"),
            ]);
    }
    if let Some(disk) = boot.disk {
        let drive = format!("file={},if=virtio,format=raw,snapshot=on", escape(disk));
        command.args(["-drive", &drive]);
    }
    die_with_parent(&mut command);
    run_before_others(&mut command, !boot.interactive);
    command
}

/// QEMU's option lists separate by commas; a comma in a path is doubled.
fn escape(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Hands over what has come; whether there was a report.
fn drain(
    ports: &mut [Tail],
    lines: &mut Vec<u8>,
    status: &mut Option<i32>,
    on_event: &mut impl FnMut(Event<'_>),
) -> Result<bool> {
    let mut reported = false;
    for (number, port) in ports.iter_mut().enumerate() {
        let bytes = port.fresh()?;
        match number {
            _ if bytes.is_empty() => {}
            0 => lines.extend_from_slice(&bytes),
            1 => on_event(Event::Output(&bytes)),
            _ => on_event(Event::Error(&bytes)),
        }
    }
    while let Some(end) = lines.iter().position(|&byte| byte == b'\n') {
        let line: Vec<u8> = lines.drain(..=end).collect();
        reported = true;
        match serde_json::from_slice(&line) {
            Ok(Report::End { status: code }) => *status = Some(code),
            Ok(report) => on_event(Event::Report(report)),
            Err(error) => {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                let text = format!("unreadable report ({error}): {text}");
                on_event(Event::Report(Report::Note { text }));
            }
        }
    }
    Ok(reported)
}

/// A growing file, read from where the last look ended.
struct Tail {
    file: File,
    at: u64,
}

impl Tail {
    fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { file, at: 0 })
    }

    fn fresh(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.read_to_end(&mut bytes)?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }
}

/// Writes an empty file of `mib` MiB with an ext4 file system at `path`.
///
/// # Errors
/// When the file cannot be written or mkfs fails.
pub fn make_disk(mkfs: &Program, path: &Path, mib: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    file.set_len(mib << 20)?;
    let mut command = Command::new(&mkfs.path);
    if let Some(libraries) = mkfs.library_path() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = command
        .args(["-q", "-F", "-E", "lazy_itable_init=0,nodiscard"])
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {}", mkfs.path.display()))?;
    let mut standard_error = std::io::stderr();
    if !output.status.success() {
        standard_error.write_all(&output.stderr)?;
        anyhow::bail!("{} failed", mkfs.path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_a_boot_before_its_time() {
        let seconds = Duration::from_secs;
        let limits = Limits {
            boot: seconds(600),
            silence: seconds(240),
        };
        let over = |elapsed, silent| over_limit(limits, seconds(elapsed), seconds(silent));
        assert_eq!(over(600, 240), None);
        assert_eq!(over(300, 241).as_deref(), Some("no report for 240 s"));
        assert_eq!(over(601, 1).as_deref(), Some("not done after 600 s"));
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(escape(Path::new("/a,b")), "/a,,b");
    }
}
