//! The sources of a world that read accessed bits: DAMON, and scans of the page
//! tables.
//!
//! What `memtide tier` does with the kernel's DAMON is here as it is there. A
//! look takes in 262,144 pages at most; of several processes that are too many
//! half are left out until they fit, and of one the pages take turns. The first
//! look tries out how the kernel cuts regions; every view that begins has to be
//! told to the kernel, and waits for the one before it to end, which takes as
//! long as its present sleep. Nothing is known before the first pass is over. While
//! a look is on, the kernel keeps its regions in fast memory, which is that much
//! smaller for others.

use super::costs::WorldCosts;
use super::kdamond::{KEPT_RECORDS, Kdamond, Manner};
use super::machine::Machine;
use crate::rng::Rng;
use memtide_core::access;
use memtide_core::tiering::space::VirtualPage;
use memtide_loop::world::{
    Abilities, Report, SourceId, SourceInfo, SourceStatus, Span, Subject, View,
};

/// The most pages that a look of DAMON takes in: 1 GiB.
const LOOK_PAGES: u64 = 262_144;

/// What the kernel keeps of a region.
const REGION_BYTES: u64 = 64;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The kernel's: looks and glances, its own time.
    Damon,
    /// memtide's own scan: looks only, our time, and no limits.
    PageTables,
}

/// A source of accessed bits.
#[derive(Clone, Debug)]
pub(super) struct AccessedBits {
    id: SourceId,
    kind: Kind,
    costs: WorldCosts,
    /// By view.
    views: [Option<Kdamond>; 2],
    /// When the view that was ended last is gone.
    gone_ns: [u64; 2],
    /// Processor time and losses of views that ended.
    ended_cpu_ns: u64,
    ended_lost: u64,
    probed: bool,
    /// Where the next look at one process that cannot take all begins.
    turn: u64,
    rng: Rng,
}

impl AccessedBits {
    pub(super) fn new(id: SourceId, kind: Kind, costs: WorldCosts, seed: u64) -> AccessedBits {
        AccessedBits {
            id,
            kind,
            costs,
            views: [None, None],
            gone_ns: [0; 2],
            ended_cpu_ns: 0,
            ended_lost: 0,
            probed: kind == Kind::PageTables,
            turn: 0,
            rng: Rng::new(seed, 0xda_0000 + u64::from(id.0)),
        }
    }

    /// On a machine at scale 1/`scale`.
    pub(super) fn info(&self, scale: u64) -> SourceInfo {
        let (name, kind) = match self.kind {
            Kind::Damon => ("DAMON", access::Source::Damon),
            Kind::PageTables => ("page tables", access::Source::PageTableScan),
        };
        SourceInfo {
            name: name.to_owned(),
            kind,
            abilities: Abilities {
                passes: true,
                glances: self.kind == Kind::Damon,
                samples: false,
                keeps: (self.kind == Kind::Damon).then_some(KEPT_RECORDS / scale),
            },
        }
    }

    pub(super) fn status(&self) -> SourceStatus {
        let views = || self.views.iter().flatten();
        let cpu_ns = self.ended_cpu_ns + views().map(|view| view.cpu_ns).sum::<u64>();
        SourceStatus {
            kernel_cpu_ns: if self.kind == Kind::Damon { cpu_ns } else { 0 },
            own_cpu_ns: self.own_cpu_ns(),
            lost: self.ended_lost + views().map(|view| view.lost).sum::<u64>(),
            ..SourceStatus::default()
        }
    }

    /// Processor time that was ours and not the kernel's.
    pub(super) fn own_cpu_ns(&self) -> u64 {
        match self.kind {
            Kind::Damon => 0,
            Kind::PageTables => {
                let views = self.views.iter().flatten();
                self.ended_cpu_ns + views.map(|view| view.cpu_ns).sum::<u64>()
            }
        }
    }

    /// Whether it cuts what it is told into pieces.
    pub(super) fn cuts(&self) -> bool {
        self.kind == Kind::Damon
    }

    /// What telling it of a range costs us, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        match self.kind {
            Kind::Damon => self.costs.damon_span_ns,
            Kind::PageTables => 0,
        }
    }

    /// Ends a view with the pass that is under way, which is told.
    pub(super) fn finish(&mut self, view: View) {
        if let Some(old) = &mut self.views[view as usize] {
            old.turn_off();
        }
    }

    fn is_gone(&mut self, old: &Kdamond) {
        self.ended_cpu_ns += old.cpu_ns;
        self.ended_lost += old.lost;
    }

    /// Ends a view, and begins another unless there is nothing to watch. A glance cuts what it is
    /// told into pieces of so many pages. How many pages that takes in, and how long the caller
    /// waits for it.
    pub(super) fn begin(
        &mut self,
        view: View,
        subjects: &[Subject],
        (piece, interval_ms): (u64, u64),
        scale: u64,
        now_ns: u64,
    ) -> (u64, u64) {
        let slot = view as usize;
        if let Some(old) = self.views[slot].take() {
            self.gone_ns[slot] = match self.kind {
                Kind::Damon => old.ends_ns(now_ns, scale),
                Kind::PageTables => now_ns,
            };
            self.is_gone(&old);
        }
        let given = subjects.iter().filter(|subject| !subject.spans.is_empty());
        let mut subjects: Vec<Subject> = given.cloned().collect();
        if subjects.is_empty() {
            return (0, 0);
        }
        let mut waits_ns = self.gone_ns[slot].saturating_sub(now_ns);
        if self.kind == Kind::Damon {
            waits_ns += self.costs.damon_start_ns;
            if view == View::Look {
                self.fit(&mut subjects, (LOOK_PAGES / scale).max(1));
                if !std::mem::replace(&mut self.probed, true) {
                    waits_ns += self.costs.damon_probe_ns;
                }
            }
        }
        let manner = Manner {
            source: self.id,
            view,
            piece,
            region_ns: match self.kind {
                Kind::Damon => self.costs.damon_region_ns,
                Kind::PageTables => self.costs.scan_page_ns,
            },
            interval_ns: interval_ms * 1_000_000,
            tells_untouched: self.kind == Kind::PageTables,
            has_ring: self.kind == Kind::Damon,
        };
        let pages = subjects.iter().map(Subject::pages).sum();
        self.views[slot] = Some(Kdamond::new(manner, &subjects, now_ns + waits_ns));
        (pages, waits_ns)
    }

    /// Leaves out what does not fit into one look.
    fn fit(&mut self, subjects: &mut Vec<Subject>, limit: u64) {
        let pages = |subjects: &[Subject]| subjects.iter().map(Subject::pages).sum::<u64>();
        while subjects.len() > 1 && pages(subjects) > limit {
            subjects.truncate(subjects.len() / 2);
        }
        if pages(subjects) > limit {
            self.turn = take_turn(&mut subjects[0].spans, self.turn, limit);
        }
    }

    /// Bytes of the kernel's memory that its regions take.
    pub(super) fn kernel_bytes(&self, scale: u64) -> u64 {
        let look = self.views[View::Look as usize].as_ref();
        match self.kind {
            Kind::Damon => look.map_or(0, |look| look.regions() * scale * REGION_BYTES),
            Kind::PageTables => 0,
        }
    }

    /// Ends both views, at once.
    pub(super) fn close(&mut self) {
        for slot in 0..self.views.len() {
            if let Some(old) = self.views[slot].take() {
                self.is_gone(&old);
            }
        }
    }

    /// When something may come next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.views.iter().flatten().map(Kdamond::next_ns).min()
    }

    /// Works until `to_ns`.
    pub(super) fn run(
        &mut self,
        machine: &mut dyn Machine,
        to_ns: u64,
        reading: bool,
        slowdown: u64,
        out: &mut Vec<Report>,
    ) {
        for slot in 0..self.views.len() {
            let Some(view) = &mut self.views[slot] else {
                continue;
            };
            view.run(machine, &mut self.rng, to_ns, reading, slowdown, out);
            if view.is_over()
                && let Some(old) = self.views[slot].take()
            {
                self.is_gone(&old);
            }
        }
    }

    /// What came was read.
    pub(super) fn drained(&mut self) {
        self.views.iter_mut().flatten().for_each(Kdamond::drained);
    }
}

/// Cuts `spans` to `limit` of their pages, from the `turn`th on and round;
/// where the next turn begins.
fn take_turn(spans: &mut Vec<Span>, turn: u64, limit: u64) -> u64 {
    let all: u64 = spans.iter().map(|span| span.pages).sum();
    let from = turn % all;
    // How far each page is from the turn's first decides whether it is in.
    let mut at = 0;
    let mut taken: Vec<Span> = Vec::new();
    for span in spans.iter() {
        let mut take = |first: u64, end: u64| {
            let (first, end) = (
                first.clamp(at, at + span.pages),
                end.clamp(at, at + span.pages),
            );
            if first < end {
                taken.push(Span {
                    first: VirtualPage(span.first.0 + first - at),
                    pages: end - first,
                });
            }
        };
        take(0, (from + limit).saturating_sub(all));
        take(from, (from + limit).min(all));
        at += span.pages;
    }
    *spans = taken;
    (from + limit) % all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_turns_every_page_is_taken_once_a_round() {
        let all = [(100, 10), (200, 20)].map(|(first, pages)| Span {
            first: VirtualPage(first),
            pages,
        });
        let mut turn = 0;
        let mut seen = std::collections::BTreeMap::new();
        // 12 of 30 pages a turn: five turns are two rounds.
        for _ in 0..5 {
            let mut spans = all.to_vec();
            turn = take_turn(&mut spans, turn, 12);
            assert_eq!(spans.iter().map(|span| span.pages).sum::<u64>(), 12);
            assert!(spans.windows(2).all(|pair| pair[0].first < pair[1].first));
            for span in spans {
                for page in span.first.0..span.first.0 + span.pages {
                    *seen.entry(page).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(turn, 0);
        assert!(seen.len() == 30 && seen.values().all(|&times| times == 2));
    }
}
