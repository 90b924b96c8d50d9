//! `memtide top` on a pseudo terminal, beside a service that this test plays.
//!
//! The test is the terminal: it reads what is drawn, sends keys, changes its size. What is on the screen is
//! tested where it is drawn (`cmd/top/draw.rs`); here it is that something is drawn at all, that keys and
//! signals are heard, and that the terminal is left as it was found.

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const STATUS: &str = include_str!("data/status.json");
/// For what is expected to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Streams of a service.
type Kept = Arc<Mutex<Vec<UnixStream>>>;

const PROCESS: &str = r#"{"pid":4711,"name":"redis","class":"db","fast_bytes":4096,"slow_bytes":0,"promoted_bytes":0,"demoted_bytes":0,"returned_bytes":0}"#;

/// A service that answers each call with one status, or one process, and keeps the streams.
fn service(root: &Path) -> Kept {
    let folder = root.join("run/memtide");
    std::fs::create_dir_all(&folder).unwrap();
    let host = root.join("proc/sys/kernel");
    std::fs::create_dir_all(&host).unwrap();
    std::fs::write(host.join("hostname"), "mill\n").unwrap();
    let listener = UnixListener::bind(folder.join("io.memtide")).unwrap();
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let keep = Arc::clone(&keep);
            thread::spawn(move || answer(stream, &keep));
        }
    });
    kept
}

fn answer(mut stream: UnixStream, keep: &Kept) {
    let mut call = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut call) {
        let call = String::from_utf8_lossy(&call[..read]);
        if call.contains("io.memtide.Processes") {
            let reply = format!("{{\"parameters\":{{\"processes\":[{PROCESS}]}}}}\0");
            stream.write_all(reply.as_bytes()).unwrap();
            continue;
        }
        if call.contains("\"more\":true") {
            tell(&mut stream, STATUS, true);
            keep.lock().unwrap().push(stream);
            return;
        }
        tell(&mut stream, STATUS, false);
    }
}

fn tell(stream: &mut UnixStream, status: &str, more: bool) {
    let reply = format!("{{\"parameters\":{{\"status\":{status}}},\"continues\":{more}}}\0");
    stream.write_all(reply.as_bytes()).unwrap();
}

/// Another status of the stream, once there is one: something may be drawn before that. Each letter of its source
/// is another one, so all are drawn.
fn tell_another(kept: &Kept) {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(stream) = kept.lock().unwrap().last_mut() {
            return tell(stream, &STATUS.replace("DAMON", "OTHER"), true);
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody asked for a stream of statuses");
}

/// A terminal, and what runs on it.
struct Terminal {
    ours: File,
    theirs: File,
    drawn: Receiver<Vec<u8>>,
    reads: Option<JoinHandle<()>>,
    seen: String,
    child: Child,
}

fn top(root: &Path, no_color: bool) -> Terminal {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(name).unwrap();
    resize(&theirs, 80, 24);
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command
        .arg("top")
        .env("MEMTIDE_ROOT", root)
        .env("TERM", "xterm-256color");
    command.env_remove("NO_COLOR");
    if no_color {
        command.env("NO_COLOR", "1");
    }
    command.stdin(theirs.try_clone().unwrap());
    command.stdout(theirs.try_clone().unwrap());
    command.stderr(theirs.try_clone().unwrap());
    let child = command.spawn().unwrap();
    let ours = File::from(ours);
    let mut reader = ours.try_clone().unwrap();
    let (tell, drawn) = mpsc::channel();
    let reads = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read) = reader.read(&mut bytes) {
            if read == 0 || tell.send(bytes[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    Terminal {
        ours,
        theirs,
        drawn,
        reads: Some(reads),
        seen: String::new(),
        child,
    }
}

fn resize(terminal: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

impl Terminal {
    /// Waits until this was drawn, and forgets all up to it. Of a picture it is one word: what is blank
    /// and was blank before is skipped.
    fn shows(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.drawn.recv_timeout(left) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => {
                    let seen: String = self.seen.chars().take(2000).collect();
                    panic!("{text:?} was not drawn: {seen:?}");
                }
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether lines and echoes are as a shell wants them.
    fn is_usual(&self) -> bool {
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it goes on");
            thread::yield_now();
        }
    }

    /// The end, after which the other screen is left and the cursor is back.
    fn end(mut self) -> ExitStatus {
        let status = self.wait();
        self.shows("\x1b[?25h");
        self.shows("\x1b[?1049l");
        assert!(self.is_usual());
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_are_heard_and_the_terminal_is_put_back() {
    let root = tempfile::tempdir().unwrap();
    service(root.path());
    let mut terminal = top(root.path(), false);
    terminal.shows("\x1b[?1049h");
    terminal.shows("mill");
    terminal.shows("300.0");
    assert!(!terminal.is_usual());
    terminal.press("?");
    terminal.shows("another");
    terminal.press("?sj");
    terminal.shows(">");
    terminal.press("t");
    terminal.shows("redis");
    terminal.press("t");
    terminal.shows("300.0");
    terminal.press("p");
    terminal.shows("PAUSED");
    // A wider terminal: it is drawn anew.
    resize(&terminal.theirs, 120, 40);
    terminal.signal(Signal::WINCH);
    terminal.shows("mill");
    terminal.press("q");
    assert!(terminal.end().success());
}

#[test]
fn a_signal_is_an_end_in_order() {
    let root = tempfile::tempdir().unwrap();
    service(root.path());
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut terminal = top(root.path(), false);
        terminal.shows("order:");
        terminal.signal(signal);
        assert!(terminal.end().success());
    }
}

/// A byte that begins no key, and keys that are cut off: who reads them waits for the rest.
#[test]
fn half_a_key_holds_up_nothing() {
    for half in [&b"\xff"[..], b"\x1b[", b"\x1b[;"] {
        let root = tempfile::tempdir().unwrap();
        let kept = service(root.path());
        let mut terminal = top(root.path(), false);
        terminal.shows("DAMON");
        terminal.ours.write_all(half).unwrap();
        tell_another(&kept);
        terminal.shows("OTHER");
        terminal.signal(Signal::TERM);
        assert!(terminal.end().success());
    }
}

/// A window that is closed. It is not the terminal of a session here, so that no signal comes.
#[test]
fn a_terminal_that_has_gone_is_an_end() {
    let root = tempfile::tempdir().unwrap();
    let kept = service(root.path());
    let mut terminal = top(root.path(), false);
    terminal.shows("order:");
    // Who reads what is drawn ends with the next picture, for nobody wants it.
    terminal.drawn = mpsc::channel().1;
    tell_another(&kept);
    terminal.reads.take().unwrap().join().unwrap();
    terminal.ours = File::open("/dev/null").unwrap();
    let status = terminal.wait();
    assert_eq!(status.code(), Some(1), "{status:?}");
}

#[test]
fn no_color_has_no_colours() {
    let root = tempfile::tempdir().unwrap();
    service(root.path());
    let colours = |no_color| {
        let mut terminal = top(root.path(), no_color);
        terminal.shows("\x1b[?1049h");
        let until = Instant::now() + PATIENCE;
        while !terminal.seen.contains("300.0") {
            let left = until.saturating_duration_since(Instant::now());
            let bytes = terminal.drawn.recv_timeout(left).unwrap();
            terminal.seen += &String::from_utf8_lossy(&bytes);
        }
        let drawn = std::mem::take(&mut terminal.seen);
        terminal.press("q");
        assert!(terminal.end().success());
        // Foregrounds of 8 or 256 colours; 39 is the terminal's own.
        ["\x1b[38;5;", "\x1b[32m", "\x1b[34m"]
            .iter()
            .any(|colour| drawn.contains(colour))
    };
    assert!(colours(false));
    assert!(!colours(true));
}

fn memtide(root: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.args(words).env("MEMTIDE_ROOT", root);
    command.stdin(std::process::Stdio::null());
    command.output().unwrap()
}

#[test]
fn one_picture_goes_to_a_pipe() {
    let root = tempfile::tempdir().unwrap();
    service(root.path());
    let output = memtide(root.path(), &["top", "--once"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("memtide on mill  run 1m 40s  source DAMON"),
        "{text}"
    );
    assert!(text.contains("\ndb "), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("q end"), "{text}");
    let output = memtide(root.path(), &["top", "--once", "--processes"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("4711 ") && text.contains(" redis "), "{text}");
}

#[test]
fn without_a_terminal_or_a_service_it_says_so() {
    let root = tempfile::tempdir().unwrap();
    let none = memtide(root.path(), &["top"]);
    let said = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("memtide: no memtide serve answers"),
        "{said}"
    );
    service(root.path());
    for (words, what) in [
        (&["top"][..], "memtide: memtide top needs a terminal"),
        (&["top", "--once", "--json"], "memtide: memtide top draws"),
    ] {
        let output = memtide(root.path(), words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(what), "{said}");
    }
}
