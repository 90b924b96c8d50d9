//! What the hotness store costs.
//!
//! - `record`: one access to a random page of two million, in the thread that
//!   made the random number; the number's own cost is shown as `empty`.
//! - `record-2-threads`: the same from two threads at once; the time is per
//!   access of both together, so half of `record` is perfect scaling. With
//!   `own-pages` each thread reports on a half of the pages, with `same-pages`
//!   both report on all, and nearly every cache line changes hands.
//! - `single` reports one by one, `batch` in buffers of 150.
//! - `pass`: a pass over a tebibyte with 1000 ready pages, when only their
//!   sections exist and when all 8192 do (compact only: precise would need 1 GiB);
//!   with the caches as they are and with the caches emptied before each pass.
//!
//! `cargo bench -p memtide-core -- --quick` takes half a minute.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use memtide_core::hotness::{Config, Disposition, Layout, SECTION_PAGES, Store};
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::hint::black_box;
use std::time::{Duration, Instant};

const LAYOUTS: [(&str, Layout); 2] = [("compact", Layout::Compact), ("precise", Layout::Precise)];
const PAGES: u64 = 2_000_000;
const TEBIBYTE: u64 = 1 << 28;
/// Accesses that a thread makes between two meetings with the other.
const ROUND: u64 = 30_000;

/// A random generator of a few instructions (xorshift64*).
struct Random(u64);

impl Random {
    fn page(&mut self, pages: u64) -> PageNumber {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let r = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        PageNumber((r * pages) >> 32)
    }
}

/// A store whose sections all exist.
fn warm(layout: Layout, pages: u64) -> Store {
    let store = Store::new(Config::new(layout), pages);
    for first in (0..pages).step_by(SECTION_PAGES) {
        store.record(PageNumber(first), None, Millis(0));
    }
    store
}

/// `count` accesses, a thousand of them a millisecond.
fn access(store: &Store, random: &mut Random, range: (u64, u64), count: u64) {
    for i in 0..count {
        let now = Millis(10_000 + i / 1000);
        let page = PageNumber(range.0 + random.page(range.1 - range.0).0);
        black_box(store.record(page, Some(NodeId(1)), now));
    }
}

/// The same, handed over in buffers of 150 as a sampler does.
fn access_batched(store: &Store, random: &mut Random, range: (u64, u64), count: u64) {
    let mut buffer = Vec::with_capacity(150);
    let mut done = 0;
    while done < count {
        buffer.clear();
        for _ in 0..150.min(count - done) {
            let page = PageNumber(range.0 + random.page(range.1 - range.0).0);
            buffer.push((page, Some(NodeId(1))));
        }
        black_box(store.record_batch(&buffer, Millis(10_000 + done / 1000)));
        done += buffer.len() as u64;
    }
}

/// How accesses are handed over.
type Access = fn(&Store, &mut Random, (u64, u64), u64);
const WAYS: [(&str, Access); 2] = [("single", access), ("batch", access_batched)];

fn record(c: &mut Criterion) {
    let mut group = c.benchmark_group("record");
    group.bench_function("empty", |b| {
        let mut random = Random(1);
        b.iter(|| black_box(random.page(PAGES)));
    });
    for (name, layout) in LAYOUTS {
        for (way, access) in WAYS {
            let store = warm(layout, PAGES);
            let mut random = Random(1);
            group.bench_function(BenchmarkId::new(name, way), |b| {
                b.iter_custom(|count| {
                    let start = Instant::now();
                    access(&store, &mut random, (0, PAGES), count);
                    start.elapsed()
                });
            });
        }
    }
    group.finish();
}

fn record_two_threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("record-2-threads");
    let all = (0, PAGES);
    let half = PAGES / 2;
    for (name, layout) in LAYOUTS {
        for (pages, ranges) in [
            ("same-pages", [all, all]),
            ("own-pages", [(0, half), (half, PAGES)]),
        ] {
            for (way, access) in WAYS {
                let store = warm(layout, PAGES);
                group.bench_function(BenchmarkId::new(name, format!("{pages}-{way}")), |b| {
                    b.iter_custom(|count| two_threads(&store, access, ranges, count));
                });
            }
        }
    }
    group.finish();
}

/// Both threads do their halves in rounds that start together; a round takes as
/// long as the slower of the two.
fn two_threads(store: &Store, access: Access, ranges: [(u64, u64); 2], count: u64) -> Duration {
    let rounds = count.div_ceil(2 * ROUND);
    let barrier = std::sync::Barrier::new(2);
    let run = |seed, range| {
        let mut random = Random(seed);
        let round = |_| {
            barrier.wait();
            let start = Instant::now();
            access(store, &mut random, range, ROUND);
            start.elapsed()
        };
        (0..rounds).map(round).collect::<Vec<Duration>>()
    };
    let [mine, theirs] = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(2, ranges[1]));
        [run(1, ranges[0]), other.join().unwrap()]
    });
    let spent: Duration = mine.iter().zip(&theirs).map(|(a, b)| a.max(b)).sum();
    spent.mul_f64(count as f64 / (rounds * 2 * ROUND) as f64)
}

fn pass(c: &mut Criterion) {
    let mut group = c.benchmark_group("pass-1TiB-1000-ready");
    let touched = LAYOUTS.map(|(name, layout)| (name, Store::new(Config::new(layout), TEBIBYTE)));
    let all = warm(Layout::Compact, TEBIBYTE);
    let stores = [
        ("compact/touched-sections", &touched[0].1),
        ("precise/touched-sections", &touched[1].1),
        ("compact/all-sections", &all),
    ];
    for (name, store) in stores {
        group.bench_function(name, |b| b.iter_custom(|n| passes(store, n, || ())));
        // More than the last level of this host's cache, written each time.
        let mut junk = vec![0u8; 96 << 20];
        let mut empty_caches = || junk.iter_mut().step_by(64).for_each(|b| *b ^= 1);
        group.bench_function(format!("{name}-caches-emptied"), |b| {
            b.iter_custom(|n| passes(store, n, &mut empty_caches));
        });
    }
    group.finish();
}

/// Time of `count` passes, each over the same 1000 pages made ready anew.
fn passes(store: &Store, count: u64, mut before: impl FnMut()) -> Duration {
    let mut random = Random(7);
    let ready: Vec<PageNumber> = (0..1000).map(|_| random.page(TEBIBYTE)).collect();
    let mut spent = Duration::ZERO;
    for _ in 0..count {
        for &page in &ready {
            store.record(page, None, Millis(5000));
            store.record(page, None, Millis(5000));
        }
        before();
        let start = Instant::now();
        let report = store.drain(0..store.sections(), Millis(5001), |page, taken| {
            black_box((page, taken));
            Disposition::Take
        });
        spent += start.elapsed();
        assert!(report.taken >= 990, "{report:?}");
    }
    spent
}

criterion_group!(benches, record, record_two_threads, pass);
criterion_main!(benches);
