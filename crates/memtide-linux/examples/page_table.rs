//! Proves the accessed-bit scan on this machine.
//!
//! Without arguments it starts a child that owns 64 MiB, lets the child touch a
//! scattered eighth of its pages, scans, and compares page by page: reads and
//! writes, small pages, huge pages, and small pages while another thread maps and
//! unmaps without pause, twelve rounds each. With a pid it shows one second of
//! that process.
//!
//! Exits with 1 if a single page is wrong (or not huge where it should be) and
//! with 3 if the source is unavailable here. Changes nothing but the accessed bits
//! of the process that it looks at.

use memtide_linux::mover::Process;
use memtide_linux::source::page_table::PageTableScan;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::slice::from_ref;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 16_384;
/// Base pages in a huge page.
const HUGE: usize = 512;
const ROUNDS: u64 = 12;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("child") => {
            child(arguments.get(1).map_or("small", String::as_str)).map(|()| ExitCode::SUCCESS)
        }
        Some(pid) => show(pid.parse()?).map(|()| ExitCode::SUCCESS),
        None => prove(),
    }
}

/// Whether round `round` touches page `page` (with huge pages: huge page):
/// one in eight, scattered.
fn is_hot(round: u64, page: usize) -> bool {
    let mixed = (page as u64 ^ round << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 61 == 0
}

/// Owns the memory and touches it when told to.
fn child(kind: &str) -> Result<()> {
    let huge = kind == "huge";
    rustix::thread::disable_transparent_huge_pages(!huge)?;
    let mut memory = vec![1u8; (PAGES + HUGE) * PAGE];
    let aligned = memory.as_ptr().align_offset(HUGE * PAGE);
    println!("{}", memory.as_ptr() as usize + aligned);
    if kind == "churn" {
        std::thread::spawn(|| {
            loop {
                churn();
            }
        });
    }
    for line in stdin().lock().lines() {
        let round: u64 = line?.parse()?;
        forget_translations();
        // Of a huge page the first part is enough.
        let step = if huge { HUGE } else { 1 };
        for page in (0..PAGES)
            .step_by(step)
            .filter(|&page| is_hot(round, page / step))
        {
            let byte = &mut memory[aligned + page * PAGE];
            if round.is_multiple_of(2) {
                black_box(*byte);
            } else {
                *black_box(byte) = 2;
            }
        }
        println!("done");
        stdout().flush()?;
    }
    Ok(())
}

/// Makes the kernel flush this process's translations: an allocation of this
/// size is a mapping of its own, and unmapping more than 33 touched pages
/// flushes everything. Otherwise the processor might not look at the tables.
fn forget_translations() {
    let mut large = Vec::<u8>::with_capacity(128 << 20);
    for _ in 0..64 {
        large.resize(large.len() + PAGE, 1);
    }
    black_box(&large);
}

/// Makes the kernel build 64 tables of the lowest level and free them again:
/// zeroed memory is untouched, and one page in each 2 MiB is written.
fn churn() {
    let mut large = vec![0u8; 128 << 20];
    for at in (0..large.len()).step_by(HUGE * PAGE) {
        large[at] = 1;
    }
    black_box(&large);
}

struct Victim {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    first_vpn: u64,
}

impl Victim {
    fn start(kind: &str) -> Result<Victim> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["child", kind])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let commands = process.stdin.take().ok_or("no pipe to the child")?;
        let answers = BufReader::new(process.stdout.take().ok_or("no pipe from the child")?);
        let mut victim = Victim {
            process,
            commands,
            answers,
            first_vpn: 0,
        };
        victim.first_vpn = victim.answer()?.parse::<u64>()? / PAGE as u64;
        Ok(victim)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn touch(&mut self, round: u64) -> Result<()> {
        writeln!(self.commands, "{round}")?;
        self.answer().map(drop)
    }
}

fn prove() -> Result<ExitCode> {
    let start = Instant::now();
    let mut scanner = match PageTableScan::open(Path::new("/")) {
        Ok(scanner) => scanner,
        Err(unavailable) => {
            println!("unavailable: {unavailable}");
            return Ok(ExitCode::from(3));
        }
    };
    println!("open {:.1} ms", millis(start.elapsed()));
    let mut wrong = 0;
    for kind in ["small", "huge", "churn"] {
        let mut victim = Victim::start(kind)?;
        let process = identify(victim.process.id())?;
        let start = Instant::now();
        scanner.attach(process)?;
        println!("{kind}: attach {:.3} ms", millis(start.elapsed()));
        for round in 0..ROUNDS {
            wrong += prove_round(&mut scanner, process, &mut victim, kind == "huge", round)?;
            if kind == "churn" {
                show_churn(&mut scanner, process)?;
            }
        }
        drop(victim.commands);
        victim.process.wait()?;
        match scanner.scan(process, from_ref(&(0..1)), |_| ()) {
            Err(error) => println!("{kind}: afterwards: {error}"),
            Ok(_) => return Err("a process that ended was scanned".into()),
        }
        scanner.detach(process);
    }
    println!("{wrong} pages wrong");
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// Scans all of a process that maps and unmaps, and says what was met.
fn show_churn(scanner: &mut PageTableScan, process: Process) -> Result<()> {
    let (mut fewest, mut most, mut unstable, mut unreadable) = (u64::MAX, 0, 0, 0);
    let start = Instant::now();
    for _ in 0..50 {
        let stats = scanner.scan(process, from_ref(&(0..u64::MAX)), |_| ())?;
        fewest = fewest.min(stats.present);
        most = most.max(stats.present);
        unstable += stats.unstable;
        unreadable += stats.unreadable;
    }
    println!(
        "50 scans of all of it: {:.2} ms each, {fewest} to {most} pages, {unstable} tables \
         unstable, {unreadable} unreadable",
        millis(start.elapsed()) / 50.0
    );
    Ok(())
}

/// Clears, lets the child touch, scans; returns how many pages were wrong.
fn prove_round(
    scanner: &mut PageTableScan,
    process: Process,
    victim: &mut Victim,
    huge: bool,
    round: u64,
) -> Result<usize> {
    let start = Instant::now();
    scanner.clear(process)?;
    let clear = start.elapsed();
    victim.touch(round)?;
    let first = victim.first_vpn;
    // Absent until seen.
    let mut seen = vec![None; PAGES];
    let mut runs = 0;
    let start = Instant::now();
    let stats = scanner.scan(process, from_ref(&(first..first + PAGES as u64)), |run| {
        let at = (run.vpn - first) as usize;
        seen[at..at + run.pages as usize].fill(Some((run.accessed, run.huge)));
        runs += 1;
    })?;
    let scan = start.elapsed();
    let wrong = (0..PAGES)
        .filter(|&page| match seen[page] {
            None => true,
            Some((accessed, false)) => huge || accessed != is_hot(round, page),
            Some((accessed, true)) => !huge || accessed != is_hot(round, page / HUGE),
        })
        .count();
    println!(
        "round {round}: clear {:.2} ms, scan {:.2} ms, {runs} runs, {} tables, {} accessed, {} unstable, {wrong} wrong",
        millis(clear),
        millis(scan),
        stats.tables,
        stats.accessed,
        stats.unstable,
    );
    Ok(wrong)
}

/// One second of a running process, mapping by mapping.
fn show(pid: u32) -> Result<()> {
    let process = identify(pid)?;
    let mut scanner = PageTableScan::open(Path::new("/"))?;
    scanner.attach(process)?;
    scanner.clear(process)?;
    std::thread::sleep(Duration::from_secs(1));
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let (range, rest) = line.split_once(' ').ok_or("odd maps")?;
        let (from, to) = range.split_once('-').ok_or("odd maps")?;
        let vpn = |text| u64::from_str_radix(text, 16).map(|address| address / PAGE as u64);
        let stats = scanner.scan(process, from_ref(&(vpn(from)?..vpn(to)?)), |_| ())?;
        if stats.present > 0 {
            let name = rest.split_whitespace().nth(4).unwrap_or("");
            println!(
                "{range} {} of {} pages touched {name}",
                stats.accessed, stats.present
            );
        }
    }
    Ok(())
}

/// The process of that pid now. The command's name may hold anything, so the
/// fields are counted from its closing parenthesis: start is field 22.
fn identify(pid: u32) -> Result<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').ok_or("odd stat")?.1;
    let start_ticks = fields
        .split_whitespace()
        .nth(19)
        .ok_or("odd stat")?
        .parse()?;
    Ok(Process { pid, start_ticks })
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
