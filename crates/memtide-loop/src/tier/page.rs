//! What is known of one page: where it is, how hot, and why it is there.
//!
//! The answer is put together from what the loop knows anyway, at the moment of the
//! question; nothing is kept for it. So it says what would be decided now. Of what
//! was decided before, only the last moves of pages are known.

use super::demoter::least_idle_age;
use super::explain;
use super::idle::{self, Leaver};
use super::shared::Shared;
use crate::ledger::Watched;
use crate::report::{Direction, LastMove, PageReport, Stay};
use crate::world::{Allowed, Area, ClassId};
use memtide_core::hotness::Hotness;
use memtide_core::pages::{Folio, Pages as _};
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
    leaver: &Leaver,
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
    // Of a huge page, its first one has the records, and the warmest part decides.
    let folio = ledger.folio(page);
    let page = folio.first;
    let untouched_looks = least(folio, |page| records.idle.age(page));
    let hotness = records.store.peek(page, now);
    report.node = Some(place.node());
    report.fast = Some(ledger.topology.is_top_tier(place.node()));
    report.huge = place.huge();
    report.touches = hotness.map(|hotness| hotness.frequency);
    report.touched_ms_ago = hotness.map(|hotness| u64::from(hotness.age_ms));
    report.untouched_looks = untouched_looks;
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
        (_, Some(true)) => why_up(shared, leaver, watched, folio, hotness, now),
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
    leaver: &Leaver,
    watched: &Watched,
    folio: Folio,
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
    let page = folio.first;
    let looks = least(folio, |page| records.idle.age(page));
    let lower = ledger.topology.nodes().iter();
    let mut lower = lower.filter(|node| !node.top_tier && node.has_memory());
    let refusal = lower.try_fold(None, |_, node| match ledger.may_move(page, node.id) {
        Ok(()) => Err(()),
        Err(by) => Ok(Some(by)),
    });
    if let Ok(Some(by)) = refusal {
        return format!("it stays on fast memory: {by}");
    }
    let pays = |around: ClassId| {
        budgets.excess(around, now) > 0 && budgets.may_lose_within(watched.class, Some(around)) > 0
    };
    if budgets.path(watched.class).any(pays) {
        return "its class, or one around it, is above its fast.high: the coldest of its pages leave"
            .to_owned();
    }
    if !budgets.tiered(watched.class).demote {
        return "nothing of its class is demoted, as the configuration says".to_owned();
    }
    if budgets.may_lose(watched.class) == 0 {
        return "its class, or one around it, uses no more than its fast.low, so that none of its pages leaves for others"
            .to_owned();
    }
    if let Some(why) = long_idle(shared, leaver, folio, now) {
        return why;
    }
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

/// The least that `of` says of a page of `folio`.
fn least(folio: Folio, of: impl Fn(PageNumber) -> u8) -> u8 {
    let pages = (0..u64::from(folio.pages)).map(|part| PageNumber(folio.first.0 + part));
    pages.map(of).min().unwrap_or(0)
}

/// When a page leaves that nobody touches, if such pages do.
fn long_idle(shared: &Shared, leaver: &Leaver, folio: Folio, now: Millis) -> Option<String> {
    let rule = shared.config.idle.as_ref()?;
    let rounds = shared.records.rounds.as_ref()?;
    let rounds = least(folio, |page| rounds.rounds(page));
    let class = shared.ledger.class(folio.first);
    let leaves = shared.budgets.tiered(class).demote_idle;
    if rounds == 0 || !leaves || !idle::is_wanted(&shared.ledger, folio.first, rule) {
        return None;
    }
    let since = now.since(leaver.round_began);
    Some(match rule.leaves_in_ms(rounds, since) {
        0 => format!(
            "it was not touched for {}, and leaves at the rate for such pages",
            rule.after
        ),
        ms => format!(
            "it was not touched of late, and leaves in about {} s if that goes on: idle pages leave after {}",
            ms.div_ceil(1000),
            rule.after
        ),
    })
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
        return "it is hot, and waits for its class, or one around it, which is at its fast.high"
            .to_owned();
    }
    let rests = explain::rests(shared, page).or_else(|| explain::no_faster(shared, place.node()));
    if let Some(why) = rests {
        return format!("it is hot, but {why}");
    }
    if shared.pressed.slows(watched.class) {
        return format!("it is {}", Stay::Pressure);
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
