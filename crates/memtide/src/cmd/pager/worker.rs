//! One way of reading, measured in a process of its own, so that a cgroup can
//! limit it and one way leaves nothing behind for the next.
//!
//! The worker opens what it reads, prints `ready` and waits for a line: until
//! then its parent limits it. It then warms up, measures, and prints what it
//! [`Measured`] as one line of JSON. If its parent goes away, so does it.
//!
//! All ways are measured by the same means: pages read from the disk are what
//! the kernel charges this process with (`/proc/self/io`), evicted is what was
//! read and is not in memory at the end, and shootdowns are the machine's
//! (`/proc/interrupts`).

use super::args::{Hold, Pattern, Way, WorkerArgs};
use super::content::{self, PAGE_BYTES, PAGE_WORDS};
use super::readers::{Count, Walk, Words, check_words, first_word, read, total};
use crate::shared::context::Context;
use anyhow::Context as _;
use memtide_linux::fs::Root;
use memtide_linux::fs::interrupts::tlb_shootdowns;
use memtide_linux::fs::proc::Process;
use memtide_linux::sys::file_map::FileMap;
use memtide_pager::{Mode, Pager, ReadOrder, Region, Statistics, Unmapping};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked how much of the file is in memory.
const LOOK: Duration = Duration::from_millis(100);

/// How long it is listened to what other programs do.
const LISTEN: Duration = Duration::from_millis(300);

/// How often the kernel is asked to let go of the file, and how long apart.
const DROPS: u32 = 10;
const BETWEEN_DROPS: Duration = Duration::from_millis(50);

/// What one way of reading came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Reads of a page in `elapsed_s` seconds.
    pub reads: u64,
    pub elapsed_s: f64,
    /// Reads that showed a byte that should not be there, warm-up included.
    pub wrong_pages: u64,
    /// Pages read from the disk; `None` where the kernel does not say.
    pub refilled_pages: Option<u64>,
    pub evicted_pages: Option<u64>,
    /// Of the whole machine.
    pub shootdowns: Option<u64>,
    /// The same a second, before anything was read: other programs'.
    pub others_shootdowns_per_s: Option<f64>,
    /// The most of the file that was seen in memory, from the warm-up on.
    pub peak_resident_bytes: Option<u64>,
    /// What of the data was in memory at the end, by node; `None` where the kernel does not say.
    pub mapped: Option<Vec<OnNode>>,
    /// Whether the file's every byte is known and was checked.
    pub checked: bool,
    /// How the pager unmaps on this kernel.
    pub unmap: Option<String>,
    /// What the pager counted meanwhile.
    pub pager: Option<serde_json::Value>,
    /// What was in memory before and could not be dropped.
    pub left_in_memory_bytes: u64,
}

/// Bytes on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OnNode {
    pub node: u16,
    pub bytes: u64,
}

/// What is read.
enum Data {
    Plain,
    Pager(Pager, Region),
}

/// Runs the worker.
pub fn run(args: &WorkerArgs, context: &Context) -> anyhow::Result<ExitCode> {
    // What it is not: an error that could be helped.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let file = File::open(&args.file).with_context(|| args.file.display().to_string())?;
    let bytes = file.metadata()?.len();
    if let Some(policy) = &args.memory_policy {
        // Threads inherit it: a page-cache page follows the thread that reads it in.
        policy.apply_to_thread()?;
    }
    let map = FileMap::new(&file, usize::try_from(bytes)?)?;
    if args.way != Way::Kernel {
        // It shows what is in memory, and is no reason to read more.
        map.keep_small();
    }
    let known = is_known(&args.file, bytes)?;
    let left = drop_from_memory(&file, &map) * PAGE_BYTES;
    let others = others_shootdowns(&context.root);
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    let data = open(args, &map)?;
    let measured = measure(args, &context.root, &map, &data, known)?;
    let measured = Measured {
        left_in_memory_bytes: left,
        others_shootdowns_per_s: others,
        ..measured
    };
    let mut line = serde_json::to_string(&measured)?;
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the kernel to let go of the file's clean pages that nobody maps, again while some that are
/// being read in stay. Returns how many pages are left.
fn drop_from_memory(file: &File, map: &FileMap) -> u64 {
    for _ in 0..DROPS {
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        if map.resident_pages() == Some(0) {
            return 0;
        }
        std::thread::sleep(BETWEEN_DROPS);
    }
    map.resident_pages().unwrap_or(0)
}

/// Opens what is read. A program that reads in no order says so to the kernel,
/// whoever keeps its budget; otherwise each fault reads in what lies around.
fn open(args: &WorkerArgs, map: &FileMap) -> anyhow::Result<Data> {
    let random = args.pattern != Pattern::Sweep;
    let unmapping = match args.way {
        Way::Kernel if random => {
            map.expect_random();
            return Ok(Data::Plain);
        }
        Way::Kernel => return Ok(Data::Plain),
        Way::Eager => Unmapping::EagerPages,
        Way::Lazy => Unmapping::Lazy,
    };
    let mut builder = Pager::builder().budget(args.budget).unmapping(unmapping);
    if args.mode == Hold::Strict {
        builder = builder.mode(Mode::Strict);
    }
    if let Some(policy) = &args.memory_policy {
        builder = builder.memory_policy(policy.clone());
    }
    let pager = builder.start()?;
    let region = pager.open(&args.file)?;
    if random {
        region.advise(ReadOrder::Random);
    }
    Ok(Data::Pager(pager, region))
}

impl Words for FileMap {
    fn check(&self, page: u64, known: bool) -> usize {
        check_words(self.read(first_word(page), PAGE_WORDS), page, known)
    }
}

impl Words for Region {
    fn check(&self, page: u64, known: bool) -> usize {
        let bytes = &self.as_slice()[page as usize * PAGE_BYTES as usize..][..PAGE_BYTES as usize];
        let (words, _) = bytes.as_chunks::<8>();
        check_words(
            words.iter().map(|word| u64::from_ne_bytes(*word)),
            page,
            known,
        )
    }
}

/// The kernel's counters at one moment.
struct Moment {
    at: Instant,
    reads: u64,
    read_bytes: Option<u64>,
    shootdowns: Option<u64>,
    resident_pages: Option<u64>,
    pager: Option<Statistics>,
}

fn measure(
    args: &WorkerArgs,
    root: &Root,
    map: &FileMap,
    data: &Data,
    known: bool,
) -> anyhow::Result<Measured> {
    let pages = (map.words() / PAGE_WORDS) as u64;
    let counts: Vec<Count> = (0..args.threads).map(|_| Count::default()).collect();
    let stop = AtomicBool::new(false);
    // In strict mode the data does not lie in the page cache.
    let resident_pages = || match data {
        Data::Pager(pager, _) if args.mode == Hold::Strict => {
            Some(pager.statistics().resident_bytes / PAGE_BYTES)
        }
        _ => map.resident_pages(),
    };
    let mut peak = None;
    let (before, after) = std::thread::scope(|scope| {
        for (thread, count) in counts.iter().enumerate() {
            let walk = Walk::new(
                args.pattern,
                pages,
                args.budget / PAGE_BYTES,
                thread as u64,
                args.threads as u64,
            );
            let stop = &stop;
            scope.spawn(move || match data {
                Data::Plain => read(map, walk, known, count, stop),
                Data::Pager(_, region) => read(region, walk, known, count, stop),
            });
        }
        let moment = || Moment {
            at: Instant::now(),
            reads: total(&counts).0,
            read_bytes: read_bytes(root),
            shootdowns: tlb_shootdowns(root).ok().flatten(),
            resident_pages: resident_pages(),
            pager: match data {
                Data::Plain => None,
                Data::Pager(pager, _) => Some(pager.statistics()),
            },
        };
        let mut watch = |seconds: f64| {
            let end = Instant::now() + Duration::from_secs_f64(seconds);
            while Instant::now() < end {
                peak = peak.max(resident_pages());
                std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            }
        };
        let seconds = args.duration.as_secs_f64();
        watch((seconds / 4.0).max(0.1));
        let before = moment();
        watch(seconds);
        let after = moment();
        stop.store(true, Ordering::Relaxed);
        (before, after)
    });
    let difference =
        |of: fn(&Moment) -> Option<u64>| Some(of(&after)?.saturating_sub(of(&before)?));
    let refilled = difference(|moment| moment.read_bytes).map(|bytes| bytes / PAGE_BYTES);
    let grown = after.resident_pages.zip(before.resident_pages);
    let grown = grown.map_or(0, |(after, before)| after as i64 - before as i64);
    let pager = after.pager.zip(before.pager);
    Ok(Measured {
        reads: after.reads - before.reads,
        elapsed_s: (after.at - before.at).as_secs_f64(),
        wrong_pages: total(&counts).1,
        refilled_pages: refilled,
        evicted_pages: refilled.map(|pages| pages.saturating_add_signed(-grown)),
        shootdowns: difference(|moment| moment.shootdowns),
        others_shootdowns_per_s: None,
        peak_resident_bytes: peak.map(|pages| pages * PAGE_BYTES),
        mapped: by_node(root, map, data, args.mode),
        checked: known,
        unmap: match data {
            Data::Plain => None,
            Data::Pager(pager, _) => Some(pager.state().unmap.to_string()),
        },
        pager: pager
            .map(|(after, before)| since(&after, &before))
            .transpose()?,
        left_in_memory_bytes: 0,
    })
}

/// The pager's counters, less what they were before; `resident` figures and the
/// pending pages as they are.
fn since(after: &Statistics, before: &Statistics) -> anyhow::Result<serde_json::Value> {
    let mut after = serde_json::to_value(after)?;
    let before = serde_json::to_value(before)?;
    for (name, value) in after.as_object_mut().into_iter().flatten() {
        let stands = name.contains("resident") || name == "pending_pages" || name == "budget_bytes";
        if let (false, Some(now), Some(then)) = (stands, value.as_u64(), before[name].as_u64()) {
            *value = now.saturating_sub(then).into();
        }
    }
    Ok(after)
}

/// Where the kernel has what is in memory of the data. It tells of what is mapped, so that is all of it
/// first: an evictor may just have unmapped most.
fn by_node(root: &Root, map: &FileMap, data: &Data, mode: Hold) -> Option<Vec<OnNode>> {
    if mode == Hold::File {
        let words: &dyn Words = match data {
            Data::Plain => map,
            Data::Pager(_, region) => region,
        };
        let resident = map.resident().unwrap_or_default();
        // A part of a page at the end is nobody's to read.
        let whole = (0..).zip(resident).take(map.words() / PAGE_WORDS);
        for (page, _) in whole.filter(|(_, there)| *there) {
            words.check(page, false);
        }
    }
    let data = match data {
        Data::Plain => map.address()..map.address() + map.words() * 8,
        Data::Pager(_, region) => region.address()..region.address() + region.len(),
    };
    let oneself = Process::find(root, std::process::id()).ok()?;
    let mappings = oneself.numa_maps(root).ok()??;
    let mut nodes: BTreeMap<u16, u64> = BTreeMap::new();
    for mapping in mappings {
        if !data.contains(&usize::try_from(mapping.start).ok()?) {
            continue;
        }
        for (node, _) in &mapping.pages {
            *nodes.entry(node.0).or_default() += mapping.bytes_on(*node)?;
        }
    }
    let nodes = nodes
        .into_iter()
        .map(|(node, bytes)| OnNode { node, bytes });
    Some(nodes.collect())
}

/// Shootdowns a second while this process does nothing.
fn others_shootdowns(root: &Root) -> Option<f64> {
    let count = || tlb_shootdowns(root).ok().flatten();
    let (before, began) = (count()?, Instant::now());
    std::thread::sleep(LISTEN);
    Some(count()?.saturating_sub(before) as f64 / began.elapsed().as_secs_f64())
}

/// Bytes that this process had read from disks.
fn read_bytes(root: &Root) -> Option<u64> {
    let text = std::fs::read_to_string(root.path("/proc/self/io")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}

/// Whether the file's bytes are those of `--make`: its first and last page are.
fn is_known(path: &Path, bytes: u64) -> anyhow::Result<bool> {
    use std::os::unix::fs::FileExt;
    if bytes < PAGE_BYTES || !bytes.is_multiple_of(PAGE_BYTES) {
        return Ok(false);
    }
    let file = File::open(path).with_context(|| path.display().to_string())?;
    // Nothing is to be read ahead.
    let _ = fadvise(&file, 0, None, Advice::Random);
    for page in [0, bytes / PAGE_BYTES - 1] {
        let mut buffer = [0; PAGE_BYTES as usize];
        file.read_exact_at(&mut buffer, page * PAGE_BYTES)
            .with_context(|| path.display().to_string())?;
        let (words, _) = buffer.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        if content::wrong_words(words, page) > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
