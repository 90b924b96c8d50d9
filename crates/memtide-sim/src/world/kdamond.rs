//! A kernel thread that watches accessed bits in passes, as DAMON's does.
//!
//! A pass clears the bit of one page of every region, sleeps one interval, and
//! reads the bits in the same order; then it tells of the regions whose page was
//! accessed, and the next pass begins. In a *look* every page is a region of its
//! own. In a *glance* a region is as large as it was given and answers by one
//! page, drawn anew for every pass.
//!
//! Clearing and reading take processor time, region by region, so a pass is as
//! much longer than its interval as there are regions; each page is exposed for
//! the interval and the time of one of the two walks. What is told goes into a
//! ring: its reader drains it while it waits, and what does not fit while the
//! reader is busy is lost, the end of the pass with it.
//!
//! Rules and figures follow `Documentation/admin-guide/mm/damon` and what was
//! measured on Linux 6.12 and 7.2.

use super::machine::Machine;
use crate::rng::Rng;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_loop::world::{ProcessId, Report, SourceId, Span, Subject, View};

/// Bytes of a record in the ring, and of a page of it.
const RECORD_BYTES: u64 = 72;
const RING_PAGE_BYTES: u64 = 4096;
/// The ring's least and greatest length, in pages.
const RING_PAGES: (u64, u64) = (16, 1024);
/// Records that the greatest keeps while nobody reads them.
pub(super) const KEPT_RECORDS: u64 = RING_PAGES.1 * RING_PAGE_BYTES / RECORD_BYTES;
/// The kernel's fewest regions: a watched region is no larger than this part of all.
const FEWEST_REGIONS: u64 = 3;

/// A part of somebody's memory.
#[derive(Clone, Copy, Debug)]
struct Item {
    owner: OwnerId,
    process: ProcessId,
    span: Span,
    /// The page that answers for all, in a glance.
    page: VirtualPage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Clear,
    Sleep { until_ns: u64 },
    Read,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// With the pass that is under way.
    Due,
    Over,
}

/// How it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    pub(super) source: SourceId,
    pub(super) view: View,
    /// The largest region of a glance, in pages.
    pub(super) piece: u64,
    /// Both walks of a region.
    pub(super) region_ns: u64,
    pub(super) interval_ns: u64,
    /// Whether pages that were not touched are told of, too.
    pub(super) tells_untouched: bool,
    /// How much is lost if nobody reads; `false`: nothing.
    pub(super) has_ring: bool,
}

/// The thread at work. See the module's essay.
#[derive(Clone, Debug)]
pub(super) struct Kdamond {
    manner: Manner,
    items: Vec<Item>,
    phase: Phase,
    /// Its own clock: how far it came.
    at_ns: u64,
    /// When the present walk's clearing began.
    began_ns: u64,
    /// When reading began.
    read_ns: u64,
    /// Where the present walk stands: an item, and a page of it.
    item: usize,
    offset: u64,
    found: Vec<Report>,
    /// Records of `found`.
    records: u64,
    /// Records in the ring that nobody has read.
    unread: u64,
    /// What a region of a walk costs now.
    page_ns: u64,
    end: End,
    /// Processor time since it began.
    pub(super) cpu_ns: u64,
    pub(super) lost: u64,
}

impl Kdamond {
    /// One that begins at `now_ns`.
    pub(super) fn new(manner: Manner, subjects: &[Subject], now_ns: u64) -> Kdamond {
        let all: u64 = subjects.iter().map(Subject::pages).sum();
        let most = match manner.view {
            View::Look => u64::MAX,
            View::Glance => (all / FEWEST_REGIONS).min(manner.piece).max(1),
        };
        let mut items = Vec::new();
        for subject in subjects {
            for span in &subject.spans {
                let mut from = 0;
                while from < span.pages {
                    let pages = most.min(span.pages - from);
                    let first = VirtualPage(span.first.0 + from);
                    items.push(Item {
                        owner: subject.owner,
                        process: subject.process,
                        span: Span { first, pages },
                        page: first,
                    });
                    from += pages;
                }
            }
        }
        Kdamond {
            manner,
            items,
            phase: Phase::Clear,
            at_ns: now_ns,
            began_ns: now_ns,
            read_ns: now_ns,
            item: 0,
            offset: 0,
            found: Vec::new(),
            records: 0,
            unread: 0,
            page_ns: manner.region_ns / 2,
            end: End::Open,
            cpu_ns: 0,
            lost: 0,
        }
    }

    /// When it does something next; until then nothing comes of it.
    pub(super) fn next_ns(&self) -> u64 {
        match self.phase {
            Phase::Sleep { until_ns } => until_ns,
            Phase::Clear | Phase::Read => self.at_ns,
        }
    }

    /// It ends with the pass that is under way.
    pub(super) fn turn_off(&mut self) {
        self.end = match self.items.is_empty() {
            true => End::Over,
            false => End::Due,
        };
    }

    /// Whether it was turned off and its last pass has ended.
    pub(super) fn is_over(&self) -> bool {
        self.end == End::Over
    }

    /// When it is gone if somebody ends it now: after its present sleep, or with its last pass if
    /// it makes that, on a machine at scale 1/`scale`.
    pub(super) fn ends_ns(&self, now_ns: u64, scale: u64) -> u64 {
        match (self.end, self.phase) {
            (End::Due, _) => self.pass_ends_ns(scale).max(now_ns),
            (_, Phase::Sleep { until_ns }) => until_ns.max(now_ns),
            (_, Phase::Clear | Phase::Read) => now_ns,
        }
    }

    /// When the pass that is under way ends at the soonest.
    fn pass_ends_ns(&self, scale: u64) -> u64 {
        let all = self.regions();
        let walked = match self.manner.view {
            View::Look => {
                let before = self.items.iter().take(self.item);
                before.map(|item| item.span.pages).sum::<u64>() + self.offset
            }
            View::Glance => self.item as u64,
        };
        let real = self.real(scale);
        let walk_ns = |regions: u64| regions * self.page_ns * real;
        match self.phase {
            Phase::Clear => {
                self.at_ns + walk_ns(all - walked) + self.manner.interval_ns + walk_ns(all)
            }
            Phase::Sleep { until_ns } => until_ns + walk_ns(all),
            Phase::Read => self.at_ns + walk_ns(all - walked),
        }
    }

    /// How many a region of a walk stands for: a page stands for S, but a region of a glance is one.
    fn real(&self, scale: u64) -> u64 {
        match self.manner.view {
            View::Look => scale,
            View::Glance => 1,
        }
    }

    /// Nothing in its ring is unread.
    pub(super) fn drained(&mut self) {
        self.unread = 0;
    }

    /// Works until `to_ns`. `reading`: whether somebody drains the ring
    /// meanwhile. `slowdown` multiplies what a region costs.
    pub(super) fn run(
        &mut self,
        machine: &mut dyn Machine,
        rng: &mut Rng,
        to_ns: u64,
        reading: bool,
        slowdown: u64,
        out: &mut Vec<Report>,
    ) {
        let real = self.real(machine.scale());
        self.page_ns = self.manner.region_ns * slowdown / 2;
        let page_ns = (self.manner.region_ns * slowdown * real / 2).max(1);
        while self.at_ns < to_ns && !self.items.is_empty() && !self.is_over() {
            match self.phase {
                Phase::Sleep { until_ns } if until_ns > to_ns => return,
                Phase::Sleep { until_ns } => {
                    self.at_ns = until_ns.max(self.at_ns);
                    self.read_ns = self.at_ns;
                    self.phase = Phase::Read;
                }
                Phase::Clear | Phase::Read => {
                    let regions = (to_ns - self.at_ns).div_ceil(page_ns);
                    let done = self.walk(machine, rng, regions);
                    self.at_ns += done * page_ns;
                    self.cpu_ns += done * page_ns;
                    machine.charge(done * page_ns);
                    if self.item == self.items.len() {
                        self.turn_over(real, reading, out);
                    }
                }
            }
        }
    }

    /// A walk is at its end.
    fn turn_over(&mut self, scale: u64, reading: bool, out: &mut Vec<Report>) {
        (self.item, self.offset) = (0, 0);
        if self.phase == Phase::Clear {
            let until_ns = self.at_ns + self.manner.interval_ns;
            self.phase = Phase::Sleep { until_ns };
            return;
        }
        self.phase = Phase::Clear;
        self.began_ns = self.at_ns;
        if self.end == End::Due {
            self.end = End::Over;
        }
        self.tell(scale, reading, out);
    }

    /// Puts a pass into the ring. A record is one of `scale` real ones.
    fn tell(&mut self, scale: u64, reading: bool, out: &mut Vec<Report>) {
        let records = std::mem::take(&mut self.records);
        // The mark at its end is a record, too.
        let room = self.ring(scale).saturating_sub(self.unread);
        let whole = reading || !self.manner.has_ring || records < room;
        if whole {
            out.append(&mut self.found);
            out.push(Report::Pass {
                source: self.manner.source,
                view: self.manner.view,
            });
            self.unread += if reading { 0 } else { records + 1 };
            return;
        }
        let mut left = room;
        for mut report in self.found.drain(..) {
            let Report::Touched { pages, .. } = &mut report else {
                continue;
            };
            *pages = match self.manner.view {
                View::Look => (*pages).min(left),
                View::Glance => *pages * left.min(1),
            };
            left -= match self.manner.view {
                View::Look => *pages,
                View::Glance => left.min(1),
            };
            if *pages > 0 {
                out.push(report);
            }
        }
        self.unread += room;
        self.lost += (records + 1 - room) * scale;
    }

    /// How many of the machine's records the ring holds: it is made for a pass
    /// in which all regions were accessed.
    fn ring(&self, scale: u64) -> u64 {
        let pages = (self.regions() * scale * RECORD_BYTES / RING_PAGE_BYTES + 1)
            .next_power_of_two()
            .clamp(RING_PAGES.0, RING_PAGES.1);
        (pages * RING_PAGE_BYTES / RECORD_BYTES / scale).max(1)
    }

    /// All regions of a pass.
    pub(super) fn regions(&self) -> u64 {
        match self.manner.view {
            View::Look => self.items.iter().map(|item| item.span.pages).sum(),
            View::Glance => self.items.len() as u64,
        }
    }

    /// Goes over `regions` at most; how many it did.
    fn walk(&mut self, machine: &mut dyn Machine, rng: &mut Rng, regions: u64) -> u64 {
        let exposed_ns = self.read_ns.saturating_sub(self.began_ns);
        let mut left = regions;
        while left > 0 && self.item < self.items.len() {
            let item = &mut self.items[self.item];
            let (span, done, whole) = match self.manner.view {
                View::Look => {
                    let pages = left.min(item.span.pages - self.offset);
                    let first = VirtualPage(item.span.first.0 + self.offset);
                    (Span { first, pages }, pages, None)
                }
                View::Glance => {
                    if self.phase == Phase::Clear {
                        let limit = item.span.pages.min(u64::from(u32::MAX)) as u32;
                        let page = item.span.first.0 + u64::from(rng.below(limit));
                        item.page = VirtualPage(page);
                    }
                    let first = item.page;
                    (Span { first, pages: 1 }, 1, Some(item.span))
                }
            };
            let item = *item;
            match self.phase {
                Phase::Clear => machine.clear_accessed(item.process, span),
                _ => self.read(machine, item, span, exposed_ns, whole),
            }
            left -= done;
            self.offset += done;
            if whole.is_some() || self.offset == item.span.pages {
                (self.item, self.offset) = (self.item + 1, 0);
            }
        }
        regions - left
    }

    fn read(
        &mut self,
        machine: &mut dyn Machine,
        item: Item,
        span: Span,
        exposed_ns: u64,
        whole: Option<Span>,
    ) {
        let Manner { source, view, .. } = self.manner;
        let owner = item.owner;
        let (found, records) = (&mut self.found, &mut self.records);
        let tells_untouched = self.manner.tells_untouched;
        let mut untouched_from = span.first.0;
        let mut untouched = |found: &mut Vec<Report>, to: u64, next: u64| {
            let first = VirtualPage(std::mem::replace(&mut untouched_from, next));
            if tells_untouched && first.0 < to {
                found.push(Report::Untouched {
                    source,
                    owner,
                    first,
                    pages: to - first.0,
                });
            }
        };
        machine.accessed(item.process, span, exposed_ns, &mut |run| {
            untouched(found, run.first.0, run.first.0 + run.pages);
            let Span { first, pages } = whole.unwrap_or(run);
            *records += if whole.is_some() { 1 } else { pages };
            found.push(Report::Touched {
                source,
                view,
                owner,
                first,
                pages,
            });
        });
        let end = span.first.0 + span.pages;
        untouched(found, end, end);
    }
}
