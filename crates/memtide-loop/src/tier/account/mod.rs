//! What promotion won and what it cost, for each process and in all; and who rests.
//!
//! # Problem
//!
//! A page that goes up saves time with each access, and costs time as it moves. Where
//! pages go to and fro, or where fast memory is no faster under its load, it costs more
//! than it saves. Nobody sees that in counts of pages.
//!
//! # Approach
//!
//! *Won*, in nanoseconds a second: the accesses that pages take that went up and are
//! still there and in use, times what each of them saves. How many pages these are is
//! known from a sample of each process's, [`SAMPLE`] folios drawn at random of all that
//! went up: once a second each of them is looked at, and what left is a share of all. A
//! page takes as many accesses as it took when it went up, by the convention of
//! [`Benefit`] for accessed bits, since no counter is asked; one of a huge page stands for
//! as many of each of its base pages. An access saves the
//! difference of the loaded latencies of the two nodes, or of those that firmware tells
//! where [canaries](super::latency) are not believed.
//!
//! *Spent*, in the same unit: of each process, for each folio of it that moved, up or
//! down, what the move takes. In all, besides, hint faults that programs took for us,
//! our own processor time beyond the moves, and the kernel's that observes for us.
//!
//! Both are averaged over about [`MEAN_MS`].
//!
//! A process *rests* if it spent more than it won, after a try of [`MEAN_MS`]: none of
//! its pages is promoted for a while. After each try that did not pay the rest is twice
//! as long as the one before, from [`LEAST_MS`] to [`MOST_MS`]; one that won twice what
//! it spent makes the next rest short again. In between promotion is *slow*: it happens
//! in every second second only.
//!
//! # Properties
//!
//! - A process cannot win more than its processor time would have been longer, had all
//!   of that waited for memory: who does not run wins nothing.
//! - Nobody rests where latencies are not believed.
//! - It costs a look at [`SAMPLE`] pages of each process a second.

use super::latency::{Latencies, Pair};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::records::Records;
use crate::report::{AccountStatus, TierSpent};
use memtide_core::hotness::Hotness;
use memtide_core::pages::{Folio, Pages as _};
use memtide_core::promotion::Benefit;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};
use std::collections::BTreeMap;

/// Folios of a process that stand for all that went up.
const SAMPLE: usize = 64;
/// What the averages reach back, and how long a try is before it is judged, in ms.
const MEAN_MS: u64 = 16_000;
/// The shortest and the longest rest, in ms.
const LEAST_MS: u64 = 10_000;
const MOST_MS: u64 = 640_000;
/// A clock tick of processor time.
const TICK_NS: u64 = 10_000_000;
/// What moving a folio takes once, however large it is, in nanoseconds: unmapping it and
/// flushing its translations.
const ONCE_NS: u64 = 4_000;
/// A hint fault, in nanoseconds of the program that takes it.
const FAULT_NS: u64 = 1_500;

/// What came and what went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    /// A second, on average.
    pub won_per_s: u64,
    pub spent_per_s: u64,
    /// Since the beginning.
    pub won_ns: u64,
    pub spent_ns: u64,
}

impl Flow {
    /// So much was won and spent in the last `elapsed_ms`.
    fn book(&mut self, won_ns: u64, spent_ns: u64, elapsed_ms: u64) {
        self.won_ns = self.won_ns.saturating_add(won_ns);
        self.spent_ns = self.spent_ns.saturating_add(spent_ns);
        let weight = u128::from(elapsed_ms.min(MEAN_MS));
        let average = |old: u64, ns: u64| {
            let now = u128::from(ns) * 1000 / u128::from(elapsed_ms.max(1));
            let sum = u128::from(old) * (u128::from(MEAN_MS) - weight) + now * weight;
            u64::try_from(sum / u128::from(MEAN_MS)).unwrap_or(u64::MAX)
        };
        self.won_per_s = average(self.won_per_s, won_ns);
        self.spent_per_s = average(self.spent_per_s, spent_ns);
    }
}

/// A folio of a sample.
#[derive(Clone, Copy, Debug)]
struct Raised {
    first: PageNumber,
    /// The node that it came from.
    from: NodeId,
    accesses_per_s: u64,
}

/// Whether a process's pages go up.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// When the present try began.
    since: Millis,
    /// What had been spent then.
    spent_ns: u64,
    /// When a page went up last.
    moved: Millis,
    /// When the rest ends.
    rests_until: Option<Millis>,
    /// How long the last rest was, and when it ended.
    wait_ms: u64,
    ended: Millis,
    slow: bool,
    /// Whether this is a second of slow promotion in which none happens.
    off: bool,
}

impl Pace {
    fn judge(&mut self, flow: &mut Flow, now: Millis) {
        if let Some(until) = self.rests_until {
            if now < until {
                return;
            }
            *self = Pace {
                since: now,
                spent_ns: flow.spent_ns,
                rests_until: None,
                ended: now,
                slow: false,
                ..*self
            };
            // A try is judged by itself.
            (flow.won_per_s, flow.spent_per_s) = (0, 0);
            return;
        }
        self.off = !self.off;
        let Flow {
            won_per_s,
            spent_per_s,
            ..
        } = *flow;
        if now.since(self.since) < MEAN_MS || flow.spent_ns == self.spent_ns {
            return;
        }
        self.slow = won_per_s < 2 * spent_per_s;
        if !self.slow {
            self.wait_ms = 0;
        }
        if won_per_s < spent_per_s {
            // Long ago it was another program.
            let recent = now.since(self.ended) <= 2 * MOST_MS;
            self.wait_ms = match recent {
                true => (2 * self.wait_ms).clamp(LEAST_MS, MOST_MS),
                false => LEAST_MS,
            };
            self.rests_until = Some(Millis(now.0 + self.wait_ms));
        }
    }
}

/// One process's account.
#[derive(Debug, Default)]
struct Balance {
    /// Folios that went up and are there still, as far as the sample tells.
    folios: u64,
    sample: Vec<Raised>,
    /// Spent since the last audit.
    moved_ns: u64,
    /// What it had run at the last audit, in clock ticks.
    ticks: Option<u64>,
    flow: Flow,
    pace: Pace,
}

/// Why nothing of a process goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resting {
    pub won_per_s: u64,
    pub spent_per_s: u64,
    /// When it is tried again.
    pub until: Millis,
}

impl Resting {
    /// For people.
    pub fn words(&self, now: Millis) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "rests: promoting its pages cost {:.1} ms a second and won {:.1}; tried again in {} s",
            ms(self.spent_per_s),
            ms(self.won_per_s),
            self.until.since(now).div_ceil(1000)
        )
    }
}

/// What was spent in all, by cause, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Causes {
    pub moves_ns: u64,
    pub faults_ns: u64,
    pub own_ns: u64,
    pub observing_ns: u64,
}

impl Causes {
    pub fn sum(&self) -> u64 {
        let parts = [self.faults_ns, self.own_ns, self.observing_ns];
        parts.into_iter().fold(self.moves_ns, u64::saturating_add)
    }
}

/// What was used so far, as the parts of the loop count it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// Our processor time, moves included.
    pub own_ns: u64,
    /// The kernel's.
    pub observing_ns: u64,
    /// Hint faults.
    pub faults: u64,
}

/// The account. See the module's essay.
#[derive(Debug)]
pub(super) struct Account {
    balances: BTreeMap<OwnerId, Balance>,
    benefit: Benefit,
    window_ms: u32,
    /// Real pages that a page stands for.
    weight: u64,
    random: Random,
    audited: Option<Millis>,
    /// What all moves took.
    moves_ns: u64,
    pub causes: Causes,
    pub flow: Flow,
}

impl Account {
    pub fn new(benefit: Benefit, window_ms: u32, weight: u64, seed: u64) -> Account {
        Account {
            balances: BTreeMap::new(),
            benefit,
            window_ms,
            weight,
            random: Random::new(seed),
            audited: None,
            moves_ns: 0,
            causes: Causes::default(),
            flow: Flow::default(),
        }
    }

    /// A folio of so many base pages of a process moved. What leaves fast memory leaves for others, so
    /// only what goes up is on the process's own account.
    pub fn moved(&mut self, owner: OwnerId, pages: u64, up: bool) {
        let copy_ns = self.benefit.move_ns.saturating_sub(ONCE_NS);
        let folio_ns = self.benefit.move_ns + pages.saturating_sub(1) * copy_ns;
        let ns = folio_ns * self.weight;
        self.moves_ns = self.moves_ns.saturating_add(ns);
        if up {
            self.balances.entry(owner).or_default().moved_ns += ns;
        }
    }

    /// A folio of this hotness went up from node `from`.
    pub fn raised(&mut self, owner: OwnerId, folio: Folio, from: NodeId, hotness: &Hotness) {
        let counted = u64::from(hotness.frequency) * self.benefit.accesses_per_record;
        let counted = counted * u64::from(folio.pages);
        let raised = Raised {
            first: folio.first,
            from,
            accesses_per_s: counted * 1000 / u64::from(self.window_ms.max(1)),
        };
        let balance = self.balances.entry(owner).or_default();
        balance.folios += 1;
        match balance.sample.len() < SAMPLE {
            true => balance.sample.push(raised),
            // As long as none leaves, each that went up is in it as likely as any other.
            false => {
                let place = self.random.below(balance.folios) as usize;
                if let Some(place) = balance.sample.get_mut(place) {
                    *place = raised;
                }
            }
        }
    }

    /// Forgets a process that is gone.
    pub fn forget(&mut self, owner: OwnerId) {
        self.balances.remove(&owner);
    }

    /// Whether a process's pages may go up.
    pub fn may_promote(&self, owner: OwnerId) -> bool {
        let balance = self.balances.get(&owner);
        balance.is_none_or(|balance| {
            let pace = &balance.pace;
            pace.rests_until.is_none() && !(pace.slow && pace.off)
        })
    }

    /// Why none of a process's pages goes up, if it rests.
    pub fn rests(&self, owner: OwnerId) -> Option<Resting> {
        let balance = self.balances.get(&owner)?;
        Some(Resting {
            won_per_s: balance.flow.won_per_s,
            spent_per_s: balance.flow.spent_per_s,
            until: balance.pace.rests_until?,
        })
    }

    /// Where it stands, with how late nodes answer.
    pub fn status(&self, latencies: &Latencies) -> AccountStatus {
        let (flow, causes) = (self.flow, self.causes);
        AccountStatus {
            won_ns_per_s: flow.won_per_s,
            spent_ns_per_s: flow.spent_per_s,
            won_ns: flow.won_ns,
            spent: TierSpent {
                moves_ns: causes.moves_ns,
                faults_ns: causes.faults_ns,
                own_ns: causes.own_ns,
                observing_ns: causes.observing_ns,
            },
            latencies_ns: latencies.all().collect(),
            resting_processes: self.resting(),
        }
    }

    /// How many processes rest.
    pub fn resting(&self) -> usize {
        let balances = self.balances.values();
        balances
            .filter(|balance| balance.pace.rests_until.is_some())
            .count()
    }

    /// What a process won and spent.
    pub fn flow_of(&self, owner: OwnerId) -> Flow {
        let balance = self.balances.get(&owner);
        balance.map_or(Flow::default(), |balance| balance.flow)
    }

    /// Books what the time since the last audit brought. A page that was untouched in `idle_age`
    /// looks in a row is not in use. Nobody is judged unless `judges`. Who began to rest.
    pub fn audit(
        &mut self,
        (ledger, records): (&Ledger, &Records),
        latencies: &Latencies,
        (idle_age, judges): (u8, bool),
        used: Used,
        now: Millis,
    ) -> Vec<OwnerId> {
        let last = self.audited.replace(now);
        let elapsed_ms = last.map_or(0, |last| now.since(last));
        let book = Book {
            ledger,
            records,
            latencies,
            benefit: self.benefit,
            idle_age,
            weight: self.weight,
            elapsed_ms,
        };
        let (mut won_ns, mut rested) = (0_u64, Vec::new());
        // While fast memory is slower nobody can win, whatever is spent.
        let judges = judges && !latencies.is_any_slower();
        let believed = latencies.is_any_believed(&ledger.topology);
        for watched in ledger.processes.iter() {
            let balance = self.balances.entry(watched.owner).or_default();
            let before = balance.ticks.replace(watched.ticks);
            if before.is_none() {
                balance.pace.since = now;
            }
            let ticks = watched
                .ticks
                .saturating_sub(before.unwrap_or(watched.ticks));
            if elapsed_ms == 0 {
                continue;
            }
            let won = book.won(balance, ticks);
            won_ns = won_ns.saturating_add(won);
            let moved_ns = std::mem::take(&mut balance.moved_ns);
            // After a quiet time another try begins.
            if moved_ns > 0 {
                let pace = &mut balance.pace;
                if now.since(pace.moved) >= MEAN_MS {
                    pace.since = now;
                    pace.spent_ns = balance.flow.spent_ns;
                }
                pace.moved = now;
            }
            balance.flow.book(won, moved_ns, elapsed_ms);
            let rests = balance.pace.rests_until;
            match believed {
                true if judges => balance.pace.judge(&mut balance.flow, now),
                true => {}
                false => {
                    balance.pace = Pace {
                        since: now,
                        ..Pace::default()
                    }
                }
            }
            if balance.pace.rests_until.is_some() && rests.is_none() {
                rested.push(watched.owner);
            }
        }
        let before = self.causes.sum();
        self.causes = Causes {
            moves_ns: self.moves_ns,
            faults_ns: used.faults * self.weight * FAULT_NS,
            own_ns: (used.own_ns.saturating_sub(self.moves_ns)).max(self.causes.own_ns),
            observing_ns: used.observing_ns.max(self.causes.observing_ns),
        };
        let spent_ns = self.causes.sum().saturating_sub(before);
        self.flow.book(won_ns, spent_ns, elapsed_ms);
        rested
    }
}

/// What an audit knows.
struct Book<'a> {
    ledger: &'a Ledger,
    records: &'a Records,
    latencies: &'a Latencies,
    benefit: Benefit,
    idle_age: u8,
    weight: u64,
    elapsed_ms: u64,
}

impl Book<'_> {
    /// What a process won in the time, in nanoseconds, of which it ran `ticks`. Folios that left
    /// are no longer counted.
    fn won(&self, balance: &mut Balance, ticks: u64) -> u64 {
        let before = balance.sample.len() as u64;
        balance
            .sample
            .retain(|raised| self.node(raised.first).is_some());
        let there = balance.sample.len() as u64;
        let share = |of: u64| u128::from(balance.folios) * u128::from(of);
        balance.folios = (share(there) / u128::from(before.max(1))) as u64;
        let (mut saved, mut longer_permille) = (0_u128, 0);
        for raised in &balance.sample {
            let Some(node) = self.node(raised.first) else {
                continue;
            };
            let topology = &self.ledger.topology;
            let pair = self.latencies.pair(topology, raised.from, node);
            let pair = pair.unwrap_or(Pair {
                fast_ns: self.benefit.fast_ns.max(1),
                slow_ns: self.benefit.slow_ns,
            });
            longer_permille = longer_permille.max(pair.saved_ns() * 1000 / pair.fast_ns);
            if self.is_in_use(raised.first) {
                saved += u128::from(raised.accesses_per_s) * u128::from(pair.saved_ns());
            }
        }
        let folios = u128::from(balance.folios) * u128::from(self.weight);
        let a_second = saved * folios / u128::from(there.max(1));
        let won = a_second * u128::from(self.elapsed_ms) / 1000;
        let most = u128::from(ticks) * u128::from(TICK_NS) * u128::from(longer_permille) / 1000;
        u64::try_from(won.min(most)).unwrap_or(u64::MAX)
    }

    /// The fast node on which the page is, if it is on one.
    fn node(&self, page: PageNumber) -> Option<NodeId> {
        let node = self.ledger.node_of(page)?;
        self.ledger.topology.is_top_tier(node).then_some(node)
    }

    /// Whether any of some pages of its folio is not known to be idle.
    fn is_in_use(&self, page: PageNumber) -> bool {
        let Folio { first, pages } = self.ledger.folio(page);
        let step = (pages as usize / 4).max(1);
        let mut some = (0..u64::from(pages)).step_by(step);
        some.any(|n| self.records.idle.age(PageNumber(first.0 + n)) < self.idle_age)
    }
}

#[cfg(test)]
mod tests;
