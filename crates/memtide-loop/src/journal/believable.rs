//! What a world may answer, whatever its machine.
//!
//! The loop relies on what [`World`](crate::world::World) promises: time does
//! not go back, mappings do not overlap, pages are pages of an address space,
//! counts can be added up. A world that observes a machine keeps these
//! promises. A journal is a file, and whoever wrote it may have written
//! anything, so each answer is held against them before the loop hears it.

use super::{Answer, Call, Facts};
use crate::world::{Area, Came, HUGE_PAGES, Outcome, PageRun, Report, Settled};
use memtide_core::topology::TopologyInput;
use memtide_core::units::NodeId;

/// Pages of an address space of 64 bits: no page is smaller than 4 KiB.
const PAGES: u64 = 1 << 52;
/// Bytes of a node: 4 PiB.
const NODE_BYTES: u64 = 1 << 52;
/// Pages of a node.
const NODE_PAGES: u64 = NODE_BYTES >> 12;
/// CPUs of a machine: eight times as many as Linux on x86-64 can have. Tables have an entry for each.
const CPUS: u32 = 1 << 16;
/// Anything else that is counted: four years of nanoseconds.
const COUNT: u64 = 1 << 57;

/// Whether a machine may have these.
pub(super) fn facts(facts: &Facts) -> Result<(), &'static str> {
    count(facts.boot_ms)?;
    nodes(&facts.topology)
}

/// Whether a world may answer `call` like this; `now_ns` is the last moment
/// that it told.
pub(super) fn answer(call: &Call, answer: &Answer, now_ns: u64) -> Result<(), &'static str> {
    match answer {
        Answer::Number(ns) if *call == Call::NowNs && *ns < now_ns => {
            Err("a moment before the last one")
        }
        Answer::Number(number) => count(*number),
        Answer::Rooms(rooms) => rooms.iter().try_for_each(|(id, room)| {
            node(*id)?;
            let pages = [room.free, room.high, room.promo, room.present];
            ok(
                pages.iter().all(|pages| *pages <= NODE_PAGES),
                "so much room",
            )
        }),
        Answer::Processes(seen) => seen.iter().try_for_each(|seen| {
            count(seen.born.0)?;
            count(seen.ticks)?;
            count(seen.faults)
        }),
        Answer::Stalls(stalls) => {
            let mut all = stalls.machine.iter().chain(stalls.classes.iter().flatten());
            all.try_for_each(|us| count(*us))
        }
        Answer::ClassUse(used) => {
            let mut all = used.iter().filter_map(|of| of.pages);
            ok(all.all(|pages| pages <= NODE_PAGES), "so much fast memory")?;
            let mut above = used.iter().filter_map(|of| of.within);
            let most = used.len() as u32;
            ok(above.all(|class| class.0 < most), "a class that is none")
        }
        Answer::AddressSpace(Some(space)) => areas(&space.areas),
        Answer::Survey { found, .. } => found.iter().try_for_each(|found| {
            node(found.node)?;
            pages(found.first.0, found.pages)
        }),
        Answer::Settled(all) => match call {
            Call::MovePages { runs, .. } => settled(all, runs),
            _ => Err("moves that nobody asked for"),
        },
        Answer::SourceStatus(status) => {
            count(status.kernel_cpu_ns)?;
            count(status.lost)?;
            count(status.records)?;
            count(status.own_cpu_ns)?;
            count(status.period.unwrap_or(0))
        }
        Answer::Came(all) => came(all),
        Answer::Thread(Some(seen)) => count(seen.runtime_ns),
        Answer::Nothing
        | Answer::Latency(_)
        | Answer::AddressSpace(None)
        | Answer::Yes(_)
        | Answer::Thread(None)
        | Answer::Affinity(_)
        | Answer::Failed(_) => Ok(()),
    }
}

fn ok(is: bool, otherwise: &'static str) -> Result<(), &'static str> {
    is.then_some(()).ok_or(otherwise)
}

fn count(count: u64) -> Result<(), &'static str> {
    ok(count <= COUNT, "so large a number")
}

fn node(node: NodeId) -> Result<(), &'static str> {
    ok(node.0 < NodeId::LIMIT, "such a node")
}

fn nodes(input: &TopologyInput) -> Result<(), &'static str> {
    input.nodes.iter().try_for_each(|node| {
        ok(node.memory_bytes <= NODE_BYTES, "so large a node")?;
        ok(node.cpus.iter().all(|cpu| *cpu < CPUS), "such a CPU")
    })
}

fn pages(first: u64, pages: u64) -> Result<(), &'static str> {
    let end = first.checked_add(pages);
    ok(
        end.is_some_and(|end| end <= PAGES),
        "pages beyond the address space",
    )
}

fn areas(areas: &[Area]) -> Result<(), &'static str> {
    for area in areas {
        pages(area.first.0, area.pages)?;
        pages(area.backing.map_or(0, |backing| backing.first), area.pages)?;
        area.counted.map_or(Ok(()), |counted| node(counted.node))?;
    }
    let apart = |pair: &[Area]| pair[0].first.0 + pair[0].pages <= pair[1].first.0;
    ok(areas.windows(2).all(apart), "mappings that overlap")
}

fn settled(all: &[Settled], runs: &[PageRun]) -> Result<(), &'static str> {
    for settled in all {
        pages(settled.first.0, settled.pages)?;
        if let Outcome::Moved { from } = settled.outcome {
            node(from)?;
        }
    }
    // A huge page moves whole, so a run may grow at both ends.
    let most: u64 = runs.iter().map(|run| run.pages + 2 * HUGE_PAGES).sum();
    let sum = all
        .iter()
        .map(|settled| u128::from(settled.pages))
        .sum::<u128>();
    ok(sum <= u128::from(most), "more pages than were to move")
}

fn came(came: &Came) -> Result<(), &'static str> {
    for report in &came.reports {
        match report {
            Report::Touched {
                first, pages: n, ..
            }
            | Report::Untouched {
                first, pages: n, ..
            } => {
                pages(first.0, *n)?;
            }
            Report::Pass { .. } => {}
        }
    }
    came.invalid.iter().try_for_each(|invalid| {
        count(invalid.lost)?;
        count(invalid.throttled)
    })
}
