//! The program whose pages are to be put where they belong, and which tells the truth about itself.
//!
//! A test needs to know which pages *are* hot. No kernel interface says so exactly, but the program
//! that touches them does: it draws its hot set from a seed, places every page on a chosen node,
//! prints where everything lies as one line of JSON, and then touches the hot pages in every window
//! of 50 ms until it is killed. After placement the policy is back to default, so that the pages may
//! go wherever somebody thinks they should, unless the policy is what is to be respected.
//!
//! Three things make it a fair subject. It is busy for most of the time ([`Options::busy`]): NUMA
//! balancing paces its scans by the CPU time of the program, so that a program that mostly sleeps
//! makes the kernel look slow. It sleeps a little after each sweep. And it flushes its TLB entries about
//! twenty times a second, as the limited TLB of a processor would do by itself: the emulated one
//! keeps thousands of entries for as long as nobody else runs, and a page whose translation stays
//! cached sets no accessed bit again (1,370 of 2,048 pages were missed that way).
//!
//! Terms. *Hot set*: the page numbers touched in every sweep. *Sweep*: one touch of each hot page.
//! *Filler*: a victim without hot pages, there to occupy a node.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::hot_set::{draw, runs};
use super::procfs::node_free_mib;
use super::sys::{
    Backing, HUGE_PAGE_SIZE, Mapping, PAGE_SIZE, Policy, die_with_parent, fork, set_task_policy,
};

/// How often the TLB is flushed.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// The shortest and the longest sleep after a sweep.
const NAP: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(25)];
/// Pages of the scratch mapping: above the 33 that the kernel flushes one at a time.
const SCRATCH_PAGES: usize = 64;
const HUGE_PAGES: usize = HUGE_PAGE_SIZE / PAGE_SIZE;

/// What kind of victim to be.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// MiB of memory
    #[arg(long, default_value_t = 256)]
    pub size: usize,
    /// MiB of it that are hot
    #[arg(long, default_value_t = 32)]
    pub hot: usize,
    /// Node on which every page starts
    #[arg(long, default_value_t = 2)]
    pub node: u32,
    /// Hot pages drawn one by one instead of in one run
    #[arg(long)]
    pub scattered: bool,
    /// Hot pages drawn in pieces of 2 MiB, of small pages
    #[arg(long, conflicts_with_all = ["scattered", "huge"])]
    pub pieces: bool,
    /// Seed of the draw
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threads, each touching its part of the hot set
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Processes, each with memory and a hot set of its own
    #[arg(long, default_value_t = 1)]
    pub processes: usize,
    /// Transparent huge pages; the hot set is whole huge pages
    #[arg(long)]
    pub huge: bool,
    /// Shared memory, mapped and touched by two processes
    #[arg(long)]
    pub shared: bool,
    /// A file to write (its page cache on the node), map read-only and read
    #[arg(long)]
    pub map_file: Option<PathBuf>,
    /// Leave it to the kernel and the process's policy where pages start
    #[arg(long, conflicts_with_all = ["node", "map_file", "keep_policy"])]
    pub anywhere: bool,
    /// Leave the memory bound to the node instead of freeing it of its policy
    #[arg(long)]
    pub keep_policy: bool,
    /// Percent of the time that each thread is busy
    #[arg(long, default_value_t = 80)]
    pub busy: u32,
    /// After so many seconds other pages become hot
    #[arg(long)]
    pub move_hot_after: Option<f64>,
    /// Touch every page once in so many seconds as well
    #[arg(long)]
    pub touch_all_every: Option<f64>,
    /// Instead of --size: fill the node until so many MiB are free, then never touch it again
    #[arg(long)]
    pub leave_free: Option<u64>,
}

/// A line that a victim prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Truth {
    /// `ready` or `moved`.
    pub event: String,
    /// The process.
    pub pid: u32,
    /// Bytes of a base page.
    pub page_size: usize,
    /// First address of its memory.
    pub start: usize,
    /// Base pages of its memory.
    pub pages: usize,
    /// Runs of hot base pages: first page number, count.
    pub hot: Vec<(usize, usize)>,
}

/// The memory and its two alternating hot sets, shared by the victim's threads.
struct Subject {
    mapping: Mapping,
    hot_sets: [Vec<usize>; 2],
    turn: AtomicUsize,
}

impl Subject {
    fn truth(&self, event: &str) -> Truth {
        Truth {
            event: event.to_owned(),
            pid: std::process::id(),
            page_size: PAGE_SIZE,
            start: self.mapping.start(),
            pages: self.mapping.pages(),
            hot: runs(self.hot()),
        }
    }

    fn hot(&self) -> &[usize] {
        &self.hot_sets[self.turn.load(Ordering::Relaxed) % 2]
    }

    fn tell(&self, event: &str) -> Result<()> {
        // One write for a whole line: several processes share the pipe.
        let mut line = serde_json::to_vec(&self.truth(event))?;
        line.push(b'\n');
        let mut output = std::io::stdout().lock();
        output.write_all(&line)?;
        output.flush().context("nobody reads the victim's lines")
    }

    fn change_hot_set(&self) -> Result<()> {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.tell("moved")
    }
}

/// Runs the victim; returns only on error.
///
/// # Errors
/// When its memory cannot be placed as asked.
pub fn main(options: &Options) -> Result<()> {
    if let Some(free) = options.leave_free {
        return fill(options.node, free);
    }
    ensure!(options.hot <= options.size, "--hot must not exceed --size");
    ensure!(
        (1..=100).contains(&options.busy),
        "--busy is a percentage from 1 to 100"
    );
    ensure!(
        options.threads > 0 && options.processes > 0,
        "--threads and --processes start at 1"
    );
    let mut seed = options.seed;
    for number in 1..options.processes {
        if fork()?.is_none() {
            die_with_parent()?;
            seed += number as u64;
            break;
        }
    }
    let subject = Arc::new(place(options, seed)?);
    // Both mappers of shared memory must exist before the truth is told.
    let twin = options.shared && {
        let child = fork()?.is_none();
        if child {
            die_with_parent()?;
        }
        child
    };
    for page in 0..subject.mapping.pages() {
        subject.mapping.touch(page, 0);
    }
    if twin {
        return Err(sweep_forever(&subject, 0, options.threads, options.busy));
    }
    subject.tell("ready")?;
    for number in 1..options.threads {
        let (subject, threads, busy) = (Arc::clone(&subject), options.threads, options.busy);
        std::thread::spawn(move || sweep_forever(&subject, number, threads, busy));
    }
    if let Some(seconds) = options.touch_all_every {
        let subject = Arc::clone(&subject);
        std::thread::spawn(move || touch_all_forever(&subject, seconds));
    }
    if let Some(seconds) = options.move_hot_after {
        let subject = Arc::clone(&subject);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            subject.change_hot_set()
        });
    }
    let listener = Arc::clone(&subject);
    std::thread::spawn(move || -> Result<()> {
        for line in std::io::stdin().lock().lines() {
            if line?.trim() == "move" {
                listener.change_hot_set()?;
            }
        }
        Ok(())
    });
    Err(sweep_forever(&subject, 0, options.threads, options.busy))
}

fn place(options: &Options, seed: u64) -> Result<Subject> {
    let bytes = options.size << 20;
    let bind = Policy::Bind(options.node);
    let mapping = if let Some(path) = &options.map_file {
        // The page cache's pages follow the policy of the task that brings them in.
        set_task_policy(bind)?;
        let mut file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        // One page a write keeps the cache in single pages where the file system knows larger ones.
        for page in 0..bytes / PAGE_SIZE {
            file.write_all(&[page as u8; PAGE_SIZE])?;
        }
        file.sync_all()?;
        set_task_policy(Policy::Default)?;
        Mapping::new(bytes, Backing::File(File::open(path)?.as_fd()))?
    } else {
        let backing = if options.shared {
            Backing::Shared
        } else {
            Backing::Anonymous
        };
        let mapping = Mapping::new(bytes, backing)?;
        let advice = if options.huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        mapping
            .advise(advice)
            .context("cannot choose the page size")?;
        if !options.anywhere {
            mapping.set_policy(bind).context("cannot bind the memory")?;
        }
        mapping
    };
    for page in 0..mapping.pages() {
        // A first access that reads maps the zero page, and the write that follows breaks a huge
        // one into small pages on kernels before 6.13.
        match options.huge {
            true => mapping.write(page),
            false => mapping.touch(page, 1),
        }
    }
    if options.map_file.is_none() && !options.keep_policy && !options.anywhere {
        mapping
            .set_policy(Policy::Default)
            .context("cannot free the memory of its policy")?;
    }
    let whole = options.huge || options.pieces;
    let unit = if whole { HUGE_PAGES } else { 1 };
    let (total, hot) = (
        mapping.pages() / unit,
        (options.hot << 20) / PAGE_SIZE / unit,
    );
    let hot_sets = [0, 1].map(|turn| {
        draw(total, hot, options.scattered || options.pieces, seed, turn)
            .into_iter()
            .flat_map(|first| first * unit..(first + 1) * unit)
            .collect()
    });
    Ok(Subject {
        mapping,
        hot_sets,
        turn: AtomicUsize::new(0),
    })
}

/// How long to sleep after a sweep that took `sweep`, to be busy `percent` of the time.
fn nap(sweep: Duration, percent: u32) -> Duration {
    (sweep * (100 - percent) / percent).clamp(NAP[0], NAP[1])
}

/// Thread `number` of `threads`: touches its part of the hot set in every sweep. Returns on error.
fn sweep_forever(subject: &Subject, number: usize, threads: usize, busy: u32) -> anyhow::Error {
    let scratch = match Mapping::new(SCRATCH_PAGES * PAGE_SIZE, Backing::Anonymous) {
        Ok(scratch) => scratch,
        Err(error) => return error.into(),
    };
    for page in 0..scratch.pages() {
        scratch.touch(page, 0);
    }
    let mut word = 0;
    let mut flushed = Instant::now();
    loop {
        let began = Instant::now();
        let hot = subject.hot();
        let part = hot.len().div_ceil(threads);
        word = (word + 8) % (PAGE_SIZE / 8);
        for &page in hot.iter().skip(number * part).take(part) {
            subject.mapping.touch(page, word);
        }
        // One thread's flush reaches every processor that runs any of them, and is dear for that.
        if number == 0 && flushed.elapsed() >= FLUSH_EVERY {
            flushed = Instant::now();
            if let Err(error) = scratch.flush_tlb() {
                return error.into();
            }
        }
        std::thread::sleep(nap(began.elapsed(), busy));
    }
}

/// Touches every page once in `seconds`, evenly.
fn touch_all_forever(subject: &Subject, seconds: f64) {
    let pages = subject.mapping.pages();
    let began = Instant::now();
    let mut done = 0;
    loop {
        let due = (began.elapsed().as_secs_f64() / seconds * pages as f64) as usize;
        while done < due {
            subject.mapping.touch(done % pages, 2);
            done += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Occupies `node` until `free` MiB are left on it, then sleeps.
fn fill(node: u32, free: u64) -> Result<()> {
    const STEP_MIB: u64 = 8;
    let mut mappings = Vec::new();
    loop {
        let have = node_free_mib(node)?;
        if have <= free {
            break;
        }
        ensure!(mappings.len() < 4096, "node {node} does not fill up");
        let step = (have - free).min(STEP_MIB) as usize;
        let mapping = Mapping::new(step << 20, Backing::Anonymous)?;
        mapping.advise(libc::MADV_NOHUGEPAGE)?;
        mapping.set_policy(Policy::Bind(node))?;
        for page in 0..mapping.pages() {
            mapping.touch(page, 0);
        }
        mapping.set_policy(Policy::Default)?;
        mappings.push(mapping);
    }
    let truth = Truth {
        event: "ready".to_owned(),
        pid: std::process::id(),
        page_size: PAGE_SIZE,
        start: mappings.first().map_or(0, Mapping::start),
        pages: mappings.iter().map(Mapping::pages).sum(),
        hot: Vec::new(),
    };
    println!("{}", serde_json::to_string(&truth)?);
    loop {
        std::thread::park();
        if mappings.is_empty() {
            bail!("the filler had nothing to fill");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Busy 80 % of the time is a quarter of the sweep asleep: 20 ms and 5 ms; never under 1 ms.
    #[test]
    fn naps_follow_the_sweeps() {
        assert_eq!(nap(Duration::from_millis(20), 80), Duration::from_millis(5));
        assert_eq!(
            nap(Duration::from_millis(20), 50),
            Duration::from_millis(20)
        );
        assert_eq!(
            nap(Duration::from_micros(400), 80),
            Duration::from_millis(1)
        );
        assert_eq!(
            nap(Duration::from_millis(20), 100),
            Duration::from_millis(1)
        );
    }
}
