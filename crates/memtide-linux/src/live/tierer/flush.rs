//! Making hidden accesses show.
//!
//! A processor that still has a page's translation at hand does not look at the
//! page table, so it sets no accessed bit, however often the page is touched.
//! Whoever clears the bit without flushing the translation (DAMON and
//! `clear_refs` both do, for speed) then takes the page for idle. Programs that
//! sleep and wake on one processor can hide most of their hot pages in this way.
//!
//! The kernel flushes all translations of a process when it migrates any page
//! of it. So while a process is observed, one cold page of it commutes between
//! its place and the fast tier, and is brought home at the end. A process that
//! has not run since last time has touched nothing and is left in peace.

use super::{Tierer, own_cpu};
use crate::mover::{Move, Outcome};
use memtide_core::tiering::cadence::Observe;
use memtide_core::tiering::space::OwnerId;
use memtide_core::units::{Millis, NodeId, PageNumber};

/// How often they are flushed while glancing, at most, in ms: once a pass.
const GLANCE_FLUSH_MS: u64 = 250;
/// While glancing, flushing may take one part in so many of a CPU.
const GLANCE_FLUSH_SHARE: u64 = 1000;

/// A page that serves to flush its process's translations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flusher {
    owner: OwnerId,
    page: PageNumber,
    home: NodeId,
    away: NodeId,
    /// Whether it is away now.
    out: bool,
    /// The process's processor time when it was last flushed.
    ticks: Option<u64>,
}

impl Tierer {
    /// Chooses a cold page of each process whose slow pages are observed.
    pub(super) fn choose_flushers(&mut self, now: Millis) {
        self.recall_flushers();
        let machine = self.machine();
        let mut flushers = Vec::new();
        for watched in self.processes.iter() {
            let mut chosen = None;
            for section in self.space.sections_of(watched.owner) {
                let first = u64::from(section) * memtide_core::hotness::SECTION_PAGES as u64;
                chosen = chosen.or_else(|| {
                    (first..first + memtide_core::hotness::SECTION_PAGES as u64)
                        .map(PageNumber)
                        .find_map(|page| self.flusher(&machine, watched.owner, page, now))
                });
            }
            flushers.extend(chosen);
        }
        self.flushers = flushers;
    }

    fn flusher(
        &self,
        machine: &super::Machine<'_>,
        owner: OwnerId,
        page: PageNumber,
        now: Millis,
    ) -> Option<Flusher> {
        use memtide_core::pages::Pages as _;
        let place = self.placement.get(page)?;
        let home = place.node();
        if place.huge() || place.stuck() || self.topology.is_top_tier(home) {
            return None;
        }
        let away = self.topology.promotion_target(home)?;
        let fits = machine.may_move(page, away).is_ok() && machine.may_move(page, home).is_ok();
        let cold = self.store.peek(page, now).is_none();
        (fits && cold).then_some(Flusher {
            owner,
            page,
            home,
            away,
            out: false,
            ticks: None,
        })
    }

    /// Flushes the translations of every observed process that has run, if it
    /// is time.
    pub(super) fn flush_translations(&mut self) {
        let now = self.now();
        let looking = self.told == Some(Observe::Look);
        let due = if looking {
            self.look_flush_due(now)
        } else {
            now.since(self.flushed) >= self.glance_flush_ms
        };
        if self.options.dry_run || !self.source.abilities().passes || !due {
            return;
        }
        self.flushed = now;
        let before = own_cpu();
        let mut flushers = std::mem::take(&mut self.flushers);
        flushers.retain_mut(|flusher| {
            let ticks = self
                .processes
                .get(flusher.owner)
                .map(|watched| watched.ticks);
            if !looking && ticks == flusher.ticks {
                return ticks.is_some();
            }
            flusher.ticks = ticks;
            self.commute(flusher)
        });
        self.flushers = flushers;
        let cost_ms = (own_cpu() - before).as_millis() as u64;
        self.glance_flush_ms = (cost_ms * GLANCE_FLUSH_SHARE).max(GLANCE_FLUSH_MS);
    }

    /// A pass clears all pages' bits, waits, and reads them in the same order: its
    /// middle lies between clearing and reading for every page. One flush in
    /// the first pass shows whether there is anything; the passes that follow
    /// need one each only if the first two leave open what is hot.
    fn look_flush_due(&self, now: Millis) -> bool {
        let first = self.pass_ended <= self.told_at;
        let began = self.pass_ended.max(self.told_at);
        let needed = first || self.cadence.stretch() > 1;
        needed && self.flushed < began && now.since(began) >= self.pass_ms / 2
    }

    /// Brings home what is away.
    pub(super) fn recall_flushers(&mut self) {
        for mut flusher in std::mem::take(&mut self.flushers) {
            if flusher.out {
                self.commute(&mut flusher);
            }
        }
    }

    /// Moves the page the other way; whether it went, and so may serve again.
    fn commute(&mut self, flusher: &mut Flusher) -> bool {
        let Some(watched) = self.processes.get(flusher.owner) else {
            return false;
        };
        let Some((_, page)) = self.space.locate(flusher.page) else {
            return false;
        };
        let process = watched.process;
        let one = [Move {
            address: (page.0 << self.page.shift()) as usize,
            pages: 1,
            huge: false,
            target: if flusher.out {
                flusher.home
            } else {
                flusher.away
            },
        }];
        let mut moved = false;
        self.mover.run(process, &one, |settled| {
            moved = matches!(
                settled.outcome,
                Outcome::Moved { .. } | Outcome::AlreadyThere
            );
        });
        flusher.out ^= moved;
        moved
    }
}
