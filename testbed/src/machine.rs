//! One boot of the virtual machine, from command line to verdict.
//!
//! QEMU runs in software emulation, one thread per CPU. The guest's console goes to a file that is
//! kept; its results come over virtio ports backed by files, which this side reads as they grow. The
//! guest ends the machine itself through the debug-exit device, so an orderly end is told from every
//! other one: [`Ending::Orderly`] needs both QEMU's exit status and the guest's last report.
//!
//! What can go wrong is told apart, because the cures differ: the guest hangs ([`Ending::Hang`]: it
//! has sent no report for too long, or the whole boot takes too long; its QEMU is killed, nothing
//! else), its kernel oopses ([`Ending::Oops`]), or QEMU does not start ([`Ending::Broken`]). One oops
//! is an artefact of emulation and not of the kernel: patching its own code while other emulated CPUs
//! run it. [`Ending::Patching`] is an oops with that face; [`crate::guest::pins`] says why it happens
//! and makes it rare. What follows from an end is [`crate::suite::series`]'s to decide.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::fetch::Program;
use crate::host_sys::die_with_parent;
use crate::kernel::Kernel;
use crate::lock::{Lock, guest_lock_path};
use crate::report::{PORT_ERROR, PORT_OUTPUT, PORT_REPORT, Report};
use crate::topology::Topology;

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

/// How a boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest finished its work; the status that it reported.
    Orderly(i32),
    /// Killed after a time limit; which.
    Hang(String),
    /// The guest's kernel died; the line that says so.
    Oops(String),
    /// It died patching its own code, which is a defect of the emulation; the line that says so.
    Patching(String),
    /// QEMU ended in another way; its status and words.
    Broken(String),
}

impl Ending {
    /// A word or two for counting ends of a kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Orderly(_) => "end without all verdicts",
            Self::Hang(_) => "hang",
            Self::Oops(_) => "oops",
            Self::Patching(_) => "oops of patching its own code under emulation",
            Self::Broken(_) => "broken machine",
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Orderly(status) => write!(formatter, "the guest ended with status {status}"),
            Self::Hang(limit) => write!(formatter, "the guest hung: {limit}"),
            Self::Oops(line) => write!(formatter, "the kernel died: {line}"),
            Self::Patching(line) => write!(
                formatter,
                "the kernel died patching its own code, as it may under emulation: {line}"
            ),
            Self::Broken(text) => write!(formatter, "the machine broke: {text}"),
        }
    }
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

/// The last `count` lines, or all from the first that says that the kernel died, if those are more
/// and not more than three times as many.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from_death = lines
        .iter()
        .position(|line| oops_line(line).is_some())
        .map_or(0, |at| lines.len() - at);
    let shown = if from_death <= 3 * count {
        count.max(from_death)
    } else {
        count
    };
    lines[lines.len().saturating_sub(shown)..].join("\n")
}

/// Whether an oops in this console is one of code patching.
fn is_patching(console: &str) -> bool {
    ["text_poke", "poke_int3", "static_key", "jump_label", "int3"]
        .iter()
        .any(|name| console.contains(name))
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

/// How a boot ended whose QEMU has `ended`, from what the guest reported, what its console said and
/// what this side did.
fn judge(
    ended: ExitStatus,
    status: Option<i32>,
    oops: Option<String>,
    hang: Option<String>,
    console: &Path,
    errors: &Path,
) -> Ending {
    let orderly = ended.code() == Some(i32::from(DEBUG_EXIT_VALUE) * 2 + 1);
    match (status, oops, hang) {
        (Some(status), ..) if orderly => Ending::Orderly(status),
        (_, Some(line), _) if is_patching(&read_lossy(console)) => Ending::Patching(line),
        (_, Some(line), _) => Ending::Oops(line),
        _ if orderly => Ending::Broken("its init gave up before the work was done".to_owned()),
        (_, None, Some(limit)) => Ending::Hang(limit),
        _ => {
            let words = format!("{ended}: {}", read_lossy(errors).trim());
            Ending::Broken(words.trim_end_matches([':', ' ']).to_owned())
        }
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
        .arg(format!("console=ttyS0 panic=-1 quiet {}", boot.cmdline).trim_end())
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

/// The console line on which the kernel says that it died.
fn oops_line(text: &str) -> Option<String> {
    let signs = [
        "Kernel panic",
        "BUG: ",
        "Oops: ",
        "kernel BUG at",
        "general protection fault",
    ];
    // A stall is what a busy host looks like from inside an emulated machine, not a death.
    text.lines()
        .find(|line| signs.iter().any(|sign| line.contains(sign)) && !line.contains("lockup"))
        .map(|line| line.trim().to_owned())
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
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
    fn oops_lines_are_found() {
        let text = "[ 1.0] fine\n[ 2.0] BUG: unable to handle page fault\n";
        assert_eq!(
            oops_line(text).as_deref(),
            Some("[ 2.0] BUG: unable to handle page fault")
        );
        assert_eq!(oops_line("all is well\n"), None);
        assert_eq!(
            oops_line("watchdog: BUG: soft lockup - CPU#2 stuck for 26s!\n"),
            None
        );
    }

    #[test]
    fn a_death_is_shown_from_its_first_line() {
        let text = "a\nb\nOops: int3: 0000\nc\nd\n";
        assert_eq!(last_lines(text, 1), "Oops: int3: 0000\nc\nd");
        assert_eq!(last_lines(text, 4), "b\nOops: int3: 0000\nc\nd");
        // Five lines from the death on are more than three times one.
        assert_eq!(last_lines("BUG: x\n1\n2\n3\n4\n", 1), "4");
        assert_eq!(last_lines("a\nb\n", 1), "b");
    }

    #[test]
    fn an_end_is_orderly_only_with_the_last_report() {
        use std::os::unix::process::ExitStatusExt;
        let nowhere = Path::new("/nonexistent");
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let judge = |ended, status, oops: Option<&str>, hang: Option<&str>| {
            let owned = |text: &str| text.to_owned();
            judge(
                ended,
                status,
                oops.map(owned),
                hang.map(owned),
                nowhere,
                nowhere,
            )
        };
        // 0x20 twice plus one.
        assert_eq!(judge(exit(65), Some(3), None, None), Ending::Orderly(3));
        assert!(matches!(
            judge(exit(65), None, None, None),
            Ending::Broken(_)
        ));
        assert_eq!(
            judge(exit(0), Some(0), Some("BUG: a"), None),
            Ending::Oops("BUG: a".into())
        );
        let killed = ExitStatus::from_raw(9);
        assert_eq!(
            judge(killed, None, None, Some("240 s")),
            Ending::Hang("240 s".into())
        );
        let broken = judge(killed, None, None, None);
        assert_eq!(broken, Ending::Broken("signal: 9 (SIGKILL)".into()));
    }

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
    fn patching_has_a_face() {
        assert!(is_patching("Oops: int3: 0000 [#1]"));
        assert!(is_patching(" ? smp_text_poke_batch_finish+0x1/0x2"));
        assert!(!is_patching("BUG: kernel NULL pointer dereference"));
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(escape(Path::new("/a,b")), "/a,,b");
    }
}
