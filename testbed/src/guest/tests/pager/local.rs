//! `memtide pager run --local` on running kernels: each program reads a file from a copy on its own node.
//!
//! Where pages are is counted by the kernel (`numa_maps`), and every byte that is read is known.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::procfs::refresh_counters;
use crate::guest::tests::{BootClass, Context, Needs, Test};

const TABLE: &str = "copies on each node";
const FILE: &str = "/mnt/local.bin";
/// Eight granules, and a part of a ninth.
const PAGES: u64 = 8 * 512 + 3;
const PAGE: usize = 4096;
/// Room for one version of the file, its header, and a second version for a moment.
const BUDGET: &str = "64MiB";
/// A file rests for two seconds, the keeper looks four times a second; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);
const NOTES: &str = "/run/memtide-local";

type Promise = fn(&mut Context) -> Result<()>;

const PROMISES: [(&str, &str, Promise); 7] = [
    ("two-nodes", "two-socket", every_read_is_local),
    ("four-nodes", "four-socket", every_read_is_local),
    ("change", "two-socket", a_change_is_seen),
    ("budget", "two-socket", a_full_budget_refuses),
    ("way", "two-socket", who_reads_gets_the_room),
    ("killed", "two-socket", the_killed_leave_nothing),
    ("one-node", "one-node", one_node_runs_without),
];

pub(super) fn tests() -> Vec<Test> {
    let test = |(name, topology, promise): (&str, &'static str, Promise)| Test {
        needs: Needs {
            disk: true,
            random_programs: true,
            ..Needs::default()
        },
        ..Test::promise(
            format!("pager/local/{name}"),
            topology,
            BootClass::Quiet,
            promise,
        )
    };
    PROMISES.into_iter().map(test).collect()
}

/// Page n begins and ends with n plus the generation.
fn write_file(generation: u64) -> Result<()> {
    let mut bytes = vec![0; PAGES as usize * PAGE];
    for (n, page) in (0..PAGES).zip(bytes.chunks_exact_mut(PAGE)) {
        let number = (n + generation).to_ne_bytes();
        page[..8].copy_from_slice(&number);
        page[PAGE - 8..].copy_from_slice(&number);
    }
    // In place: who has it open sees it change.
    let mut file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(FILE)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(())
}

/// A program that maps the file, and reads all of it when it is told to.
struct Reader {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    node: u32,
}

impl Reader {
    /// On the processors of `node`, with copies if there is a budget.
    fn start(node: u32, budget: Option<&str>, stats: Option<&str>) -> Result<Reader> {
        Reader::of(FILE, node, budget, stats)
    }

    /// The same of another file.
    fn of(file: &str, node: u32, budget: Option<&str>, stats: Option<&str>) -> Result<Reader> {
        let mut command = Command::new("memtide");
        command.args(["run", "--cpunodebind", &node.to_string(), "--"]);
        if let Some(budget) = budget {
            command.args(["memtide", "pager", "run", "--local", "--files", "*.bin"]);
            command.args(["--budget", budget]);
            command.args(stats.map(|stats| format!("--stats={stats}")));
            command.arg("--");
        }
        let mut child = command
            .args(["/bin/reader", file, "2"])
            .env("MEMTIDE_PAGER_LIBRARY", "/bin/libmemtide_pager_preload.so")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no pipe")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut reader = Reader {
            child,
            input,
            output,
            node,
        };
        ensure!(reader.line()? == "mapped");
        Ok(reader)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            let mut said = String::new();
            if let Some(mut errors) = self.child.stderr.take() {
                std::io::Read::read_to_string(&mut errors, &mut said)?;
            }
            bail!("the reader ended: {status}: {said}");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Reads all of it.
    fn pass(&mut self, generation: u64) -> Result<String> {
        writeln!(self.input, "{generation}")?;
        self.line()
    }

    /// The same, every byte right.
    fn right(&mut self, generation: u64) -> Result<()> {
        let said = self.pass(generation)?;
        ensure!(said == "right", "node {}: {said}", self.node);
        Ok(())
    }

    /// The pages that it has mapped, by node: those of copies, and those of the file.
    fn pages(&self) -> Result<(BTreeMap<u32, u64>, BTreeMap<u32, u64>)> {
        let text = std::fs::read_to_string(format!("/proc/{}/numa_maps", self.child.id()))?;
        let (mut copies, mut files) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            let into = match line {
                _ if line.contains("memfd:memtide-local") => &mut copies,
                _ if line.contains(FILE) => &mut files,
                _ => continue,
            };
            for word in line.split(' ') {
                let Some((node, pages)) = word.strip_prefix('N').and_then(|w| w.split_once('='))
                else {
                    continue;
                };
                *into.entry(node.parse()?).or_default() += pages.parse::<u64>()?;
            }
        }
        Ok((copies, files))
    }

    /// The memory files that it has mapped.
    fn copies(&self) -> Result<BTreeSet<u64>> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id()))?;
        let of_copies = text
            .lines()
            .filter(|line| line.contains("memfd:memtide-local"));
        of_copies
            .map(|line| {
                let inode = line.split_ascii_whitespace().nth(4);
                Ok(inode.context("no inode")?.parse()?)
            })
            .collect()
    }

    /// Passes until every page that it reads is of a copy.
    fn settle(&mut self, generation: u64) -> Result<()> {
        let stretch = Stretch::begin();
        loop {
            self.right(generation)?;
            let (copies, files) = self.pages()?;
            if files.is_empty() && copies.values().sum::<u64>() == PAGES {
                return Ok(());
            }
            within(&stretch, PATIENCE, || {
                format!("copies {copies:?}, of the file {files:?}")
            })?;
            sleep(Duration::from_millis(200));
        }
    }

    /// Ends it, and returns what it said on standard error.
    fn end(mut self) -> Result<String> {
        writeln!(self.input, "ends")?;
        let output = self.child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: {said}", output.status);
        Ok(said)
    }
}

/// Shared memory on a node, in pages.
fn shared_pages(node: u32) -> Result<u64> {
    refresh_counters()?;
    let text = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"))?;
    let line = text.lines().find(|line| line.contains("Shmem:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(3));
    let kib: u64 = kib.context("no Shmem")?.parse()?;
    Ok(kib / 4)
}

/// Two readers on each node: after the first pass every page that any of them reads is on its own
/// node, of one copy a node.
fn every_read_is_local(context: &mut Context) -> Result<()> {
    write_file(0)?;
    let nodes = context.dram.clone();
    // As it is without copies: wherever the page cache happens to be.
    for node in &nodes {
        let mut plain = Reader::start(*node, None, None)?;
        plain.right(0)?;
        let (_, files) = plain.pages()?;
        let on = files.get(node).copied().unwrap_or(0);
        let sum: u64 = files.values().sum();
        row(context, "without copies", *node, on, sum)?;
        plain.end()?;
    }
    let mut before = BTreeMap::new();
    for node in &nodes {
        before.insert(*node, shared_pages(*node)?);
    }
    let mut readers = Vec::new();
    for node in nodes.iter().chain(&nodes) {
        readers.push(Reader::start(*node, Some(BUDGET), None)?);
    }
    for reader in &mut readers {
        reader.settle(0)?;
    }
    let mut copies: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for reader in &mut readers {
        reader.right(0)?;
        let (of_copies, files) = reader.pages()?;
        let on = of_copies.get(&reader.node).copied().unwrap_or(0);
        row(context, "with copies", reader.node, on, PAGES)?;
        ensure!(
            files.is_empty() && of_copies == BTreeMap::from([(reader.node, PAGES)]),
            "node {}: copies {of_copies:?}, of the file {files:?}",
            reader.node
        );
        copies
            .entry(reader.node)
            .or_default()
            .extend(reader.copies()?);
    }
    ensure!(
        copies.values().all(|of_node| of_node.len() == 1),
        "{copies:?}"
    );
    let all: BTreeSet<u64> = copies.values().flatten().copied().collect();
    ensure!(all.len() == nodes.len(), "{copies:?}");
    for node in &nodes {
        // A page for the header; other programs of the guest may have some shared memory, too.
        let more = shared_pages(*node)?.saturating_sub(before[node]);
        context.note(format!(
            "node {node}: {more} pages of shared memory more, of {PAGES}"
        ))?;
        ensure!(
            (PAGES..PAGES + 64).contains(&more),
            "node {node}: {more} pages"
        );
    }
    for reader in readers {
        let said = reader.end()?;
        ensure!(said.is_empty(), "{said}");
    }
    // All have ended: no copy is left, and no note.
    for node in &nodes {
        let more = shared_pages(*node)?.saturating_sub(before[node]);
        ensure!(more < 64, "node {node}: {more} pages are left");
    }
    ensure!(notes()?.is_empty(), "{:?}", notes()?);
    Ok(())
}

fn row(context: &mut Context, way: &str, node: u32, on: u64, of: u64) -> Result<()> {
    let cells = vec![
        ("way".to_owned(), way.to_owned()),
        ("node".to_owned(), node.to_string()),
        ("pages there".to_owned(), on.to_string()),
        ("of".to_owned(), of.to_string()),
    ];
    context.row(TABLE, cells)
}

/// Notes about copies; locks stay.
fn notes() -> Result<Vec<String>> {
    let entries = std::fs::read_dir(NOTES)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    Ok(names
        .into_iter()
        .filter(|name| !name.ends_with(".lock"))
        .collect())
}

/// The file is written in place: readers see the new content, and get copies of it.
fn a_change_is_seen(context: &mut Context) -> Result<()> {
    write_file(0)?;
    let mut readers = Vec::new();
    for node in context.dram.clone() {
        readers.push(Reader::start(node, Some(BUDGET), None)?);
    }
    for reader in &mut readers {
        reader.settle(0)?;
    }
    write_file(1 << 40)?;
    // Who maps it now never sees the former content.
    let mut later = Reader::start(0, Some(BUDGET), None)?;
    later.right(1 << 40)?;
    let written = Stretch::begin();
    for reader in &mut readers {
        while reader.pass(1 << 40)? != "right" {
            within(&written, PATIENCE, || {
                "the former content is still read".to_owned()
            })?;
            sleep(Duration::from_millis(20));
        }
    }
    context.note(format!(
        "the new content was read by all after {:.1} s",
        written.elapsed().as_secs_f64()
    ))?;
    readers.push(later);
    for reader in &mut readers {
        reader.settle(1 << 40)?;
    }
    let said = readers.into_iter().map(Reader::end);
    let said: Vec<String> = said.collect::<Result<_>>()?;
    let told = said.iter().filter(|said| said.contains("changed")).count();
    ensure!(told == context.dram.len(), "{said:?}");
    Ok(())
}

/// In 4 MiB are the header, a whole granule, and the last one of three pages: the rest is read from the
/// file, and the program is told once.
fn a_full_budget_refuses(context: &mut Context) -> Result<()> {
    write_file(0)?;
    let node = 1;
    let mut reader = Reader::start(node, Some("4MiB"), Some("/tmp/local.stats"))?;
    let stretch = Stretch::begin();
    let (copies, files) = loop {
        reader.right(0)?;
        let (copies, files) = reader.pages()?;
        if copies.values().sum::<u64>() == 515 {
            break (copies, files);
        }
        within(&stretch, PATIENCE, || "no copy".to_owned())?;
        sleep(Duration::from_millis(200));
    };
    context.note(format!("copies {copies:?}, of the file {files:?}"))?;
    // A later pass brings no more. While the keeper asks what is read, all is unmapped for a moment.
    sleep(Duration::from_secs(1));
    let stretch = Stretch::begin();
    let (copies, files) = loop {
        reader.right(0)?;
        let (copies, files) = reader.pages()?;
        if copies.values().chain(files.values()).sum::<u64>() == PAGES {
            break (copies, files);
        }
        within(&stretch, PATIENCE, || "not all of it is mapped".to_owned())?;
        sleep(Duration::from_millis(200));
    };
    ensure!(copies == BTreeMap::from([(node, 515)]), "{copies:?}");
    ensure!(files.values().sum::<u64>() == PAGES - 515, "{files:?}");
    let said = reader.end()?;
    let told = said.matches("the budget of the node is full").count();
    ensure!(told == 1, "{said}");
    let stats = std::fs::read_to_string("/tmp/local.stats")?;
    let stats: serde_json::Value = serde_json::from_str(stats.trim())?;
    let local = &stats["local"];
    ensure!(
        local["without_because"] == serde_json::json!(["budget"]),
        "{local}"
    );
    ensure!(
        local["node"] == 1 && local["budget_bytes"] == 4 << 20,
        "{local}"
    );
    ensure!(local["filled_bytes"] == 515 * 4096, "{local}");
    Ok(())
}

/// The budget is full of what one program has read and reads no more. It makes way for what another one
/// reads again and again, and goes on to read right bytes.
fn who_reads_gets_the_room(context: &mut Context) -> Result<()> {
    const OTHER: &str = "/mnt/other.bin";
    write_file(0)?;
    std::fs::copy(FILE, OTHER)?;
    let node = 1;
    let copied = |reader: &Reader| -> Result<u64> { Ok(reader.pages()?.0.values().sum()) };
    let mut idle = Reader::start(node, Some("4MiB"), Some("/tmp/idle.stats"))?;
    let stretch = Stretch::begin();
    while copied(&idle)? < 515 {
        within(&stretch, PATIENCE, || "no copy".to_owned())?;
        sleep(Duration::from_millis(200));
        idle.right(0)?;
    }
    let stretch = Stretch::begin();
    let mut busy = Reader::of(OTHER, node, Some("4MiB"), Some("/tmp/busy.stats"))?;
    while copied(&busy)? < 512 {
        within(&stretch, 2 * PATIENCE, || "nobody makes way".to_owned())?;
        sleep(Duration::from_millis(500));
        busy.right(0)?;
    }
    let took = stretch.elapsed().as_secs_f64();
    context.note(format!("another program had the room after {took:.1} s"))?;
    idle.right(0)?;
    busy.right(0)?;
    idle.end()?;
    busy.end()?;
    let stats = |file| -> Result<serde_json::Value> {
        let stats = std::fs::read_to_string(file)?;
        Ok(serde_json::from_str(stats.trim())?)
    };
    let (idle, busy) = (stats("/tmp/idle.stats")?, stats("/tmp/busy.stats")?);
    let number = |of: &serde_json::Value, key: &str| of["local"][key].as_u64().unwrap_or(0);
    ensure!(number(&idle, "given_up_bytes") > 0, "{idle}");
    ensure!(number(&busy, "freed_bytes") > 0, "{busy}");
    Ok(())
}

/// Killed readers leave no memory behind; what they noted leads nowhere, and the next one removes it.
fn the_killed_leave_nothing(context: &mut Context) -> Result<()> {
    write_file(0)?;
    let before = shared_pages(1)?;
    let mut first = Reader::start(1, Some(BUDGET), None)?;
    let mut second = Reader::start(1, Some(BUDGET), None)?;
    first.settle(0)?;
    second.settle(0)?;
    let kill = |reader: &mut Reader| -> Result<()> {
        let pid = Pid::from_raw(reader.child.id().cast_signed()).context("no pid")?;
        kill_process(pid, Signal::KILL)?;
        reader.child.wait()?;
        Ok(())
    };
    // Who made the copy is killed: the other reads on, and a third finds it.
    let copy = first.copies()?;
    kill(&mut first)?;
    second.right(0)?;
    let mut third = Reader::start(1, Some(BUDGET), None)?;
    third.settle(0)?;
    ensure!(third.copies()? == copy, "a second copy on the node");
    kill(&mut second)?;
    kill(&mut third)?;
    let more = shared_pages(1)?.saturating_sub(before);
    context.note(format!("{more} pages are left, in notes {:?}", notes()?))?;
    ensure!(more < 64, "{more} pages are left");
    let mut next = Reader::start(1, Some(BUDGET), None)?;
    next.settle(0)?;
    next.end()?;
    ensure!(notes()?.is_empty(), "{:?}", notes()?);
    Ok(())
}

/// Nothing to make local: the program runs, and is told so in one line.
fn one_node_runs_without(context: &mut Context) -> Result<()> {
    write_file(0)?;
    let mut reader = Reader::start(0, Some(BUDGET), None)?;
    reader.right(0)?;
    ensure!(
        reader.copies()?.is_empty(),
        "copies on a machine of one node"
    );
    let said = reader.end()?;
    context.note(said.trim_end().to_owned())?;
    ensure!(said.matches("one node with memory").count() == 1, "{said}");
    Ok(())
}
