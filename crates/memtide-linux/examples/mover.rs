//! Proves and measures the mover on this machine.
//!
//! `mover [FROM TO]` (default: nodes 0 and 2) starts a child of its own and moves
//! that child's memory. First it proves the outcomes: pages that move, that are
//! there, that were never touched, that are the page of zeros, that are shared, a
//! node that does not exist, and a child that is killed between two batches. Then
//! it measures pages a second for several sizes of batch, with an idle and with a
//! busy child. `mover FROM TO full` starts children until FROM takes no more, and
//! proves that every page is accounted for.
//!
//! Exits with 1 if an outcome is wrong, with 3 if the machine lacks the nodes.
//! Changes nothing but the place of its children's pages.

use memtide_core::units::{NodeId, PageSize};
use memtide_linux::fs::Root;
use memtide_linux::live::kernel::RunningKernel;
use memtide_linux::mover::{
    Config, Kernel, Located, Locator, Move, Mover, Outcome, Process, SharedPages, Sums,
};
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Touched pages of the child.
const PAGES: usize = 32_768;
/// Pages that it only read, and pages that it never touched: this many each.
const FEW: usize = 64;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        child()?;
        return Ok(ExitCode::SUCCESS);
    }
    let node = |index: usize, otherwise| -> Result<NodeId> {
        Ok(NodeId(
            arguments.get(index).map_or(Ok(otherwise), |n| n.parse())?,
        ))
    };
    let (from, to) = (node(0, 0)?, node(1, 2)?);
    for node in [from, to] {
        let path = format!("/sys/devices/system/node/node{node}");
        if from == to || !std::path::Path::new(&path).exists() {
            println!("unavailable: this needs two nodes, {from} and {to}, and {path}");
            return Ok(ExitCode::from(3));
        }
    }
    if arguments.get(2).is_some_and(|mode| mode == "full") {
        let wrong = prove_full(from, to)?;
        return Ok(ExitCode::from(u8::from(wrong > 0)));
    }
    let mut wrong = prove(from, to)?;
    wrong += prove_death(to)?;
    for busy in [false, true] {
        for batch in [512, 1024, 2048, 4096] {
            measure(from, to, batch, busy)?;
        }
    }
    println!("{wrong} outcomes wrong");
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// Touches, reads and leaves alone; with every line it begins or ends to read all
/// of its pages over and over.
fn child() -> Result<()> {
    rustix::thread::disable_transparent_huge_pages(true)?;
    let touched = vec![1u8; (PAGES + 1) * PAGE];
    // Zeroed memory comes from the kernel untouched; reading maps the page of
    // zeros.
    let zero = vec![0u8; (2 * FEW + 1) * PAGE];
    let first = |memory: &[u8]| (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let skip = first(&zero) - zero.as_ptr() as usize;
    for page in 0..FEW {
        black_box(zero[skip + page * PAGE]);
    }
    println!(
        "{} {} {}",
        first(&touched),
        first(&zero),
        child as fn() -> Result<()> as usize
    );
    let (busy, end) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Relaxed) {
                if busy.load(Relaxed) {
                    for page in 0..PAGES {
                        black_box(touched[page * PAGE]);
                    }
                } else {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        for _ in stdin().lock().lines() {
            busy.fetch_not(Relaxed);
            println!("done");
        }
        end.store(true, Relaxed);
    });
    Ok(())
}

struct Victim {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    process: Process,
    touched: usize,
    zero: usize,
    text: usize,
}

impl Victim {
    fn start() -> Result<Victim> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let commands = child.stdin.take().ok_or("no pipe to the child")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no pipe from the child")?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let addresses: Vec<usize> = line
            .split_whitespace()
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        let &[touched, zero, text] = addresses.as_slice() else {
            return Err("the child said something odd".into());
        };
        let pid = child.id();
        Ok(Victim {
            process: identify(pid).ok_or("the child is gone")?,
            child,
            commands,
            answers,
            touched,
            zero,
            text: text / PAGE * PAGE,
        })
    }

    fn toggle(&mut self) -> Result<()> {
        writeln!(self.commands)?;
        self.answers.read_line(&mut String::new())?;
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        drop(self.commands);
        self.child.wait()?;
        Ok(())
    }
}

/// The process of that pid now: its start is field 22, the 20th after the name.
fn identify(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let start_ticks = fields.split_whitespace().nth(19)?.parse().ok()?;
    Some(Process { pid, start_ticks })
}

fn kernel() -> impl Kernel {
    RunningKernel::new(Root::default())
}

fn to(target: NodeId, address: usize, pages: usize) -> Move {
    Move {
        address,
        pages,
        huge: false,
        target,
    }
}

fn check(what: &str, holds: bool, sums: Sums) -> usize {
    println!("{}: {what}: {sums:?}", if holds { "ok" } else { "WRONG" });
    usize::from(!holds)
}

/// Every awkward kind of page, against what the locator says afterwards.
fn prove(from: NodeId, target: NodeId) -> Result<usize> {
    let victim = Victim::start()?;
    let process = victim.process;
    let mut mover = Mover::new(kernel(), Config::default());
    // Half of the touched pages are on the target before.
    let half = [
        to(from, victim.touched, PAGES),
        to(target, victim.touched, PAGES / 2),
    ];
    mover.run(process, &half, |_| ());
    let list = [
        to(target, victim.touched, PAGES),
        to(target, victim.zero, 2 * FEW),
        to(target, victim.touched, 10),
    ];
    let sums = mover.run(process, &list, |_| ());
    let as_expected = sums.moved == PAGES / 2
        && sums.already_there + sums.duplicates == PAGES / 2 + 10
        && sums.zero_or_unmapped == FEW
        && sums.not_present == FEW;
    let mut wrong = check("moved, there, zero, untouched", as_expected, sums);
    let mut there = 0;
    Locator::new(kernel(), PageSize::KIB_4, 4096).locate(
        process,
        &[(victim.touched, PAGES)],
        |run| {
            there += if run.at == Located::Node(target) {
                run.pages
            } else {
                0
            }
        },
    )?;
    wrong += check("the locator agrees", there == PAGES, sums);
    // The program's text is mapped by this process, too. It lies wherever the
    // file was read, so it is sent to both nodes: one is a move.
    for (shared, name) in [(SharedPages::Leave, "left"), (SharedPages::Move, "moved")] {
        let config = Config {
            shared,
            ..Config::default()
        };
        let mut sums = Sums::default();
        for node in [from, target] {
            let list = [to(node, victim.text, 1)];
            Mover::new(kernel(), config).run(process, &list, |settled| sums.count(&settled));
        }
        let holds = match shared {
            SharedPages::Leave => sums.shared >= 1 && sums.moved == 0,
            SharedPages::Move => sums.moved >= 1 && sums.shared == 0,
        };
        wrong += check(&format!("shared text is {name}"), holds, sums);
    }
    let nowhere = NodeId(NodeId::LIMIT - 1);
    let sums = mover.run(process, &[to(nowhere, victim.touched, 3000)], |_| ());
    wrong += check("no such node", sums.no_such_node == 3000, sums);
    victim.end()?;
    Ok(wrong)
}

/// The child dies while its pages move.
fn prove_death(target: NodeId) -> Result<usize> {
    let mut victim = Victim::start()?;
    let mut moved = 0;
    let list = [to(target, victim.touched, PAGES)];
    let child = &mut victim.child;
    let sums = Mover::new(kernel(), Config::default()).run(victim.process, &list, |settled| {
        moved += usize::from(matches!(settled.outcome, Outcome::Moved { .. }));
        if moved == 3000 {
            // Dead and gone before the next batch.
            let _ = child.kill();
            let _ = child.wait();
        }
    });
    let holds = sums.settled() == PAGES && sums.process_gone > 0 && sums.moved >= 3000;
    Ok(check("killed half-way", holds, sums))
}

/// Sends children to `far` and back until `near` takes no more.
fn prove_full(near: NodeId, far: NodeId) -> Result<usize> {
    let mut mover = Mover::new(kernel(), Config::default());
    let mut locator = Locator::new(kernel(), PageSize::KIB_4, 4096);
    let mut victims = Vec::new();
    let mut wrong = 0;
    for _ in 0..16 {
        let victim = Victim::start()?;
        mover.run(victim.process, &[to(far, victim.touched, PAGES)], |_| ());
        let start = Instant::now();
        let list = [to(near, victim.touched, PAGES)];
        let sums = mover.run(victim.process, &list, |_| ());
        let elapsed = start.elapsed();
        let mut near_pages = 0;
        locator.locate(victim.process, &[(victim.touched, PAGES)], |run| {
            near_pages += if run.at == Located::Node(near) {
                run.pages
            } else {
                0
            };
        })?;
        let accounted = sums.settled() == PAGES && near_pages == sums.moved + sums.already_there;
        let what = format!("{near_pages} pages near after {elapsed:?}");
        wrong += check(&what, accounted, sums);
        victims.push(victim);
        if sums.no_memory > 0 {
            break;
        }
    }
    for victim in victims {
        victim.end()?;
    }
    Ok(wrong)
}

/// Moves everything to and fro and prints pages a second.
fn measure(from: NodeId, target: NodeId, batch: usize, busy: bool) -> Result<()> {
    let mut victim = Victim::start()?;
    let config = Config {
        batch,
        ..Config::default()
    };
    let mut mover = Mover::new(kernel(), config);
    mover.run(victim.process, &[to(from, victim.touched, PAGES)], |_| ());
    if busy {
        victim.toggle()?;
    }
    let (mut moved, mut busy_pages) = (0, 0);
    let start = Instant::now();
    for node in [target, from, target, from] {
        let sums = mover.run(victim.process, &[to(node, victim.touched, PAGES)], |_| ());
        moved += sums.moved;
        busy_pages += sums.busy;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "batch {batch} {}: {:.0} pages/s, {moved} of {} moved, {busy_pages} busy, {:.1} ms a batch",
        if busy { "busy" } else { "idle" },
        moved as f64 / seconds,
        4 * PAGES,
        seconds * 1000.0 / (4 * PAGES / batch) as f64,
    );
    victim.end()
}
