//! Pages that nobody touched for long leave fast memory, whether there is room or not.
//!
//! Users ask for it with `--demote-idle`. The time is cut into [`ROUNDS`] rounds, and
//! [`IdleRounds`] counts in how many of them a page was seen untouched. A page leaves
//! once that is one more than there are rounds in the time: then it was untouched
//! through all of it, and an observation in each round says so. So it leaves between
//! one time and nine eighths of it after its last touch, or later where observations
//! are rarer than rounds.
//!
//! Whatever a report of a touch names counts as touched, each page of it. Pages that
//! are not on the fast tier, or not there at all, have nothing to their credit: what
//! comes next to their place begins from nothing.
//!
//! Nothing leaves that must not: pages of classes that are paused, what a `fast.low`
//! protects, pages whose owner keeps them where they are. Memory that several managed
//! processes map stays, for each of their page tables tells of its own accesses only.
//! A bucket of tokens keeps the rate: it holds a second's worth, or a huge page if that
//! is more. While programs wait for memory ([`pressed`](super::pressed)) the rate is
//! higher. A class whose processes wait has a bucket of its own for what is more, from
//! which only its pages go.

use super::budgets::Budgets;
use super::config::{IdleRule, TierConfig};
use super::demoter::{move_down, target_of};
use super::losses::Losses;
use super::pressed::Pressed;
use super::shared::Shared;
use crate::ledger::{Ledger, Renumbered};
use crate::options::IdleOnly;
use crate::random::Random;
use crate::records::Records;
use crate::report::{Event, Reporter};
use crate::world::{ClassId, HUGE_PAGES, MemoryKind, SourceId, World};
use memtide_core::demotion::IdleRounds;
use memtide_core::hotness::SECTION_PAGES;
use memtide_core::pages::{Folio, Pages as _};
use memtide_core::promotion::Moved;
use memtide_core::tiering::placement::Place;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds in the time.
const ROUNDS: u64 = 8;
/// Rounds that a page has when it leaves; see [`IdleRounds`].
const LEAVES: u8 = ROUNDS as u8 + 1;
/// Pages among which those that leave are looked for in one turn, at most: 16 GiB.
const SCAN_PAGES: u64 = 1 << 22;
/// Makes its random numbers others than the demoter's.
const SEED: u64 = 0x6964_6c65_6964_6c65;

impl IdleRule {
    /// The length of a round, in ms.
    pub(super) fn round_ms(&self) -> u64 {
        self.after.ms() / ROUNDS
    }

    /// In how many ms a page of so many rounds leaves, if nobody touches it and
    /// `since` ms of this round are over.
    pub(super) fn leaves_in_ms(&self, rounds: u8, since: u64) -> u64 {
        let left = u64::from(LEAVES.saturating_sub(rounds));
        (left * self.round_ms()).saturating_sub(since)
    }
}

/// Objects that more than one process maps.
type Common = BTreeSet<(u64, u64)>;

/// See the module's essay.
#[derive(Debug)]
pub(super) struct Leaver {
    /// When the round began.
    pub round_began: Millis,
    /// Where the next ones are looked for, and how many pages of this time round the
    /// space have not been looked at.
    cursor: u64,
    unseen: u64,
    /// What may leave, in thousandths of a page, as of then.
    credit: u64,
    /// And what pages of each class that waits for memory may beside that.
    own: BTreeMap<ClassId, u64>,
    credited: Millis,
    random: Random,
    /// What several processes map.
    common: Common,
    /// Pages that left.
    pub left: u64,
    /// The source of which it was told that it cannot tell.
    told: Option<SourceId>,
}

impl Leaver {
    pub fn new(config: &TierConfig, now: Millis) -> Leaver {
        Leaver {
            round_began: now,
            cursor: 0,
            unseen: 0,
            credit: 0,
            own: BTreeMap::new(),
            credited: now,
            random: Random::new(config.seed ^ SEED),
            common: Common::new(),
            left: 0,
            told: None,
        }
    }

    /// Classes have other numbers from now on.
    pub fn renumber(&mut self, numbers: &Renumbered) {
        numbers.rekey(&mut self.own);
    }

    /// Goes on by `config` at `now`: rounds begin anew, and people may have to be told again.
    pub fn begin_anew(&mut self, config: &TierConfig, now: Millis) {
        *self = Leaver {
            left: self.left,
            ..Leaver::new(config, now)
        };
    }

    /// Says once of `source` if it cannot tell which pages are idle.
    pub fn judge_source(
        &mut self,
        world: &dyn World,
        source: SourceId,
        now: Millis,
        reporter: &mut dyn Reporter,
    ) {
        if self.told == Some(source) {
            return;
        }
        self.told = Some(source);
        let info = world.sources().get(usize::from(source.0));
        if let Some(info) = info.filter(|info| !info.abilities.passes) {
            let text = format!(
                "{} cannot tell which pages are idle, so demote-idle has no effect; DAMON can",
                info.name
            );
            reporter.event(now, Event::Notice { text });
        }
    }

    /// Whether the round is over, or some that may leave were not looked at.
    pub fn has_work(&self, rule: &IdleRule, now: Millis) -> bool {
        self.unseen > 0 || now.since(self.round_began) >= rule.round_ms()
    }

    /// Ends the round if it is time, and has those leave that were idle for long
    /// enough, as many as the rate admits. Whether any did.
    pub fn leave(
        &mut self,
        world: &mut dyn World,
        shared: &mut Shared,
        rule: &IdleRule,
        reporter: &mut dyn Reporter,
    ) -> bool {
        let now = world.now();
        self.earn(rule, &shared.pressed, now);
        if now.since(self.round_began) >= rule.round_ms() {
            self.round_began = now;
            if let Some(rounds) = &mut shared.records.rounds {
                forget_others(&shared.ledger, rounds);
                rounds.round_done();
            }
            self.unseen = shared.ledger.space.extent();
            self.common = common(&shared.ledger);
        }
        let some = |credit: &u64| *credit >= 1000;
        if self.unseen == 0 || !(some(&self.credit) || self.own.values().any(some)) {
            return false;
        }
        let before = self.left;
        let (chosen, mut paid) = self.choose(shared, rule, now);
        // They were as many as there is time for, and have had their turn.
        shared.moving_time.begin(u64::MAX);
        let why = format!("not touched for {}", rule.after);
        for (node, folios) in chosen {
            let random = self.random.draw();
            let Some(target) = target_of(&shared.ledger, node, random) else {
                continue;
            };
            let (tried, moved) = move_down(world, shared, folios, target, &why, reporter);
            // What left on its class's account is paid.
            let owed = tried.saturating_sub(paid);
            paid -= tried - owed;
            self.credit = self.credit.saturating_sub(1000 * owed);
            self.left += moved;
        }
        self.left > before
    }

    fn earn(&mut self, rule: &IdleRule, pressed: &Pressed, now: Millis) {
        let ms = now.since(self.credited);
        self.credited = now;
        let all = pressed.haste_permille(None);
        earn(&mut self.credit, faster(rule, all), ms);
        let hasty: BTreeMap<ClassId, u64> = pressed
            .hasty()
            .map(|class| {
                (
                    class,
                    pressed.haste_permille(Some(class)).saturating_sub(all),
                )
            })
            .collect();
        self.own.retain(|class, _| hasty.contains_key(class));
        for (class, more) in hasty {
            earn(self.own.entry(class).or_default(), faster(rule, more), ms);
        }
    }

    /// Those that leave now, by node; and how many pages of them their classes paid for.
    fn choose(
        &mut self,
        shared: &Shared,
        rule: &IdleRule,
        now: Millis,
    ) -> (BTreeMap<NodeId, Vec<Folio>>, u64) {
        let mut chosen: BTreeMap<NodeId, Vec<Folio>> = BTreeMap::new();
        let mut paid = 0;
        let Some(rounds) = &shared.records.rounds else {
            return (chosen, paid);
        };
        let extent = shared.ledger.space.extent();
        let mut leaving = Leaving::new(shared, rule, &self.common, now);
        let most = match shared.moving_time.is_known() {
            true => shared.turn_pages(),
            false => HUGE_PAGES.min(shared.turn_pages()),
        };
        let mut credit = (self.credit / 1000).min(most);
        let mut scan = SCAN_PAGES.min(self.unseen);
        while scan > 0 && extent > 0 {
            if self.cursor >= extent {
                self.cursor = 0;
            }
            let end = extent.min(self.cursor + scan);
            let mut beyond = 0;
            let stopped = rounds.for_each(self.cursor..end, LEAVES, |page| {
                if page.0 < beyond {
                    return true;
                }
                let folio = shared.ledger.folio(page);
                let pages = u64::from(folio.pages);
                beyond = folio.first.0 + pages;
                let Some(node) = leaving.node(folio) else {
                    return true;
                };
                let class = shared.ledger.class(folio.first);
                let own = class.and_then(|class| self.own.get_mut(&class));
                let own = own.filter(|own| **own >= 1000 * pages && paid + pages <= most);
                if own.is_none() && pages > credit {
                    return false;
                }
                if leaving.spares(folio) {
                    match own {
                        Some(own) => {
                            *own -= 1000 * pages;
                            paid += pages;
                        }
                        None => credit -= pages,
                    }
                    chosen.entry(node).or_default().push(folio);
                }
                // The next one that may leave waits for credit; this one had its turn, even
                // if it does not go.
                true
            });
            let seen = stopped - self.cursor;
            self.cursor = stopped;
            scan -= seen;
            self.unseen -= seen;
            if stopped < end {
                break;
            }
        }
        (chosen, paid)
    }
}

/// The rate in thousandths of what the rule says.
fn faster(rule: &IdleRule, permille: u64) -> u64 {
    (u128::from(rule.rate_pages) * u128::from(permille) / 1000) as u64
}

/// Adds to a bucket what `ms` are worth at `rate` pages a second.
fn earn(credit: &mut u64, rate: u64, ms: u64) {
    let most = match rate {
        0 => 0,
        rate => rate.max(HUGE_PAGES).saturating_mul(1000),
    };
    *credit = credit.saturating_add(rate.saturating_mul(ms)).min(most);
}

/// The pages of the ledger as they may leave for idleness.
struct Leaving<'a> {
    ledger: &'a Ledger,
    records: &'a Records,
    budgets: &'a Budgets,
    rule: &'a IdleRule,
    common: &'a Common,
    settle_ms: u64,
    now: Millis,
    /// Where pages of each node of the top tier might go.
    ways: Vec<(NodeId, NodeId)>,
    losses: Losses<'a>,
}

impl<'a> Leaving<'a> {
    fn new(shared: &'a Shared, rule: &'a IdleRule, common: &'a Common, now: Millis) -> Leaving<'a> {
        let ledger = &shared.ledger;
        let way = |node| Some((node, target_of(ledger, node, 0)?));
        Leaving {
            ledger,
            records: &shared.records,
            budgets: &shared.budgets,
            rule,
            common,
            settle_ms: shared.config.settle_ms,
            now,
            ways: ledger.top_nodes().into_iter().filter_map(way).collect(),
            losses: Losses::new(&shared.budgets, None),
        }
    }

    /// The node that `folio` leaves, if it does.
    fn node(&self, folio: Folio) -> Option<NodeId> {
        let node = self.ledger.node_of(folio.first)?;
        let (_, target) = self.ways.iter().find(|(from, _)| *from == node)?;
        let pages = || (0..u64::from(folio.pages)).map(|part| PageNumber(folio.first.0 + part));
        let store = &self.records.store;
        let window = store.config().window_ms();
        let warm = |page| {
            let known = store.peek(page, self.now);
            known.is_some_and(|hotness| hotness.age_ms <= window)
        };
        let rounds = self.records.rounds.as_ref()?;
        let recent = &self.records.recent;
        let class = self.ledger.class(folio.first);
        let leaves = self.budgets.tiered(class).demote_idle
            && self.ledger.may_move(folio.first, *target).is_ok()
            && is_wanted(self.ledger, folio.first, self.rule)
            && !self.is_common(folio.first)
            && !recent.moved_within(folio.first, Moved::Up, self.settle_ms, self.now)
            && pages().all(|page| rounds.rounds(page) >= LEAVES && !warm(page));
        leaves.then_some(node)
    }

    fn is_common(&self, page: PageNumber) -> bool {
        let area = self.ledger.space.locate(page).and_then(|(owner, page)| {
            let watched = self.ledger.processes.get(owner)?;
            watched.memory.area(page)
        });
        let backing = area.and_then(|area| area.backing.as_ref());
        backing.is_some_and(|backing| self.common.contains(&backing.object))
    }

    fn spares(&mut self, folio: Folio) -> bool {
        let class = self.ledger.class(folio.first);
        self.losses.spares(class, u64::from(folio.pages))
    }
}

/// Whether the rule is for the mapping that `page` is in.
pub(super) fn is_wanted(ledger: &Ledger, page: PageNumber, rule: &IdleRule) -> bool {
    let Some((owner, page)) = ledger.space.locate(page) else {
        return false;
    };
    let watched = ledger.processes.get(owner);
    let Some(area) = watched.and_then(|watched| watched.memory.area(page)) else {
        return false;
    };
    let kind = match (rule.only, area.kind) {
        (None, _) => true,
        (Some(IdleOnly::File), kind) => kind == MemoryKind::File,
        (Some(IdleOnly::Anon), kind) => kind != MemoryKind::File,
    };
    kind && area.pages >= rule.least_pages
}

/// What more than one process maps.
fn common(ledger: &Ledger) -> Common {
    let mut mappers: BTreeMap<(u64, u64), OwnerId> = BTreeMap::new();
    let mut common = Common::new();
    for watched in ledger.processes.iter() {
        let backings = watched.memory.areas.iter();
        for backing in backings.filter_map(|area| area.backing.as_ref()) {
            let first = *mappers.entry(backing.object).or_insert(watched.owner);
            if first != watched.owner {
                common.insert(backing.object);
            }
        }
    }
    common
}

/// Takes from `rounds` what it knows of pages that are not on the top tier or not
/// there.
fn forget_others(ledger: &Ledger, rounds: &IdleRounds) {
    const PAGES: u64 = SECTION_PAGES as u64;
    for watched in ledger.processes.iter() {
        for section in ledger.space.sections_of(watched.owner) {
            let first = u64::from(section) * PAGES;
            let mut known = first;
            let visit = |at: PageNumber, pages: u64, place: Place| {
                if ledger.topology.is_top_tier(place.node()) {
                    rounds.touched(PageNumber(known), at.0 - known);
                    known = at.0 + pages;
                }
            };
            ledger.placement.runs(PageNumber(first), PAGES, visit);
            rounds.touched(PageNumber(known), first + PAGES - known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::IdleTime;

    fn rule(rate_pages: u64) -> IdleRule {
        IdleRule {
            after: "10m".parse::<IdleTime>().unwrap(),
            rate_pages,
            only: None,
            least_pages: 0,
        }
    }

    /// Ten minutes are eight rounds of 75 s; a page leaves at the end of its ninth.
    #[test]
    fn a_page_knows_when_it_leaves() {
        let rule = rule(1);
        assert_eq!(rule.round_ms(), 75_000);
        assert_eq!(rule.leaves_in_ms(0, 0), 675_000);
        assert_eq!(rule.leaves_in_ms(8, 15_000), 60_000);
        assert_eq!(rule.leaves_in_ms(9, 0), 0);
        assert_eq!(rule.leaves_in_ms(100, 5), 0);
    }

    #[test]
    fn the_bucket_holds_a_second_or_a_huge_page() {
        let mut world = crate::testing::FakeWorld::two_tiers(100, 100);
        let (topology, page) = (world.topology().clone(), world.page());
        let options = crate::options::TierOptions::DEFAULT;
        let config = TierConfig::new(&options, &topology, page, 1).unwrap();
        let pressed = Pressed::new(&world, &config);
        let mut credit = |rate: u64, times: &[u64]| {
            let mut leaver = Leaver::new(&config, world.now());
            for ms in times {
                leaver.earn(&rule(rate), &pressed, Millis(*ms));
            }
            leaver.credit / 1000
        };
        // A tenth of a page is kept for later.
        assert_eq!(credit(1000, &[100, 101]), 101);
        assert_eq!(credit(3, &[100, 334]), 1);
        assert_eq!(credit(1000, &[60_000]), 1000);
        assert_eq!(credit(100, &[60_000]), 512);
        assert_eq!(credit(0, &[60_000]), 0);
    }
}
