//! Where to look for hot pages, and how closely.
//!
//! # Problem
//!
//! Whether a page is in use costs about a microsecond of processor time to
//! find out, on a slow machine fifty. A terabyte has 268 million pages, and
//! what may be spent is a twentieth of a processor: one exact look at
//! everything takes an hour and a half. Hot memory has to be found sooner
//! where its shape allows it, and no later than that where it does not.
//!
//! # Approach
//!
//! Two views of a source are driven side by side. A **look** sees every page of
//! what it was given. A **glance** sees one random page of each *piece* of what
//! it was given, so a piece costs as much as a page, however large it is.
//!
//! - *Sweeps* glance at everything in turn: one in large pieces, so that large
//!   ranges are found soon, one in pieces that become smaller from round to
//!   round, down to 2 MiB. Where all of it fits into each pass, it is.
//! - A piece that was touched has the *attention*: its blocks of 2 MiB are
//!   sampled again and again until it is clear what they are ([`evidence`]). A
//!   block that is hot throughout is *found* without a look, and draws attention
//!   to what lies beside it. One of which a part is hot is *eager*: a look at it
//!   comes first, and as long as that waits samples may show something else. A
//!   barren one is forgotten. Samples say nothing of a block of which many pages
//!   have left: beside one that was found, it is looked at.
//! - At first half of what looks may use waits for what glances show: one look in the dark would leave nothing for
//!   the edges of a hot range.
//! - The *cover* looks at all other pages in turn, which is the only way to
//!   find hot pages that are scattered over everything. A block of which no page
//!   was touched rests for one round, then for three.
//! - A block that a look left *ragged*, since it saw some of its pages twice and many
//!   only once, is looked at again once looks find nothing, if pages have left it.
//!
//! A source that is told anew makes the pass that is under way all the same. So shortly before a last
//! wanted pass is over it is told to end with that ([`Order::Finish`]); where that was not said in time,
//! one more pass is taken.
//!
//! A page counts as hot when two passes in succession saw it in use. The second
//! follows the first on the same pages at once, and takes in only what was
//! touched in the first where that is cheaper. How long a pass took does not
//! matter: a slow or busy machine is slower and not blind. Passes become longer
//! where the second sees less than nine tenths of what the first saw, since pages are then in use
//! now and then only. Not so while fast memory is full: hot pages then take the
//! place of others, and in long passes what is warm looks hot, here and there.
//! They become shorter, glances' and looks', where random samples show more pages in use
//! than fast memory has room for: then what is in use all the time has to be told from what
//! is in use now and then.
//!
//! Regions here are pieces of fixed borders and variable size. They split where
//! something was found, as far as that differs from its neighbours, and are one
//! again when nothing is there. Memory that several processes map is one place,
//! seen through one of them at a time ([`shared`]).
//!
//! # What it costs
//!
//! [`purse`] bounds what is used in any minute, [`costs`] learns what things
//! cost. Cover and glances have shares of the budget, moved towards what finds
//! more for the same price: glances have 85 % where they find sixteen times as
//! much. What is glanced at beside the search has half of the budget at most.
//! [`Search::promise`] tells what the budget buys.
//! Twelve bytes are kept for 2 MiB, nothing for a page beyond the pages of the
//! present look; a call's own time follows what is being observed.
//!
//! # Properties
//!
//! Time is an argument. What is random is drawn by the source, which page of a
//! piece it samples; nothing here is left to chance. Each page has its turn in four rounds
//! of the cover at the latest, whatever the samples say. No more than
//! [`Config::attention`] blocks have the attention at once.

mod blocks;
mod census;
mod charging;
mod costs;
mod cover;
mod evidence;
mod glance;
mod lending;
mod look;
mod promise;
mod purse;
mod shared;
mod worth;

pub use blocks::BLOCK_PAGES;
pub use costs::UnitCosts;
pub use glance::Part;
pub use lending::Lent;
pub use promise::Promise;
pub(crate) use promise::{Size, Time};
pub use shared::Memory;

use blocks::{Blocks, Flag};
use costs::Costs;
use cover::Cover;
use glance::Glancing;
use look::Look;
use memtide_core::tiering::sample::Run;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::Millis;
use purse::Purse;
use shared::Shared;
use std::collections::VecDeque;

/// Which of the two views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Every page.
    Look,
    /// One random page of each piece.
    Glance,
}

/// A range of one process's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub owner: OwnerId,
    /// Its first page.
    pub first: VirtualPage,
    /// Its length.
    pub pages: u64,
}

/// What a view should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Go on as it is, at work or not.
    Keep,
    /// End.
    Stop,
    /// End with the pass that is under way, which is to report as ever. Who ends a view
    /// between two passes pays for one more, and waits for it.
    Finish,
    /// Observe this from now on, in passes.
    Begin(Watch),
}

/// What a view is to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// In order of owners and addresses; none overlaps another.
    pub spans: Vec<Span>,
    /// Pages of a piece, of which one random page is sampled in each pass. 1 for
    /// a look. Spans are cut into pieces from their beginning; the last piece
    /// of a span may be smaller. Where the source does not cut, spans are
    /// pieces.
    pub grain: u64,
    /// How long a pass should be.
    pub interval_ms: u64,
}

/// What both views should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The look.
    pub look: Order,
    /// The glance.
    pub glance: Order,
}

/// Pages found hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub span: Span,
    /// Each of them was seen in use in two passes; otherwise random ones of
    /// them were, nearly every time.
    pub exact: bool,
}

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The part of one CPU that observing may use, in thousandths.
    pub permille: u32,
    /// The shortest and the longest pass to ask for, in ms.
    pub interval_ms: (u64, u64),
    /// The most pages of a look.
    pub look_pages: u64,
    /// Reports of a look's pass that the source keeps while nobody reads them.
    pub keeps: u64,
    /// The most spans that a view is told.
    pub spans: usize,
    /// Whether the source cuts spans into pieces; if not, it is told each piece.
    pub cuts: bool,
    /// Pages of a block, a power of two up to 512: those of 2 MiB, and S times fewer on a machine at
    /// scale 1/S, but at least one.
    pub block_pages: u64,
    /// The most blocks that have the attention at once.
    pub attention: usize,
    /// After a round in which the cover found next to nothing, the next begins
    /// this long after it had begun, in ms, unless a glance sees something; after
    /// further ones up to four times as long.
    pub round_ms: u64,
    /// What was found and has not left is looked for anew after this long.
    pub forget_ms: u64,
    /// The range of windows that hotness records can tell, in ms.
    pub window_ms: (u64, u64),
    /// Room for so many 128 MiB of addresses.
    pub sections: u32,
    /// What things cost until that is known.
    pub costs: UnitCosts,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            permille: 50,
            interval_ms: (100, 1_000),
            look_pages: 262_144,
            keeps: u64::MAX,
            spans: 8_192,
            cuts: true,
            block_pages: BLOCK_PAGES,
            attention: 65_536,
            round_ms: 30_000,
            forget_ms: 20_000,
            window_ms: (5_000, 16_000),
            sections: 1 << 16,
            costs: UnitCosts::default(),
        }
    }
}

/// The search. See the module's essay.
#[derive(Debug)]
pub struct Search {
    config: Config,
    blocks: Blocks,
    shared: Shared,
    purse: Purse,
    costs: Costs,
    interval_ms: u64,
    look: Look,
    cover: Cover,
    glancing: Glancing,
    /// Blocks that were found, and when.
    found: VecDeque<(Millis, u32)>,
    /// Whether pages left since the last plan, and the last time that some had.
    some_left: bool,
    left_at: Option<Millis>,
    /// What glances and the cover found of late, and what that cost.
    yields: [Yield; 2],
    halved: Millis,
    /// What was charged since it was last told what things cost, in microseconds: for passes
    /// and for telling, by view.
    charged: [[f64; 2]; 2],
    /// What passes that were not complete had used then.
    held: f64,
    findings: Vec<Finding>,
    shape: Shape,
    /// Turns of those who map shared memory, by view.
    turns: [u64; 2],
    looks_wait: bool,
    /// Pages that fast memory has room for, and whether it is full.
    room: u64,
    room_is_short: bool,
    /// When a look confirmed a page last.
    confirmed_at: Millis,
    /// Looks since then that saw pages once.
    unconfirmed: u32,
    /// When passes became longer last because none had for long.
    lengthened_at: Option<Millis>,
    /// Blocks that a look should see soon, with the time that it was asked for; and how
    /// often it was.
    unseen: Vec<(u32, u64)>,
    asked: u64,
    /// Pages that came since the cover was woken for such.
    unlooked: u64,
}

/// How the hot pages lie that were found of late, in blocks with any of them.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    blocks: u32,
    /// Those in which looks found few.
    sparse: u32,
}

/// So many blocks with few hot pages are no exceptions.
const SPARSE: u32 = 16;
/// After so many blocks the past counts half.
const LATELY: u32 = 64;

impl Shape {
    fn add(&mut self, is_sparse: bool) {
        self.blocks += 1;
        self.sparse += u32::from(is_sparse);
        if self.blocks >= LATELY {
            self.blocks /= 2;
            self.sparse /= 2;
        }
    }
}

/// Pages found, and what that cost in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Yield {
    pages: f64,
    us: f64,
}

impl Yield {
    fn rate(self) -> f64 {
        self.pages / self.us.max(1.0)
    }
}

/// The cover goes on when one page in so many has come since.
const UNSEEN_PART: u64 = 16;
/// How eager to see a block where samples did not say how much of it is in use, in 256ths:
/// as if it were half.
const EAGER_SHARE: u32 = 128;
/// How eager where it was asked for: before all others, and all of it in one look if it
/// may be, since what is seen first is old when the last is seen.
const ASKED_SHARE: u32 = 257;
/// A view that says nothing for so long, in ms, has stopped; see
/// [`Search::patience_ms`].
const PATIENCE_MS: u64 = 5_000;
/// Pages leave slow memory if some did within this time, in ms.
const LEAVES_MS: u64 = 2_000;
/// A last pass is said to be the last when it has no more to go than this, in ms, or than one part in
/// so many of its interval. Sooner is not better: the source can do nothing else until it is over.
const FINISH_MS: u64 = 30;
const FINISH_PART: u64 = 4;
/// It is taken for lost when it is so much later than it should be, in ms.
const LOST_MS: u64 = 1_000;
/// How often yields are halved, in ms.
const HALVE_MS: u64 = 10_000;

impl Search {
    /// A search that begins at `now` and knows of no memory.
    pub fn new(config: Config, now: Millis) -> Search {
        Search {
            config,
            blocks: Blocks::new(config.sections, config.block_pages),
            shared: Shared::default(),
            purse: Purse::new(config.permille, now),
            costs: Costs::new(config.costs),
            interval_ms: config.interval_ms.0,
            look: Look::default(),
            cover: Cover::new(now),
            glancing: Glancing::default(),
            found: VecDeque::new(),
            some_left: false,
            left_at: None,
            yields: [Yield::default(); 2],
            halved: now,
            charged: [[0.0; 2]; 2],
            held: 0.0,
            findings: Vec::new(),
            shape: Shape::default(),
            turns: [0; 2],
            looks_wait: false,
            room: u64::MAX,
            room_is_short: false,
            confirmed_at: now,
            unconfirmed: 0,
            lengthened_at: None,
            unseen: Vec::new(),
            asked: 0,
            unlooked: 0,
        }
    }

    /// The slow pages of `owner` are those of `memory`, ascending. What is known
    /// of those that it had before stays.
    pub fn set_memory(&mut self, owner: OwnerId, memory: &[Memory]) {
        let had = self.blocks.pages();
        if !self.shared.is_empty() || memory.iter().any(|part| part.object.is_some()) {
            for object in self.shared.set(owner, memory) {
                let runs = self.shared.runs(object);
                self.place(object, &runs);
            }
        }
        let own = memory.iter().filter(|part| part.object.is_none());
        let runs: Vec<Run> = own.map(|part| part.run).collect();
        self.place(owner, &runs);
        // A hundredth more than before is news.
        if self.blocks.pages() > had + had / 100 {
            self.cover.wake_up();
        }
    }

    /// `owner` is gone.
    pub fn remove(&mut self, owner: OwnerId) {
        self.set_memory(owner, &[]);
        self.blocks.remove(owner);
    }

    /// `span` came to slow memory: it was idle.
    pub fn came(&mut self, span: Span) {
        let (shared, blocks) = (&self.shared, &mut self.blocks);
        shared.inward(span, |part| {
            blocks.came(part.owner, part.first, part.pages);
            blocks.have_news(part.owner, part.first, part.pages);
        });
        // As idle ones they were taken by samples: where they are many, some are in use.
        self.unlooked += span.pages;
        if self.unlooked * UNSEEN_PART >= self.blocks.pages() {
            self.unlooked = 0;
            self.cover.wake_up();
        }
    }

    /// `spans` came to slow memory and may be in use: a look should see them soon.
    pub fn should_see(&mut self, spans: &[Span]) {
        self.forget_seen();
        self.asked += 1;
        let (shared, blocks) = (&self.shared, &self.blocks);
        let mut asked = Vec::new();
        for span in spans {
            shared.inward(*span, |part| {
                blocks.parts(part.owner, part.first, part.pages, |n, _, _| asked.push(n));
            });
        }
        asked.sort_unstable();
        asked.dedup();
        for n in asked {
            let block = self.blocks.get_mut(n);
            let waits = block.has(Flag::Unseen) && block.has(Flag::Eager);
            block.set(Flag::Found, false);
            block.set(Flag::Attended, false);
            block.set(Flag::Unseen, true);
            self.unseen.push((n as u32, self.asked));
            if !waits {
                self.be_eager(n, ASKED_SHARE);
            }
        }
    }

    /// How often there was something that [should be seen](Search::should_see), and the
    /// last time of which, and of all before, nothing is open.
    pub fn seen(&mut self) -> (u64, u64) {
        self.forget_seen();
        let open = self.unseen.iter().map(|(_, time)| *time).min();
        (self.asked, open.map_or(self.asked, |time| time - 1))
    }

    fn forget_seen(&mut self) {
        let blocks = &self.blocks;
        self.unseen.retain(|(n, _)| {
            let block = blocks.get(*n as usize);
            let open = block.has(Flag::Unseen) || block.has(Flag::Seeing);
            open && !block.has(Flag::Found)
        });
    }

    fn be_eager(&mut self, n: usize, share: u32) {
        let block = self.blocks.get_mut(n);
        // One that waits already may come sooner; its other entry is dropped once it was seen.
        if !block.has(Flag::Eager) || share == ASKED_SHARE {
            let fits = self.cover.eager(n as u32, share);
            block.set(Flag::Eager, fits || block.has(Flag::Eager));
        }
    }

    /// There is reason to look at everything again.
    pub fn wake_up(&mut self) {
        self.cover.wake_up();
    }

    /// The look brings nothing: what it should have seen has its turn again.
    fn abandon_look(&mut self) {
        let blocks = self.look.abandon();
        for n in blocks {
            let block = self.blocks.get_mut(n as usize);
            if block.has(Flag::Seeing) {
                block.set(Flag::Seeing, false);
                block.set(Flag::Unseen, true);
                self.be_eager(n as usize, ASKED_SHARE);
            }
        }
    }

    /// `span` left slow memory. To be told once of each page.
    pub fn left(&mut self, span: Span) {
        self.some_left = true;
        let (shared, blocks) = (&self.shared, &mut self.blocks);
        shared.inward(span, |part| blocks.left(part.owner, part.first, part.pages));
    }

    /// What both views should do from `now` on. To be asked after each pass, and
    /// now and then.
    pub fn plan(&mut self, now: Millis) -> Plan {
        self.purse.earn(now);
        let patience_ms = self.patience_ms();
        let lost = [self.last_look_is_lost(now), self.last_pass_is_lost(now)];
        self.learn_how_late(lost, now);
        if self.look.began_before(now, patience_ms) || lost[View::Look as usize] {
            self.abandon_look();
        }
        if self.glancing.began_before(now, patience_ms) || lost[View::Glance as usize] {
            self.glancing.abandon();
        }
        self.weigh(now);
        self.forget(now);
        let look = self.plan_look(now);
        // What is at work ends only after its interval, and who waits for that reads nothing.
        let glance = match self.look_needs_a_reader(now) {
            true => self.end_glance(now),
            false => self.plan_glance(now),
        };
        Plan { look, glance }
    }

    /// Passes that are given up as `lost`, by view, take at least so long: the next ones have more time.
    fn learn_how_late(&mut self, lost: [bool; 2], now: Millis) {
        let look = self.look.under_way_since(now);
        let glance = self.glancing.under_way_since(now);
        let asked_ms = [self.look.size().1, self.glancing.interval_ms()];
        for (view, under_way) in [(View::Look, look), (View::Glance, glance)] {
            if let Some((pieces, since_ms)) = under_way.filter(|_| lost[view as usize]) {
                self.costs
                    .took(view, pieces, asked_ms[view as usize], since_ms);
            }
        }
    }

    /// In how many ms it should be [asked](Search::plan) again at the latest, while something is
    /// at work.
    pub fn due_ms(&self, now: Millis) -> Option<u64> {
        let due = [self.look_due_ms(now), self.glance_due_ms(now)];
        due.into_iter().flatten().min()
    }

    /// `view` saw `span` in use: each of its pages, or of a glance's piece one.
    pub fn touched(&mut self, view: View, span: Span) {
        let Search {
            shared,
            blocks,
            look,
            glancing,
            ..
        } = self;
        shared.inward(span, |part| {
            blocks.parts(part.owner, part.first, part.pages, |n, lo, hi| match view {
                View::Look => look.touched(n as u32, lo, hi),
                View::Glance => glancing.touched(n as u32),
            });
        });
        if view == View::Glance {
            glancing.touched_piece();
        }
    }

    /// A pass of `view` is complete at `now`: what it did not report was not in
    /// use.
    pub fn pass_done(&mut self, view: View, now: Millis) {
        match view {
            View::Look => self.look_done(now),
            View::Glance => self.glance_done(now),
        }
    }

    /// No look begins until this is taken back: the source's side of one takes
    /// memory that is scarce now.
    pub fn looks_wait(&mut self, wait: bool) {
        self.looks_wait = wait;
    }

    /// Fast memory has room for `pages` pages; whether it is full, or a share of it: what comes
    /// needs the place of something colder.
    pub fn room_is(&mut self, pages: u64, short: bool) {
        self.room = pages;
        self.room_is_short = short;
    }

    /// What `view` was last told will bring nothing: whose memory it was is gone.
    pub fn abandon(&mut self, view: View) {
        match view {
            View::Look => self.abandon_look(),
            View::Glance => self.glancing.abandon(),
        }
    }

    /// The source takes in only `pages` pages of what the look was to be. The
    /// look is over, and those that follow are no larger. With none at all
    /// nothing is known of its limit: whose memory it was is gone.
    pub fn takes_at_most(&mut self, pages: u64) {
        self.abandon(View::Look);
        if pages > 0 {
            self.config.look_pages = self
                .config
                .look_pages
                .min(pages.max(self.blocks.block_pages()));
        }
    }

    /// How long the present pass of the look should take in all, in ms.
    pub fn look_pass_ms(&self) -> u64 {
        let (pages, interval_ms) = self.look.size();
        interval_ms + self.costs.late(View::Look, pages)
    }

    /// How long it takes at least, in ms, by the last passes: what is to be in its middle must not come behind its end.
    pub fn least_look_pass_ms(&self) -> u64 {
        let (pages, interval_ms) = self.look.size();
        interval_ms + self.costs.least_late(View::Look, pages)
    }

    /// Whether a look should have ended before anything is done that takes long: nobody reads
    /// its reports meanwhile, and they are more than its source [keeps](Config::keeps). Not for
    /// ever: a pass may have lost its end all the same.
    pub fn look_needs_a_reader(&self, now: Millis) -> bool {
        let patience_ms = 1_000 + 2 * self.look_pass_ms();
        self.look.may_bring(self.config.keeps) && !self.look.began_before(now, patience_ms)
    }

    /// When a view that tells nothing has stopped, in ms after its pass began: no
    /// pass takes that much longer than those before.
    fn patience_ms(&self) -> u64 {
        PATIENCE_MS + 20 * self.costs.longest_pass_ms().max(self.config.interval_ms.1)
    }

    /// From now on observing may use `permille` thousandths of one CPU.
    pub fn set_budget(&mut self, permille: u32) {
        self.config.permille = permille;
        self.purse.earns(permille);
    }

    /// Processor time that it may still use, in microseconds; negative when overdrawn.
    pub fn credit_us(&self) -> i64 {
        self.purse.all() - self.held as i64
    }

    /// No more than `us` microseconds are in hand; fewer than none are owed.
    pub fn hold_at_most(&mut self, us: i64) {
        let over = self.purse.all() - us;
        self.purse.spend(View::Look, over.max(0));
    }

    /// Takes what was found since the last call.
    pub fn findings(&mut self, mut visit: impl FnMut(Finding)) {
        for finding in self.findings.drain(..) {
            visit(finding);
        }
    }

    /// The window in ms within which two touches of a page should count, so that
    /// two passes in succession always do.
    pub fn window_ms(&self) -> u64 {
        let (least, most) = self.config.window_ms;
        (3 * self.costs.longest_pass_ms()).clamp(least, most)
    }

    /// Whether it has been measured what things cost.
    pub fn knows_costs(&self) -> bool {
        self.costs.known()
    }

    /// What a pass of a look over `pages` costs, as far as it is known, in us.
    pub fn look_us(&self, pages: u64) -> f64 {
        self.costs.look(pages)
    }

    /// Whether hot pages lie one by one in most blocks in which any were found of late:
    /// of those that are left, glances find none.
    pub fn finds_scattered(&self) -> bool {
        self.shape.sparse >= SPARSE && self.shape.sparse * 2 > self.shape.blocks
    }

    /// Slow pages known of.
    pub fn pages(&self) -> u64 {
        self.blocks.pages()
    }

    /// Pages for which there was no room: [`Config::sections`].
    pub fn left_out(&self) -> u64 {
        self.blocks.left_out()
    }

    fn place(&mut self, owner: OwnerId, runs: &[Run]) {
        if runs.is_empty() {
            self.blocks.remove(owner);
        } else {
            self.blocks.set(owner, runs);
        }
    }

    /// Notes `span` as found, in the addresses of one who maps it.
    fn find(&mut self, span: Span, exact: bool) {
        let findings = &mut self.findings;
        let turn = self.turns[View::Look as usize];
        self.shared.outward(span, turn, |span| {
            findings.push(Finding { span, exact });
        });
    }

    /// Moves the shares of the budget towards what finds more.
    fn weigh(&mut self, now: Millis) {
        let [look, glance] = self.yields.map(Yield::rate);
        let looked = self.yields[View::Look as usize].us > 0.0;
        self.purse.share(if looked && glance > 16.0 * look {
            850
        } else if glance > 4.0 * look {
            600
        } else if look > 4.0 * glance {
            200
        } else {
            300
        });
        if now.since(self.halved) >= HALVE_MS {
            self.halved = now;
            for of in &mut self.yields {
                of.pages /= 2.0;
                of.us /= 2.0;
            }
        }
    }

    /// What was found long ago and is still there is as good as unknown. It may not count as hot any more,
    /// and nobody finds it as long as it counts as found. Where it could leave, as others do or there is room
    /// for it, it is forgotten as soon as its records may be.
    fn forget(&mut self, now: Millis) {
        if std::mem::take(&mut self.some_left) {
            self.left_at = Some(now);
        }
        let leave = self.left_at.is_some_and(|at| now.since(at) < LEAVES_MS);
        let forget_ms = self.config.forget_ms;
        let window_ms = self.window_ms().min(forget_ms);
        while let Some((at, n)) = self.found.front().copied() {
            let pages = u64::from(self.blocks.get(n as usize).pages);
            let could_leave = leave || self.room >= pages;
            if now.since(at) < if could_leave { window_ms } else { forget_ms } {
                break;
            }
            self.found.pop_front();
            let block = self.blocks.get_mut(n as usize);
            block.set(Flag::Found, false);
        }
    }
}

/// With how much to go a last pass of `interval_ms` is said to be that, in ms.
fn finish_ms(interval_ms: u64) -> u64 {
    FINISH_MS.max(interval_ms / FINISH_PART)
}

/// Spans of the blocks `from..from + count`, the array's neighbours, as runs of
/// addresses: from the first slow page to the last. A first block that does not
/// begin at its border is a span of its own, so that pieces cut from the
/// beginning of the next one are blocks.
fn spans_of(blocks: &Blocks, from: u32, count: u32, mut visit: impl FnMut(Span)) {
    let mut open: Option<Span> = None;
    for n in from..from + count {
        let block = blocks.get(n as usize);
        if block.pages == 0 {
            open.take().into_iter().for_each(&mut visit);
            continue;
        }
        let Some((owner, base)) = blocks.locate(n as usize) else {
            continue;
        };
        let first = VirtualPage(base.0 + u64::from(block.lo));
        let pages = block.extent();
        match &mut open {
            Some(span)
                if span.owner == owner
                    && span.first.0 + span.pages == first.0
                    && span.first.0 % blocks.block_pages() == 0 =>
            {
                span.pages += pages;
            }
            _ => {
                open.take().into_iter().for_each(&mut visit);
                open = Some(Span {
                    owner,
                    first,
                    pages,
                });
            }
        }
    }
    open.into_iter().for_each(visit);
}

#[cfg(test)]
mod tests;
