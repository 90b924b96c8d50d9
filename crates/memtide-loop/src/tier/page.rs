//! What is known of one page: where it is, how hot, and why it is there.
//!
//! The answer is put together from what the loop knows anyway, at the moment of the
//! question; nothing is kept for it. So it says what would be decided now. Of what
//! was decided before, only the last moves of pages are known.

use super::demoter::least_idle_age;
use super::shared::Shared;
use crate::ledger::Watched;
use crate::report::{Direction, LastMove, PageReport};
use crate::world::{Allowed, Area};
use memtide_core::hotness::Hotness;
use memtide_core::pages::Pages as _;
use memtide_core::promotion::Moved;
use memtide_core::tiering::placement::Place;
use memtide_core::tiering::space::VirtualPage;
use memtide_core::units::{Millis, NodeId, PageNumber};

/// What is known of the page at `address` of the process that has `pid`.
///
/// # Errors
/// Why nothing is known, in a sentence.
pub(super) fn report(
    shared: &Shared,
    pid: u32,
    address: u64,
    now: Millis,
) -> Result<PageReport, String> {
    let Shared {
        config,
        ledger,
        records,
        budgets,
        ..
    } = shared;
    let mut all = ledger.processes.iter();
    let Some(watched) = all.find(|watched| watched.process.pid == pid) else {
        return Err(format!("process {pid} is not managed"));
    };
    let at = VirtualPage(address >> ledger.page.shift());
    let Some(area) = watched.memory.area(at) else {
        return Err(format!(
            "{address:#x} is in no mapping of process {pid} that is managed, as of the last survey"
        ));
    };
    let page = ledger.space.find(watched.owner, at);
    let there = page.and_then(|page| Some((page, ledger.placement.get(page)?)));
    let mut report = PageReport {
        pid,
        name: watched.memory.name.clone(),
        class: watched.class.and_then(|class| budgets.name(class)),
        address: ledger.address(at),
        mapping: area.kind,
        mapping_start: ledger.address(area.first),
        mapping_end: ledger.address(VirtualPage(area.first.0 + area.pages)),
        policy: policy(area).to_owned(),
        node: None,
        fast: None,
        huge: false,
        touches: None,
        touched_ms_ago: None,
        untouched_looks: 0,
        last_move: None,
        why: String::new(),
    };
    let Some((page, place)) = there else {
        report.why = "no memory is known to be there; the last survey found none".to_owned();
        return Ok(report);
    };
    let hotness = records.store.peek(page, now);
    report.node = Some(place.node());
    report.fast = Some(ledger.topology.is_top_tier(place.node()));
    report.huge = place.huge();
    report.touches = hotness.map(|hotness| hotness.frequency);
    report.touched_ms_ago = hotness.map(|hotness| u64::from(hotness.age_ms));
    report.untouched_looks = records.idle.age(page);
    let last = records.recent.last(page, now);
    report.last_move = last.map(|(way, ms_ago)| LastMove {
        direction: match way {
            Moved::Up => Direction::Promotion,
            Moved::Down => Direction::Demotion,
        },
        ms_ago,
    });
    let paused = ledger.processes.is_paused(watched.class);
    let why = match (paused, report.fast) {
        (true, _) => "its class is paused, and waits to be resumed".to_owned(),
        (_, Some(true)) => why_up(shared, watched, page, hotness, now),
        _ => why_down(shared, watched, page, place, hotness, now),
    };
    report.why = match config.dry_run {
        true => format!("{why}; nothing moves in a dry run"),
        false => why,
    };
    Ok(report)
}

fn policy(area: &Area) -> &'static str {
    match &area.allowed {
        Allowed::Anywhere => "its pages may be on every node that the cpuset allows",
        Allowed::Nodes(_) => "its pages may be only on the nodes that it is bound to",
        Allowed::Never(why) => why.text(),
    }
}

/// Why a page is on a fast node still, or what it waits for.
fn why_up(
    shared: &Shared,
    watched: &Watched,
    page: PageNumber,
    hotness: Option<Hotness>,
    now: Millis,
) -> String {
    let Shared {
        config,
        ledger,
        records,
        budgets,
        ..
    } = shared;
    let lower = ledger.topology.nodes().iter();
    let mut lower = lower.filter(|node| !node.top_tier && node.has_memory());
    let refusal = lower.try_fold(None, |_, node| match ledger.may_move(page, node.id) {
        Ok(()) => Err(()),
        Err(by) => Ok(Some(by)),
    });
    if let Ok(Some(by)) = refusal {
        return format!("it stays on fast memory: {by}");
    }
    let above = |class| budgets.excess(class, now) > 0;
    if watched.class.is_some_and(above) {
        return "its class is above its fast.high: the coldest of its pages leave".to_owned();
    }
    if budgets.may_lose(watched.class) == 0 {
        return "its class uses no more than its fast.low, so that none of its pages leaves for others"
            .to_owned();
    }
    let looks = records.idle.age(page);
    if looks >= least_idle_age(config, records, now) {
        return "it is idle, and leaves when a fast node lacks room for hot pages".to_owned();
    }
    match hotness {
        Some(hotness) => format!("it was touched {} ms ago", hotness.age_ms),
        None if looks > 0 => {
            format!("it was not touched in {looks} looks, which is too short to be idle")
        }
        None => {
            "it is not known to be idle: fast memory is looked at where room is scarce".to_owned()
        }
    }
}

/// Why a page is on a slow node still, or what it waits for.
fn why_down(
    shared: &Shared,
    watched: &Watched,
    page: PageNumber,
    place: Place,
    hotness: Option<Hotness>,
    now: Millis,
) -> String {
    let Shared {
        config,
        ledger,
        records,
        budgets,
        ..
    } = shared;
    let Some(target) = target(shared, place.node()) else {
        return "no faster node is a target for it".to_owned();
    };
    if let Err(by) = ledger.may_move(page, target) {
        return format!("it stays on slow memory: {by}");
    }
    let threshold = config.hotness.threshold();
    let window = u64::from(records.store.config().window_ms());
    let ready = hotness.is_some_and(|hotness| hotness.ready);
    let touches = match hotness {
        Some(hotness) if u64::from(hotness.age_ms) <= window => hotness.frequency,
        _ => 0,
    };
    if !ready && touches < threshold {
        return match touches {
            0 => "it was not seen touched; it waits to be".to_owned(),
            touches => format!(
                "it was touched {touches} times in the window of {window} ms, and is hot from {threshold}"
            ),
        };
    }
    if watched
        .class
        .is_some_and(|class| budgets.left(class) == Some(0))
    {
        return "it is hot, and waits for its class, which is at its fast.high".to_owned();
    }
    if ledger.rooms.takes(target) == 0 {
        return format!("it is hot, and waits for room on node {target}");
    }
    match records.recent.last(page, now) {
        Some((Moved::Down, ms)) => {
            format!("it is hot, and moved down {ms} ms ago, so that the gate may hold it")
        }
        _ => format!("it is hot, and goes to node {target} when the gate admits it"),
    }
}

fn target(shared: &Shared, node: NodeId) -> Option<NodeId> {
    let targets = shared.ledger.preferred_targets();
    let target = targets.iter().find(|(lower, _)| *lower == node);
    target.map(|(_, target)| *target)
}
