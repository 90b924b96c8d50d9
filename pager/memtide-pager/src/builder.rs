//! What a pager is asked to do, checked once.

use crate::error::Error;
use crate::placement::MemoryPolicy;
use std::path::PathBuf;

/// Least granule: a base page of x86-64 and most others.
pub(crate) const LEAST_GRANULE_BYTES: usize = 4 << 10;
/// Largest granule: what one page-table page maps on x86-64.
pub(crate) const LARGEST_GRANULE_BYTES: usize = 2 << 20;
/// Most ranges that the kernel takes in one `process_madvise(2)`: `IOV_MAX`.
pub(crate) const MOST_RANGES: usize = 1024;
/// Nice value that the evictor asks for where none was given: it does little, but
/// while it waits for a processor the readers fill memory.
pub(crate) const EVICTOR_NICE: i32 = -10;
/// Fewest granules that a budget must hold: below, a batch is no batch.
pub(crate) const LEAST_GRANULES: u64 = 16;

/// How memory is held and faults are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A plain file mapping. The kernel serves faults and reads ahead; the
    /// pager watches and evicts. The budget may be overrun for moments.
    #[default]
    File,
    /// Anonymous memory filled page fault by page fault through userfaultfd
    /// (`UFFD_USER_MODE_ONLY`, SIGBUS). The budget holds exactly; system calls
    /// that are given an absent part of a region fail with `EFAULT`.
    Strict,
}

/// When evicted memory is unmapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmapping {
    /// Many granules with one flush, when their memory is needed.
    #[default]
    Lazy,
    /// Every page by itself, at once: what there would be without this crate.
    /// For comparison.
    EagerPages,
    /// Every granule by itself, at once. For comparison.
    EagerGranules,
}

/// Which granules are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Keeps what is used again soon, and a prefix where everything is used in
    /// turn ([`memtide_core::eviction`]).
    #[default]
    ScanResistant,
    /// Oldest first, with a second chance where the mode has one. For comparison.
    Fifo,
}

/// Reading ahead of what a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// How far ahead of a sequential reader, in bytes; 0 reads nothing ahead. In
    /// [`Mode::File`] never more than a thirty-second part of the budget, for all of
    /// them together.
    pub bytes: usize,
    /// Threads that read. They carry the [`MemoryPolicy`].
    pub threads: usize,
}

impl ReadAhead {
    /// In file mode the evictor only now and then sees how far a reader is; a strict
    /// reader says so itself.
    fn usual(mode: Mode) -> ReadAhead {
        let bytes = match mode {
            Mode::File => 8 << 20,
            Mode::Strict => 2 << 20,
        };
        ReadAhead { bytes, threads: 1 }
    }
}

/// Collects the settings of a [`Pager`](crate::Pager); [`Builder::start`] checks them.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    pub(crate) budget_bytes: u64,
    pub(crate) granule_bytes: Option<usize>,
    pub(crate) batch: Option<usize>,
    pub(crate) mode: Mode,
    pub(crate) policy: Policy,
    pub(crate) unmapping: Unmapping,
    pub(crate) memory_policy: Option<MemoryPolicy>,
    pub(crate) read_ahead: Option<ReadAhead>,
    pub(crate) nice: Option<i32>,
    pub(crate) explain_faults: bool,
    pub(crate) tell: Option<fn(&str)>,
    pub(crate) alone: bool,
}

impl Builder {
    /// Most bytes of data in memory, all regions together. Required; rounded
    /// down to whole granules, of which it must hold 16.
    pub fn budget(mut self, bytes: u64) -> Builder {
        self.budget_bytes = bytes;
        self
    }

    /// Unit of eviction, a power of two from 4 KiB to 2 MiB. Default 64 KiB,
    /// what the kernel maps around a fault: with less, one touch makes
    /// neighbours look touched. In [`Mode::Strict`] the pages of a file come into
    /// memory as they are needed, a granule at a time only for streams.
    pub fn granule(mut self, bytes: usize) -> Builder {
        self.granule_bytes = Some(bytes);
        self
    }

    /// Granules unmapped with one call, 1 to 1,024. Default a thirty-second part
    /// of the budget, 1,024 at most: up to three batches are kept free or on
    /// their way out.
    pub fn batch(mut self, granules: usize) -> Builder {
        self.batch = Some(granules);
        self
    }

    /// Default [`Mode::File`].
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.mode = mode;
        self
    }

    /// Default [`Policy::ScanResistant`].
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// Default [`Unmapping::Lazy`].
    pub fn unmapping(mut self, unmapping: Unmapping) -> Builder {
        self.unmapping = unmapping;
        self
    }

    /// From which nodes the data's memory comes. In [`Mode::File`] it holds for
    /// what the pager's own threads read in; a page that a program's own fault
    /// reads in follows that thread's policy.
    pub fn memory_policy(mut self, policy: MemoryPolicy) -> Builder {
        self.memory_policy = Some(policy);
        self
    }

    /// Default 8 MiB ahead in [`Mode::File`], 2 MiB in [`Mode::Strict`], by one thread. In file
    /// mode only where the kernel reads nothing ahead, or with a
    /// [memory policy](Builder::memory_policy).
    pub fn read_ahead(mut self, read_ahead: ReadAhead) -> Builder {
        self.read_ahead = Some(read_ahead);
        self
    }

    /// Nice value of the evictor thread, -20 to 19. Default -10: with every
    /// processor busy the budget holds as well as the evictor gets to run. A
    /// value below the process's own needs `CAP_SYS_NICE`; without it the value
    /// stays and [`State`] says so.
    ///
    /// [`State`]: crate::State
    pub fn nice(mut self, nice: i32) -> Builder {
        self.nice = Some(nice);
        self
    }

    /// Says on standard error, in one line, why a read of a region fails before
    /// the process gets its SIGBUS (a file cut short, a read error). Takes the
    /// SIGBUS handler in [`Mode::File`] too; handlers that were there before are
    /// called afterwards. Default off.
    pub fn explain_faults(mut self, yes: bool) -> Builder {
        self.explain_faults = yes;
        self
    }

    /// Who is told, from the evictor's thread and once, that the budget was overrun by
    /// more than a tenth for a second. Default nobody; [`State`](crate::State) says it
    /// too.
    pub fn tell(mut self, tell: fn(&str)) -> Builder {
        self.tell = Some(tell);
        self
    }

    /// Has this pager choose what leaves memory by itself, whatever other processes keep.
    /// Default off: pagers of one user that keep the same file let one of them choose, for
    /// a page that anybody maps stays in memory. [`Mode::File`] with [`Unmapping::Lazy`]
    /// only.
    pub fn alone(mut self, yes: bool) -> Builder {
        self.alone = yes;
        self
    }

    pub(crate) fn check(self) -> Result<Settings, Error> {
        let granule = self.granule_bytes.unwrap_or(64 << 10);
        let page = rustix::param::page_size();
        let fits = granule.is_power_of_two()
            && (LEAST_GRANULE_BYTES.max(page)..=LARGEST_GRANULE_BYTES).contains(&granule);
        if !fits {
            return Err(Error::setting(
                "granule",
                granule,
                "give a power of two from one page to 2 MiB",
            ));
        }
        let granules = self.budget_bytes / granule as u64;
        if granules < LEAST_GRANULES {
            return Err(Error::setting(
                "budget",
                self.budget_bytes,
                format!("give at least {LEAST_GRANULES} granules of {granule} bytes"),
            ));
        }
        let batch = self
            .batch
            .unwrap_or((granules / 32).clamp(1, MOST_RANGES as u64) as usize);
        if !(1..=MOST_RANGES).contains(&batch) {
            return Err(Error::setting("batch", batch, "give 1 to 1024 granules"));
        }
        let nice = self.nice.unwrap_or(EVICTOR_NICE);
        if !(-20..=19).contains(&nice) {
            return Err(Error::setting("nice", nice, "give -20 to 19"));
        }
        let read_ahead = self
            .read_ahead
            .unwrap_or_else(|| ReadAhead::usual(self.mode));
        if read_ahead.bytes > 0 && read_ahead.threads == 0 {
            return Err(Error::setting(
                "read-ahead threads",
                0,
                "give at least 1, or 0 bytes to read nothing ahead",
            ));
        }
        if read_ahead.threads > 64 {
            return Err(Error::setting(
                "read-ahead threads",
                read_ahead.threads,
                "give at most 64",
            ));
        }
        Ok(Settings {
            budget_bytes: granules * granule as u64,
            granule_bytes: granule,
            batch: batch.min((granules / 4).max(1) as usize),
            mode: self.mode,
            policy: self.policy,
            unmapping: self.unmapping,
            memory_policy: self.memory_policy,
            read_ahead,
            nice,
            explain_faults: self.explain_faults,
            tell: self.tell,
            together: (!self.alone).then(|| crate::local::path_of_user("pager")),
        })
    }
}

/// Settings that fit together.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub budget_bytes: u64,
    pub granule_bytes: usize,
    pub batch: usize,
    pub mode: Mode,
    pub policy: Policy,
    pub unmapping: Unmapping,
    pub memory_policy: Option<MemoryPolicy>,
    pub read_ahead: ReadAhead,
    pub nice: i32,
    pub explain_faults: bool,
    pub tell: Option<fn(&str)>,
    /// Where pagers of this user meet, if they do.
    pub together: Option<PathBuf>,
}

impl Settings {
    /// Granules that a batch may have where they are filled in part only, with
    /// room for probes.
    pub fn batch_most(&self) -> usize {
        MOST_RANGES / 8 * 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(builder: Builder) -> String {
        builder.check().unwrap_err().to_string()
    }

    #[test]
    fn a_batch_is_a_thirty_second_part_of_the_budget() {
        // 128 MiB are 2,048 granules of 64 KiB, a thirty-second part is 64.
        let settings = Builder::default().budget(128 << 20).check().unwrap();
        assert_eq!((settings.granule_bytes, settings.batch), (64 << 10, 64));
        // 4 GiB: 65,536 granules, 2,048, and the kernel takes 1,024.
        let settings = Builder::default().budget(4 << 30).check().unwrap();
        assert_eq!(settings.batch, 1024);
        // A batch asked for is at most a quarter of the budget: 16 / 4.
        let least = Builder::default().budget(1 << 20).batch(900);
        assert_eq!(least.check().unwrap().batch, 4);
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert_eq!(
            wrong(Builder::default()),
            "budget 0: give at least 16 granules of 65536 bytes"
        );
        let builder = Builder::default().budget(1 << 30);
        assert!(wrong(builder.clone().granule(5000)).starts_with("granule 5000: "));
        assert!(wrong(builder.clone().granule(4 << 20)).starts_with("granule 4194304: "));
        assert!(wrong(builder.clone().batch(1025)).starts_with("batch 1025: "));
        assert!(wrong(builder.clone().batch(0)).starts_with("batch 0: "));
        assert!(wrong(builder.clone().nice(20)).starts_with("nice 20: "));
        let none = ReadAhead {
            bytes: 1,
            threads: 0,
        };
        assert!(wrong(builder.read_ahead(none)).starts_with("read-ahead threads 0: "));
    }
}
