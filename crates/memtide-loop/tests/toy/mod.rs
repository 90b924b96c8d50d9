//! A machine for the search: memory of which some is hot, a clock, and a source
//! that costs what DAMON costs.
//!
//! A hot page is touched 40 times a second, a cold one once a minute, at random
//! moments. Nothing is kept for a page, so that terabytes are no trouble; what
//! was found leaves at once, as if it had been promoted.

#![allow(dead_code)]

use memtide_core::tiering::sample::Run;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::Millis;
use memtide_loop::search::{Config, Memory, Order, Search, Span, View, Watch};
use std::collections::BTreeMap;

pub const MIB: u64 = 256;
pub const GIB: u64 = 1024 * MIB;
pub const TIB: u64 = 1024 * GIB;

/// Touches a second.
const HOT: f64 = 40.0;
const COLD: f64 = 1.0 / 60.0;

/// Which pages are hot: one in 64 of all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Ranges of so many pages, none at a border of anything.
    Ranges(u64),
    /// Pieces of so many pages, at their borders.
    Pieces(u64),
    /// Single pages.
    Scattered,
    /// Single pages, and of sixteen only the first eight are mapped.
    Gaps,
    /// Every page is touched, the one of rank `r` of `n` in proportion to
    /// `1/r^0.99`. Hot is what is touched ten times a second.
    Zipf(u64),
    /// The first so many pages of each owner.
    First(u64),
    /// Nothing.
    Cold,
}

impl Shape {
    /// Touches a second of page `page`.
    pub fn rate(self, page: u64) -> f64 {
        let hot = match self {
            Shape::Ranges(len) => (page + len / 3 + 77) % (64 * len) < len,
            Shape::Pieces(len) => {
                let piece = page / len;
                mix(piece / 64) % 64 == piece % 64
            }
            Shape::Scattered => mix(page).is_multiple_of(64),
            Shape::Gaps if page % 16 >= 8 => return 0.0,
            Shape::Gaps => mix(page).is_multiple_of(64),
            Shape::Zipf(pages) => {
                let rank = mix(page) % pages + 1;
                return 10.0 * (pages as f64 / 64.0 / rank as f64).powf(0.99);
            }
            Shape::First(len) => page < len,
            Shape::Cold => false,
        };
        if hot { HOT } else { COLD }
    }

    pub fn hot(self, page: u64) -> bool {
        self.rate(page) >= 10.0
    }

    /// Touched so rarely that it should stay where it is: not within a window.
    pub fn cold(self, page: u64) -> bool {
        self.rate(page) < 0.2
    }

    /// Hot pages among `first..first + pages`.
    pub fn count(self, first: u64, pages: u64) -> u64 {
        match self {
            // Whole ranges and pieces, without asking each page.
            Shape::Ranges(len) | Shape::Pieces(len) if pages > 512 => {
                let step = len.min(512);
                let mut at = first;
                let mut sum = 0;
                while at < first + pages {
                    let next = (at + 1).next_multiple_of(step).min(first + pages);
                    if self.hot(at) == self.hot(next - 1)
                        && len >= 512
                        && matches!(self, Shape::Pieces(_))
                    {
                        sum += if self.hot(at) { next - at } else { 0 };
                    } else {
                        sum += (at..next).filter(|page| self.hot(*page)).count() as u64;
                    }
                    at = next;
                }
                sum
            }
            _ => (first..first + pages)
                .filter(|page| self.hot(*page))
                .count() as u64,
        }
    }
}

/// The finalizer of SplitMix64.
pub fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What time was used for: passes, or telling the source what to do.
const PASS: usize = 0;
const TELL: usize = 1;

/// How the machine is.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Microseconds of CPU time for a page or piece, a span told, a view begun.
    pub page_us: f64,
    pub span_us: f64,
    pub begin_us: f64,
    /// How many times longer than its CPU time work takes.
    pub busy: f64,
}

pub const FAST: Machine = Machine {
    page_us: 1.0,
    span_us: 10.0,
    begin_us: 200.0,
    busy: 1.0,
};

#[derive(Debug)]
struct Running {
    watch: Watch,
    pass_began: f64,
    pass_ends: f64,
    pass_us: f64,
    is_last: bool,
}

/// The machine at work.
pub struct Toy {
    pub machine: Machine,
    pub shape: Shape,
    pub search: Search,
    pub now_ms: f64,
    running: [Option<Running>; 2],
    random: u64,
    /// What has left, by owner and first page: one past its last.
    gone: BTreeMap<(OwnerId, u64), u64>,
    pub found_hot: u64,
    pub found_cold: u64,
    /// For passes, and for what the search's orders took.
    untold_us: [f64; 2],
    /// When and how much.
    pub ledger: Vec<(f64, f64)>,
    pub pages: u64,
    /// Of so many ms the programs get no processor for the first so many.
    pub stalls: Option<(f64, f64)>,
    /// Pages of each owner, when all of them begin at 0.
    pub owners: u32,
}

impl Toy {
    /// `owners` processes share `pages` pages, each of them one mapping.
    pub fn new(machine: Machine, shape: Shape, pages: u64, owners: u32, config: Config) -> Toy {
        let mut toy = Toy::empty(machine, shape, config);
        let each = pages / u64::from(owners);
        for owner in 0..owners {
            toy.map(OwnerId(owner), &[(0, each)]);
        }
        toy
    }

    pub fn empty(machine: Machine, shape: Shape, config: Config) -> Toy {
        Toy {
            machine,
            shape,
            search: Search::new(config, Millis(0)),
            now_ms: 0.0,
            running: [None, None],
            random: 1,
            gone: BTreeMap::new(),
            found_hot: 0,
            found_cold: 0,
            untold_us: [0.0; 2],
            ledger: Vec::new(),
            pages: 0,
            stalls: None,
            owners: 0,
        }
    }

    /// `owner` has these mappings: first page and pages.
    pub fn map(&mut self, owner: OwnerId, mappings: &[(u64, u64)]) {
        let memory: Vec<Memory> = mappings
            .iter()
            .map(|(first, pages)| Memory {
                run: Run {
                    first: VirtualPage(*first),
                    pages: *pages,
                },
                object: None,
            })
            .collect();
        self.pages += mappings.iter().map(|(_, pages)| pages).sum::<u64>();
        self.owners += 1;
        self.search.set_memory(owner, &memory);
    }

    pub fn millis(&self) -> Millis {
        Millis(self.now_ms as u64)
    }

    fn draw(&mut self) -> u64 {
        self.random += 1;
        mix(self.random)
    }

    fn chance(&mut self, chance: f64) -> bool {
        ((self.draw() >> 11) as f64) < chance * (1u64 << 53) as f64
    }

    fn spend(&mut self, what: usize, us: f64) {
        self.ledger.push((self.now_ms, us));
        self.untold_us[what] += us;
    }

    /// Runs until `until_ms` or until `enough` says so; when it ended, in s.
    pub fn run(&mut self, until_ms: f64, mut enough: impl FnMut(&Toy) -> bool) -> Option<f64> {
        while self.now_ms < until_ms {
            let plan = self.search.plan(self.millis());
            self.obey(View::Look, plan.look);
            self.obey(View::Glance, plan.glance);
            let ends = self
                .running
                .iter()
                .flatten()
                .map(|running| running.pass_ends);
            let due_ms = self.search.due_ms(self.millis()).unwrap_or(50);
            let wait_ms = due_ms.clamp(1, 50) as f64;
            self.now_ms = ends.fold(self.now_ms + wait_ms, f64::min);
            for view in [View::Look, View::Glance] {
                let due = self.running[view as usize].as_ref();
                if due.is_some_and(|running| running.pass_ends <= self.now_ms) {
                    self.pass(view);
                }
            }
            let [passes, orders] = self.untold_us.map(|us| us as u64);
            self.search.spent(passes, orders, self.millis());
            self.untold_us = self.untold_us.map(f64::fract);
            if enough(self) {
                return Some(self.now_ms / 1000.0);
            }
        }
        None
    }

    fn obey(&mut self, view: View, order: Order) {
        match order {
            Order::Keep => {}
            Order::Stop => self.running[view as usize] = None,
            Order::Finish => {
                let running = self.running[view as usize].as_mut();
                running.expect("it runs").is_last = true;
            }
            Order::Begin(watch) => {
                assert!(!watch.spans.is_empty());
                let sorted = watch.spans.windows(2).all(|pair| {
                    pair[0].owner < pair[1].owner
                        || (pair[0].owner == pair[1].owner
                            && pair[0].first.0 + pair[0].pages <= pair[1].first.0)
                });
                assert!(sorted, "spans overlap or are out of order");
                let tell = self.machine.begin_us + self.machine.span_us * watch.spans.len() as f64;
                let pieces: u64 = watch
                    .spans
                    .iter()
                    .map(|span| span.pages.div_ceil(watch.grain))
                    .sum();
                let pass_us = self.machine.page_us * pieces as f64;
                self.spend(TELL, tell);
                let wall = (pass_us + tell) * self.machine.busy / 1000.0;
                self.running[view as usize] = Some(Running {
                    pass_began: self.now_ms,
                    pass_ends: self.now_ms + watch.interval_ms as f64 + wall,
                    pass_us,
                    watch,
                    is_last: false,
                });
            }
        }
    }

    fn pass(&mut self, view: View) {
        let mut running = self.running[view as usize].take().expect("it runs");
        let seconds = (self.at_work(running.pass_ends) - self.at_work(running.pass_began)) / 1000.0;
        self.spend(PASS, running.pass_us);
        let grain = running.watch.grain;
        for span in &running.watch.spans {
            let mut at = 0;
            while at < span.pages {
                let pages = grain.min(span.pages - at);
                let page = span.first.0 + at + if pages > 1 { self.draw() % pages } else { 0 };
                let rate = self.shape.rate(page);
                let touched = self.chance(1.0 - (-rate * seconds).exp());
                // A look's reader knows which pages are home by now.
                if touched && (view == View::Glance || !self.is_gone(span.owner, page)) {
                    let seen = Span {
                        owner: span.owner,
                        first: VirtualPage(span.first.0 + at),
                        pages,
                    };
                    self.search.touched(view, seen);
                }
                at += pages;
            }
        }
        self.search.pass_done(view, self.millis());
        let wall = running.pass_us * self.machine.busy / 1000.0;
        running.pass_began = self.now_ms;
        running.pass_ends = self.now_ms + running.watch.interval_ms as f64 + wall;
        self.running[view as usize] = (!running.is_last).then_some(running);
        let mut findings = Vec::new();
        self.search.findings(|finding| findings.push(finding.span));
        for span in findings {
            self.leaves(span);
        }
    }

    /// For how long the programs had a processor until `ms`.
    fn at_work(&self, ms: f64) -> f64 {
        let Some((period, stalled)) = self.stalls else {
            return ms;
        };
        let begun = (ms / period).floor();
        begun * (period - stalled) + (ms - begun * period - stalled).max(0.0)
    }

    fn is_gone(&self, owner: OwnerId, page: u64) -> bool {
        let before = self.gone.range(..=(owner, page)).next_back();
        before.is_some_and(|((of, _), end)| *of == owner && page < *end)
    }

    /// What of `span` is still there leaves.
    fn leaves(&mut self, span: Span) {
        let end = span.first.0 + span.pages;
        let mut at = span.first.0;
        while at < end {
            let before = self.gone.range(..=(span.owner, at)).next_back();
            if let Some(((owner, _), to)) = before
                && *owner == span.owner
                && *to > at
            {
                at = *to;
                continue;
            }
            let next = self.gone.range((span.owner, at)..).next();
            let to = match next {
                Some(((owner, from), _)) if *owner == span.owner => end.min(*from),
                _ => end,
            };
            let hot = self.shape.count(at, to - at);
            self.found_hot += hot;
            self.found_cold += match self.shape {
                Shape::Zipf(_) => (at..to).filter(|page| self.shape.cold(*page)).count() as u64,
                _ => to - at - hot,
            };
            self.gone.insert((span.owner, at), to);
            self.search.left(Span {
                owner: span.owner,
                first: VirtualPage(at),
                pages: to - at,
            });
            at = to;
        }
    }

    /// Draws other numbers from now on.
    pub fn seed(&mut self, seed: u64) {
        self.random = mix(seed);
    }

    /// The most CPU time used in any minute, as a part of one CPU.
    pub fn worst_minute(&self) -> f64 {
        let (mut from, mut sum, mut worst) = (0, 0.0f64, 0.0f64);
        for (at, us) in &self.ledger {
            sum += us;
            while self.ledger[from].0 <= at - 60_000.0 {
                sum -= self.ledger[from].1;
                from += 1;
            }
            worst = worst.max(sum);
        }
        worst / 60e6
    }
}
