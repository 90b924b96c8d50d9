//! Figures of one machine: reads a second, shootdowns for each evicted page, and
//! the most that was resident, for each way of unmapping and each pattern.
//!
//! `cargo run --release -p memtide-pager --example figures -- [MiB] [seconds] [threads]`
//!
//! The interrupt count is the machine's (the TLB line of /proc/interrupts):
//! compare rows of one run, on a quiet machine.

use memtide_pager::{Mode, Pager, Policy, Unmapping};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn shootdowns() -> u64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("TLB:"));
    let numbers = line
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1));
    numbers.map_while(|word| word.parse::<u64>().ok()).sum()
}

fn next(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|word| word.parse::<u64>().expect("a number"));
    let megabytes = numbers.next().unwrap_or(512);
    let seconds = numbers.next().unwrap_or(3);
    let threads = numbers.next().unwrap_or(2);
    let pages = (megabytes << 20) / PAGE as u64;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for page in 0..pages {
        let bytes = page.to_le_bytes().repeat(PAGE / 8);
        file.write_all(&bytes).expect("room on the disk");
    }
    file.as_file().sync_all().expect("a disk");
    println!("{megabytes} MiB, a quarter of it in memory, {threads} threads, {seconds} s a row");
    println!(
        "pattern  mode    unmapping      policy         reads/s  per evicted  peak/budget  evicted  rescued  cpu%"
    );
    let ways = [
        (Mode::File, Unmapping::Lazy, Policy::ScanResistant),
        (Mode::File, Unmapping::Lazy, Policy::Fifo),
        (Mode::File, Unmapping::EagerPages, Policy::Fifo),
        (Mode::Strict, Unmapping::Lazy, Policy::ScanResistant),
        (Mode::Strict, Unmapping::EagerGranules, Policy::Fifo),
    ];
    for pattern in ["uniform", "hot", "sweep"] {
        for (mode, unmapping, policy) in ways {
            row(
                file.path(),
                pages,
                pattern,
                (mode, unmapping, policy),
                seconds,
                threads,
            );
        }
    }
}

fn row(
    path: &std::path::Path,
    pages: u64,
    pattern: &str,
    (mode, unmapping, policy): (Mode, Unmapping, Policy),
    seconds: u64,
    threads: u64,
) {
    let budget = pages * PAGE as u64 / 4;
    let pager = Pager::builder()
        .budget(budget)
        .mode(mode)
        .unmapping(unmapping)
        .policy(policy)
        .start()
        .expect("a pager");
    let region = pager.open(path).expect("a region");
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut measured = (0, 0, pager.statistics());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (region, stop, reads) = (&region, &stop, &reads);
            scope.spawn(move || {
                let mut state = 88_172_645_463_325_252 + thread;
                let mut page = next(&mut state, pages);
                while !stop.load(Relaxed) {
                    for _ in 0..256 {
                        page = match pattern {
                            "uniform" => next(&mut state, pages),
                            "sweep" => (page + 1) % pages,
                            _ if next(&mut state, 100) < 98 => next(&mut state, pages / 8),
                            _ => next(&mut state, pages),
                        };
                        let at = page as usize * PAGE + 8;
                        let word = region.as_slice()[at..at + 8].try_into().expect("8 bytes");
                        assert_eq!(u64::from_le_bytes(word), page);
                    }
                    reads.fetch_add(256, Relaxed);
                }
            });
        }
        // The first second fills memory.
        std::thread::sleep(Duration::from_secs(1));
        let before = (
            reads.load(Relaxed),
            shootdowns(),
            pager.statistics(),
            Instant::now(),
        );
        std::thread::sleep(Duration::from_secs(seconds));
        measured.0 =
            ((reads.load(Relaxed) - before.0) as f64 / before.3.elapsed().as_secs_f64()) as u64;
        measured.1 = shootdowns() - before.1;
        let now = pager.statistics();
        let evicted = now.dropped_pages - before.2.dropped_pages;
        println!(
            "{pattern:8} {:7} {:14} {:14} {:>7}k  {:>11.5}  {:>11.2}  {:>7}  {:>7} {:>5.0}",
            format!("{mode:?}"),
            format!("{unmapping:?}"),
            format!("{policy:?}"),
            measured.0 / 1000,
            measured.1 as f64 / evicted.max(1) as f64,
            now.peak_resident_bytes as f64 / budget as f64,
            evicted,
            now.rescued_pages - before.2.rescued_pages,
            (now.evictor_us - before.2.evictor_us) as f64 / (seconds as f64 * 1e4),
        );
        stop.store(true, Relaxed);
    });
}
