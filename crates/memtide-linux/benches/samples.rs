//! What a sample costs this process: found in the ring, decoded with every check, counted.
//!
//! `cargo bench -p memtide-linux --bench samples -- --quick`. Records are forged from the documented
//! layouts and laid into a ring's worth of memory that wraps in the middle of a record. As the live
//! source does, each ring is gone through twice: once to see whether anything is missing, once to
//! decode. Counting is what balancing needs of a sample at least: a lookup of the process, a count by
//! thread, a count in the record of the page. The figure is the time of one sample.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memtide_linux::perf::decoder::{Decoder, Origin, Processor};
use memtide_linux::perf::{MemoryAccess, Refusals, SampleLayout, Scratch, ring};
use std::hint::black_box;

#[path = "../src/perf/forge.rs"]
mod forge;

use forge::{Fields, IbsOp};

/// As many as a ring of 1,024 pages holds of the longest.
const SAMPLES: usize = 20_000;
/// Pages that the accesses fall on.
const PAGES: usize = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

const COMMON: u64 = 0x8_008e;
const HARDWARE: u64 = 0xc100;
const RAW: u64 = 0x400;

/// A ring's records. Every eighth access was answered by a cache and is refused, as some always are.
fn records(sample_type: u64, origin: Origin) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut random = 88_172_645_463_325_252u64;
    for number in 0..SAMPLES as u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let address = BASE + (random % PAGES as u64) * 4096 + 64;
        let cached = number % 8 == 7;
        let op = IbsOp {
            linear: address,
            data2: if cached { 1 } else { 3 },
            ..IbsOp::default()
        };
        let fields = Fields {
            tid: 100 + (number % 64) as u32,
            time: number * 1000,
            addr: address,
            raw: match origin {
                Origin::Ibs => op.raw(),
                _ => Vec::new(),
            },
            data_src: match cached {
                true => 2 | (2 | 0x20) << 5 | 2 << 33,
                false => 2 | (2 | 0x80) << 5 | 0xd << 33,
            },
            weight: 300,
            ..Fields::default()
        };
        bytes.extend(fields.record(sample_type));
    }
    bytes
}

/// What is counted of an access.
struct Counts {
    pids: Vec<u32>,
    by_thread: Vec<u64>,
    by_page: Vec<u8>,
    refused: Refusals,
    foreign: u64,
}

impl Counts {
    fn count(&mut self, access: &MemoryAccess) {
        if self.pids.binary_search(&access.pid).is_err() {
            self.foreign += 1;
            return;
        }
        self.by_thread[access.tid as usize % 256] += 1;
        let page = (access.address - BASE) as usize / 4096;
        let count = &mut self.by_page[page % PAGES];
        *count = count.saturating_add(1);
    }
}

fn samples(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a sample");
    group.throughput(Throughput::Elements(SAMPLES as u64));
    let origins = [
        ("ibs", COMMON | HARDWARE | RAW, Origin::Ibs),
        ("pebs", COMMON | HARDWARE, Origin::Pebs),
        ("faults", COMMON, Origin::Faults),
    ];
    for (name, sample_type, origin) in origins {
        let bytes = records(sample_type, origin);
        let (older, newer) = bytes.split_at(bytes.len() / 2 + 4);
        let layout = SampleLayout::new(sample_type).unwrap();
        let decoder = Decoder::new(layout, origin, Processor::default());
        let mut scratch = Scratch::new();
        let mut counts = Counts {
            pids: (0..64).map(|pid| pid * 50).collect(),
            by_thread: vec![0; 256],
            by_page: vec![0; PAGES],
            refused: Refusals::default(),
            foreign: 0,
        };
        group.bench_function(BenchmarkId::new("decoded and counted", name), |bencher| {
            bencher.iter(|| {
                let seen = ring::walk(older, newer, &mut scratch, |record| {
                    black_box(record.kind);
                });
                assert_eq!((seen.samples, seen.lost), (SAMPLES as u64, 0));
                ring::walk(older, newer, &mut scratch, |record| {
                    match decoder.decode(record) {
                        Ok(access) => counts.count(&access),
                        Err(why) => counts.refused.count(why),
                    }
                })
            });
        });
        assert_eq!(counts.foreign, 0);
        group.bench_function(BenchmarkId::new("decoded", name), |bencher| {
            bencher.iter(|| {
                let mut sum = 0u64;
                ring::walk(older, newer, &mut scratch, |record| {
                    if let Ok(access) = decoder.decode(record) {
                        sum = sum.wrapping_add(access.address);
                    }
                });
                black_box(sum)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, samples);
criterion_main!(benches);
