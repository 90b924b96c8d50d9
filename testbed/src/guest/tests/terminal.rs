//! What memtide draws on a terminal: on standard error, taken away at the end, and standard output
//! fit for a program to read all the same.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{BootClass, Context, Needs, Test};
use crate::guest::subject::Victim;
use crate::report::Verdict;

const COLUMNS: u16 = 100;
const PTS: &str = "/dev/pts";
const PATIENCE: Duration = Duration::from_secs(20);
/// What the bar says, and nothing else.
const BAR: &str = " moved, ";

pub(super) fn tests() -> Vec<Test> {
    vec![Test {
        name: "terminal/rebalance".to_owned(),
        topology: "cxl",
        class: BootClass::Quiet,
        needs: Needs::default(),
        on_request: false,
        run: Box::new(|context| rebalance(context).map(|()| Verdict::Passed)),
    }]
}

/// The kernel's terminals, until dropped.
struct Terminals;

impl Terminals {
    fn new() -> Result<Self> {
        std::fs::create_dir_all(PTS)?;
        mount("devpts", PTS, "devpts", MountFlags::empty(), None).context("cannot mount devpts")?;
        Ok(Self)
    }

    /// A terminal: memtide's side, and what arrives at the other until memtide has closed its own.
    fn open(&self) -> Result<(OwnedFd, Receiver<Vec<u8>>)> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("cannot open ptmx")?;
        unlockpt(&master)?;
        let side = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        let size = Winsize {
            ws_row: 24,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&side, size)?;
        let (sender, drawn) = channel();
        std::thread::spawn(move || {
            let (mut master, mut bytes) = (File::from(master), [0; 4096]);
            // The end is an error.
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok((side, drawn))
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        let _ = unmount(PTS, UnmountFlags::DETACH);
    }
}

fn start(victim: &Victim, words: &[&str], side: OwnedFd) -> Result<Child> {
    let pid = victim.truth().pid.to_string();
    let child = Command::new("memtide")
        .args(["rebalance", "--pid", &pid, "--weights"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(side)
        .spawn()?;
    Ok(child)
}

/// What the terminal shows in the end.
fn screen(drawn: &str) -> Result<Vec<String>> {
    let (mut lines, mut row, mut column) = (vec![Vec::new()], 0, 0);
    let mut rest = drawn.chars();
    while let Some(one) = rest.next() {
        match one {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                lines.resize(lines.len().max(row + 1), Vec::new());
            }
            '\x1b' => {
                let code: String = rest.by_ref().take(3).collect();
                match code.as_str() {
                    "[2K" => lines[row].clear(),
                    "[1A" => row = row.saturating_sub(1),
                    _ => anyhow::bail!("escape {code:?} in {drawn:?}"),
                }
            }
            one => {
                let line: &mut Vec<char> = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = one;
                column += 1;
                ensure!(column <= usize::from(COLUMNS), "too wide: {drawn:?}");
            }
        }
    }
    let lines = lines.into_iter().map(|line| line.into_iter().collect());
    Ok(lines.collect())
}

fn text(drawn: impl IntoIterator<Item = Vec<u8>>) -> String {
    let bytes: Vec<u8> = drawn.into_iter().flatten().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Nothing is left of the bar, and there was one.
fn was_clean(drawn: &str) -> Result<()> {
    ensure!(drawn.contains(BAR), "no bar: {drawn:?}");
    let shows = screen(drawn)?;
    ensure!(
        shows.iter().all(|line| line.trim().is_empty()),
        "{shows:?} stays of {drawn:?}"
    );
    Ok(())
}

fn is_plain(output: &Output, word: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && !said.contains(['\x1b', '\r']) && said.contains(word),
        "{}: {said:?}",
        output.status
    );
    Ok(())
}

fn rebalance(context: &mut Context) -> Result<()> {
    let terminals = Terminals::new()?;
    let victim = Victim::start("--size 64 --hot 0 --node 0", 1)?;
    let (side, drawn) = terminals.open()?;
    let output = start(&victim, &["0=9,2=1", "--rate-limit", "16MiB"], side)?.wait_with_output()?;
    let drawn = text(drawn);
    let draws = drawn.matches(BAR).count();
    context.note(format!("{draws} times drawn, then {:?}", tail(&drawn)))?;
    was_clean(&drawn)?;
    is_plain(&output, "wanted 0=9,2=1")?;

    // With --json there is one reader only.
    let (side, drawn) = terminals.open()?;
    let output = start(&victim, &["0=8,2=2", "--json"], side)?.wait_with_output()?;
    let drawn = text(drawn);
    ensure!(drawn.is_empty(), "{drawn:?}");
    is_plain(&output, "\"reached\": true")?;
    serde_json::from_slice::<serde_json::Value>(&output.stdout)?;

    // Interrupted amid its work.
    let (side, drawn) = terminals.open()?;
    let child = start(&victim, &["0=1,2=1", "--rate-limit", "1MiB"], side)?;
    let mut seen = String::new();
    while !seen.contains(BAR) {
        seen += &text([drawn.recv_timeout(PATIENCE).context("no bar")?]);
    }
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let output = child.wait_with_output()?;
    was_clean(&(seen + &text(drawn)))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1) && said.contains("interrupted; "),
        "{output:?}"
    );
    Ok(())
}

fn tail(drawn: &str) -> String {
    let from = drawn.chars().count().saturating_sub(60);
    drawn.chars().skip(from).collect()
}
