//! Programs wait for memory: fewer pages go up, and idle ones leave faster.
//!
//! A [`Pace`] of the machine and one of each class say which part of the rate limit is
//! admitted. A class has the slower of the two. What is admitted is kept by buckets of
//! tokens, which hold a second's worth, or a huge page if that is more. Without pressure
//! there is no bucket, and nothing is different from a machine that cannot tell.
//!
//! Idle pages ([`idle`](super::idle)) leave up to [`HASTE_PERMILLE`] as fast. How long a
//! page must be idle is what the user said, whatever the pressure.
//!
//! Memory that runs short is left to the kernel: then nothing goes up. What goes down
//! takes no page that the kernel wants, pressure or not, for the room of a node ends at
//! its high watermark.

use super::config::TierConfig;
use crate::ledger::Renumbered;
use crate::report::PressureStatus;
use crate::world::{ClassId, HUGE_PAGES, Stalls, World, WorldError};
use memtide_core::pages::Immovable;
use memtide_core::pressure::{HEAR_MS, Pace, WHOLE_PPM};
use memtide_core::units::Millis;

/// Nothing more is admitted at present.
pub(super) const PRESSED: Immovable = Immovable::Other("programs wait for memory");
/// How fast idle pages leave under the highest pressure, in thousandths of their rate.
pub(super) const HASTE_PERMILLE: u64 = 4000;

/// What is admitted of one stream of pages.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Whether anybody told.
    told: bool,
    pace: Pace,
    /// Thousandths of a page; of no meaning while the pace is whole.
    credit: i64,
}

impl Stream {
    fn hear(&mut self, total_us: Option<u64>, now: Millis) {
        self.told = total_us.is_some();
        self.pace.hear(total_us, now);
    }

    /// Earns what `ms` are worth at `rate_pages` a second.
    fn earn(&mut self, pace: Pace, rate_pages: u64, ms: u64) {
        let a_second = limit(pace, rate_pages).saturating_mul(1000);
        let most = match pace.ppm() {
            0 => 0,
            _ => a_second.max(HUGE_PAGES * 1000),
        };
        let earned = a_second.saturating_mul(ms) / 1000;
        let credit = self.credit.saturating_add_unsigned(earned);
        self.credit = credit.min(i64::try_from(most).unwrap_or(i64::MAX));
    }

    fn pages(&self) -> u64 {
        u64::try_from(self.credit / 1000).unwrap_or(0)
    }
}

/// See the module's essay.
#[derive(Debug)]
pub(super) struct Pressed {
    /// Whether it is heeded, and the world can tell.
    on: bool,
    rate_pages: u64,
    machine: Stream,
    /// By [`ClassId`], and whether it is heeded of the class.
    classes: Vec<(Stream, bool)>,
    calm: bool,
    heard: Option<Millis>,
    earned: Millis,
    stalls: Stalls,
}

impl Pressed {
    pub fn new(world: &dyn World, config: &TierConfig) -> Pressed {
        let class = |class: &super::Class| (Stream::default(), class.heed_pressure);
        let gate = &config.gate;
        Pressed {
            on: config.heed_pressure && world.has_pressure(),
            rate_pages: gate.page_size.pages(gate.rate_limit_mbps << 20),
            machine: Stream::default(),
            classes: config.classes.iter().map(class).collect(),
            calm: true,
            heard: None,
            earned: Millis(0),
            stalls: Stalls::default(),
        }
    }

    /// Goes on by `config`, whose classes have these numbers.
    pub fn follow(&mut self, world: &dyn World, config: &TierConfig, numbers: &Renumbered) {
        let old = std::mem::replace(self, Pressed::new(world, config));
        if !self.on {
            return;
        }
        self.machine = old.machine;
        for (class, (stream, _)) in (0..).map(ClassId).zip(old.classes) {
            let new = numbers.new_of(class);
            if let Some((kept, _)) = new.and_then(|new| self.classes.get_mut(new.0 as usize)) {
                *kept = stream;
            }
        }
        self.calm = old.calm;
        self.heard = old.heard;
        self.earned = old.earned;
    }

    /// Asks the world, if it is time.
    pub fn hear(&mut self, world: &mut dyn World) -> Result<(), WorldError> {
        let now = world.now();
        let due = |heard: Millis| now.since(heard) >= HEAR_MS;
        if !self.on || !self.heard.is_none_or(due) {
            return Ok(());
        }
        self.heard = Some(now);
        self.earn(now);
        world.pressure(&mut self.stalls)?;
        self.machine.hear(self.stalls.machine, now);
        let told = self.stalls.classes.iter().copied();
        let told = told.chain(std::iter::repeat(None));
        for ((class, heeded), total_us) in self.classes.iter_mut().zip(told) {
            class.hear(total_us.filter(|_| *heeded), now);
        }
        let whole = |(class, _): &(Stream, bool)| class.pace.is_whole();
        self.calm = self.machine.pace.is_whole() && self.classes.iter().all(whole);
        Ok(())
    }

    /// Fills the buckets.
    pub fn earn(&mut self, now: Millis) {
        let ms = now.since(self.earned);
        self.earned = now;
        let (machine, rate) = (self.machine.pace, self.rate_pages);
        self.machine.earn(machine, rate, ms);
        for (class, _) in &mut self.classes {
            class.earn(class.pace.slower(machine), rate, ms);
        }
    }

    /// So many pages of `class` went up.
    pub fn promoted(&mut self, class: Option<ClassId>, pages: u64) {
        let pages = i64::try_from(pages.saturating_mul(1000)).unwrap_or(i64::MAX);
        let pay = |stream: &mut Stream| {
            if !stream.pace.is_whole() {
                stream.credit = stream.credit.saturating_sub(pages);
            }
        };
        pay(&mut self.machine);
        let class = class.and_then(|class| self.classes.get_mut(class.0 as usize));
        class.into_iter().for_each(|(stream, _)| pay(stream));
    }

    /// Whether nobody waits.
    pub fn is_calm(&self) -> bool {
        self.calm
    }

    fn class(&self, class: ClassId) -> Option<&Stream> {
        self.classes.get(class.0 as usize).map(|(stream, _)| stream)
    }

    /// Whether no page of `class` may go up now.
    pub fn holds(&self, class: Option<ClassId>) -> bool {
        let spent = |stream: &Stream| !stream.pace.is_whole() && stream.pages() == 0;
        let class = class.and_then(|class| self.class(class));
        spent(&self.machine) || class.is_some_and(spent)
    }

    /// Pages of `class` that may go up now because of its own pressure; `None` without.
    pub fn left(&self, class: ClassId) -> Option<u64> {
        let stream = self.class(class).filter(|stream| !stream.pace.is_whole());
        stream.map(Stream::pages)
    }

    /// Whether `class` is kept from more by its pressure rather than by its bound, which
    /// leaves it so many pages.
    pub fn binds(&self, class: ClassId, bound: Option<u64>) -> bool {
        let left = self.left(class);
        left.is_some_and(|left| left < bound.unwrap_or(u64::MAX))
    }

    /// Whether fewer pages of `class` go up than without pressure.
    pub fn slows(&self, class: Option<ClassId>) -> bool {
        !self.pace(class).is_whole()
    }

    /// Of so many pages, those that may go up now.
    pub fn at_most(&self, pages: u64) -> u64 {
        match self.machine.pace.is_whole() {
            true => pages,
            // Where there are none, each page hears of it.
            false => pages.min(self.machine.pages().max(1)),
        }
    }

    /// Whether a pass that had so many pages ended because no more may go up.
    pub fn ended(&self, pages: u64) -> bool {
        pages > 0 && !self.machine.pace.is_whole()
    }

    fn pace(&self, class: Option<ClassId>) -> Pace {
        let machine = self.machine.pace;
        let class = class.and_then(|class| self.class(class));
        class.map_or(machine, |class| class.pace.slower(machine))
    }

    /// How fast idle pages leave, in thousandths of their rate; those of `class`, or all.
    pub fn haste_permille(&self, class: Option<ClassId>) -> u64 {
        self.pace(class).haste_permille(HASTE_PERMILLE)
    }

    /// Classes whose idle pages leave faster than others'.
    pub fn hasty(&self) -> impl Iterator<Item = ClassId> {
        let all = (0..).map(ClassId).zip(&self.classes);
        let hasty = all.filter(|(_, (stream, _))| !stream.pace.is_whole());
        hasty.map(|(class, _)| class)
    }

    /// Where `class` stands, or the machine; none of whom nobody told.
    pub fn status(&self, class: Option<ClassId>) -> Option<PressureStatus> {
        let stream = match class {
            Some(class) => self.class(class)?,
            None => &self.machine,
        };
        let pace = self.pace(class);
        stream.told.then(|| PressureStatus {
            stalled_ms: stream.pace.heard_us() / 1000,
            limit_pages: limit(pace, self.rate_pages),
            slowed: !pace.is_whole(),
        })
    }
}

/// Pages that may go up in a second.
fn limit(pace: Pace, rate_pages: u64) -> u64 {
    let limit = u128::from(rate_pages) * u128::from(pace.ppm()) / u128::from(WHOLE_PPM);
    limit as u64
}
