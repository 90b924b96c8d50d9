//! The model of mempolicy against the kernel: random calls, and the weighted interleave series' page counts.

use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use super::{BootClass, Context, Needs, Test};
use crate::guest::agreement::agree::{self, CALLS, answers, pages_compared};
use crate::guest::agreement::calls::{Answer, Call, Line, Machine, Mask, Place, Sequence, Word};
use crate::guest::agreement::coverage::Coverage;
use crate::guest::agreement::machine;
use crate::guest::sys::query_nodes;
use crate::report::Verdict;

/// Seeds on the machine where all is tried, beside one that is the time, and on the others.
const SEEDS: RangeInclusive<u64> = 1..=20;
const FEW_SEEDS: RangeInclusive<u64> = 101..=103;
/// A guest that reports nothing for long is taken for one that hangs.
const TOLD_EACH: u64 = 5;
const LEAST_CALLS: u64 = 10_000;
const PAGE: u64 = 4096;

pub(super) fn tests() -> Vec<Test> {
    let test = |name: &str, topology, run: fn(&mut Context) -> Result<Verdict>| Test {
        name: format!("agreement/{name}"),
        topology,
        class: BootClass::Quiet,
        needs: Needs::default(),
        on_request: false,
        run: Box::new(run),
    };
    vec![
        test("random", "cxl", |context| random(context, SEEDS)),
        test("page-counts", "cxl", page_counts),
        test("random-two-socket", "two-socket", |context| {
            random(context, FEW_SEEDS)
        }),
        test("random-small-dram", "small-dram", |context| {
            random(context, FEW_SEEDS)
        }),
    ]
}

/// Has the kernel answer faster: most of the time goes into waiting for grace periods when a process
/// enters a cgroup and when a cpuset changes.
const EXPEDITED: &str = "/sys/kernel/rcu_expedited";

fn random(context: &mut Context, seeds: RangeInclusive<u64>) -> Result<Verdict> {
    std::fs::write(EXPEDITED, "1")?;
    let verdict = run_seeds(context, seeds);
    std::fs::write(EXPEDITED, "0")?;
    verdict
}

fn run_seeds(context: &mut Context, seeds: RangeInclusive<u64>) -> Result<Verdict> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (first, last) = (*seeds.start(), *seeds.end());
    context.note(format!("seeds {first} to {last}, and {now}"))?;
    let mut coverage = Coverage::default();
    let mut pages = 0;
    for seed in seeds.clone().chain([now]) {
        let answered = agree::run(seed, CALLS)?;
        if let Some(disagreement) = answered.disagreement() {
            for line in disagreement.to_string().lines() {
                context.note(line.to_owned())?;
            }
            return Ok(Verdict::Failed(format!(
                "kernel and model disagree, seed {seed}; once more: \
                 cargo xtask lab --run 'guest agree --seed {seed}'"
            )));
        }
        for (line, answer) in answered.sequence.calls.iter().zip(&answered.kernel) {
            coverage.count(&line.call, answer);
            pages += pages_compared(&line.call, answer);
        }
        if seed % TOLD_EACH == 0 {
            context.note(format!("seed {seed} agrees"))?;
        }
    }
    let kinds = coverage
        .calls
        .iter()
        .map(|(name, count)| format!("{name} {count}"));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let total = coverage.total();
    context.note(format!("{total} calls and {pages} pages agree: {kinds}"))?;
    if seeds == FEW_SEEDS {
        return Ok(Verdict::Passed);
    }
    for row in coverage.rows() {
        context.row("mempolicy calls accepted/tried", row)?;
    }
    let missing = coverage.missing();
    ensure!(missing.is_empty(), "never tried: {}", missing.join(", "));
    ensure!(total >= LEAST_CALLS, "only {total} calls");
    Ok(Verdict::Passed)
}

/// The weighted interleave series: 256 MiB and 65,536 pages over two nodes. Every page must be where the model says, and
/// the kernel's own sums must be the model's.
fn page_counts(context: &mut Context) -> Result<Verdict> {
    machine::reset_table()?;
    let result = [(1, 1), (5, 1), (1, 5)]
        .into_iter()
        .try_for_each(|weights| count_pages(context, weights));
    machine::reset_table()?;
    result.map(|()| Verdict::Passed)
}

/// How often pages are counted again at most until both counts are the same.
const COUNTS: usize = 20;

fn count_pages(context: &mut Context, weights: (u32, u32)) -> Result<()> {
    for (node, weight) in [(0, weights.0), (1, weights.1)] {
        let path = format!("/sys/kernel/mm/mempolicy/weighted_interleave/node{node}");
        std::fs::write(path, weight.to_string())?;
    }
    let machine = machine::here(0)?;
    let eater = Eater::start()?;
    for name in ["heap", "whole"] {
        let (mut mapping, mut kernel) = eater.seen(name)?;
        for _ in 0..COUNTS {
            // A page that the kernel moves just now, to make room for huge ones, is in no count and nowhere.
            let present = kernel.iter().filter(|&&node| node >= 0).count() as u64;
            if mapping.counts.iter().sum::<u64>() == present {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            (mapping, kernel) = eater.seen(name)?;
        }
        let model = predict(&machine, &mapping, &kernel)?;
        if let Some(page) = (0..kernel.len()).find(|&page| kernel[page] != model[page]) {
            anyhow::bail!(
                "{name} at {weights:?}: page {page} from {:#x} is on node {}, not {}",
                mapping.start,
                kernel[page],
                model[page]
            );
        }
        let count = |node| model.iter().filter(|&&on| on == node).count() as u64;
        let counted = [count(0), count(1)];
        ensure!(
            mapping.counts == counted,
            "{name}: numa_maps {:?}, model {counted:?}",
            mapping.counts
        );
        ensure!(
            counted[0] + counted[1] >= 65_536,
            "{name} has too few pages"
        );
        let cells = [
            ("mapping", name.to_owned()),
            ("weights", format!("{}:{}", weights.0, weights.1)),
            ("address", format!("{:#x}", mapping.start)),
            ("pages", (counted[0] + counted[1]).to_string()),
            ("N0", mapping.counts[0].to_string()),
            ("N1", mapping.counts[1].to_string()),
            ("model N0", counted[0].to_string()),
            ("model N1", counted[1].to_string()),
        ];
        let cells = cells.map(|(name, cell)| (name.to_owned(), cell));
        context.row("the weighted interleave series' page counts", cells.into())?;
    }
    Ok(())
}

/// The node of each page by `memtide policy replay`; pages that the kernel does not have are not
/// touched there either.
fn predict(machine: &Machine, mapping: &Mapping, kernel: &[i32]) -> Result<Vec<i32>> {
    let place = |first: usize, pages: usize| Place {
        region: Some("all".to_owned()),
        first: first as u64,
        pages: pages as u64,
        ..Place::default()
    };
    let mut calls = vec![
        Call::SetMempolicy {
            mode: 6,
            mask: Mask::Words(vec![Word(3)]),
            maxnode: 64,
        },
        Call::Mmap {
            region: "all".to_owned(),
            address: Word(mapping.start),
            pages: mapping.pages(),
        },
    ];
    let mut page = 0;
    while page < kernel.len() {
        let there = kernel[page] >= 0;
        let run = kernel[page..]
            .iter()
            .take_while(|&&node| (node >= 0) == there);
        let run = run.count();
        if there {
            calls.push(Call::Touch {
                place: place(page, run),
            });
        }
        page += run;
    }
    calls.push(Call::Where {
        place: place(0, kernel.len()),
    });
    let sequence = Sequence {
        machine: machine.clone(),
        calls: calls.into_iter().map(Line::from).collect(),
    };
    let file = std::env::temp_dir().join("page-counts.jsonl");
    std::fs::write(&file, sequence.lines()?.join("\n") + "\n")?;
    let mut memtide = Command::new("memtide");
    let answers = answers(memtide.args(["policy", "replay"]), &file, &sequence)?;
    let last: &Answer = answers.last().context("no answer")?;
    let runs = last.nodes.iter().flatten();
    Ok(runs
        .flat_map(|&(node, pages)| std::iter::repeat_n(node, pages as usize))
        .collect())
}

/// A mapping as numa_maps has it.
struct Mapping {
    start: u64,
    end: u64,
    /// Pages on nodes 0 and 1.
    counts: [u64; 2],
}

impl Mapping {
    fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }
}

/// A running `guest eat`, ended on drop.
struct Eater {
    child: Child,
    whole: u64,
}

impl Eater {
    fn start() -> Result<Self> {
        let mut child = Command::new("guest")
            .arg("eat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the eater")?;
        let output = child.stdout.take().context("an eater without output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let whole = line.trim().parse().context("no address from the eater")?;
        Ok(Self { child, whole })
    }

    /// The heap, or the mapping that holds the 256 MiB.
    fn mapping(&self, name: &str) -> Result<Mapping> {
        let pid = self.child.id();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let range = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        };
        let is_it = |line: &&str| match name {
            "heap" => line.ends_with("[heap]"),
            _ => range(line).is_some_and(|(start, end)| (start..end).contains(&self.whole)),
        };
        let line = maps.lines().find(is_it);
        let (start, end) = line.and_then(range).with_context(|| format!("no {name}"))?;
        let numa_maps = std::fs::read_to_string(format!("/proc/{pid}/numa_maps"))?;
        let prefix = format!("{start:08x} ");
        let line = numa_maps.lines().find(|line| line.starts_with(&prefix));
        let line = line.with_context(|| format!("no {prefix}in numa_maps"))?;
        let count = |node: &str| {
            let word = line.split(' ').find_map(|word| word.strip_prefix(node));
            word.map_or(Ok(0), str::parse)
        };
        Ok(Mapping {
            start,
            end,
            counts: [count("N0=")?, count("N1=")?],
        })
    }

    /// A mapping, and the node of each of its pages; the one may have changed before the other is read.
    fn seen(&self, name: &str) -> Result<(Mapping, Vec<i32>)> {
        let mapping = self.mapping(name)?;
        let nodes = self.nodes(&mapping)?;
        Ok((mapping, nodes))
    }

    fn nodes(&self, mapping: &Mapping) -> Result<Vec<i32>> {
        let pages: Vec<usize> = (0..mapping.pages())
            .map(|page| (mapping.start + page * PAGE) as usize)
            .collect();
        let nodes = query_nodes(self.child.id(), &pages)?;
        Ok(nodes.into_iter().map(|node| node.max(-1)).collect())
    }
}

impl Drop for Eater {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
