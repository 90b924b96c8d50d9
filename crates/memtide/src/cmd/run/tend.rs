//! Moving a running program's memory to the wanted weights, again and again,
//! while its new pages come as the kernel places them.

use crate::shared::pacing::spread_out;
use crate::shared::program::Program;
use memtide_linux::fs::Root;
use memtide_linux::fs::proc::{self, Process};
use memtide_linux::live::kernel::RunningKernel;
use memtide_linux::respread::{Options, Respread, RespreadError};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first look: programs allocate most when they start.
const FIRST: Duration = Duration::from_millis(100);
/// The shortest and the longest time between two.
const BETWEEN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// Looking may take one part in so many of the time: in vain, and where it pays
/// or the program is still starting.
const SHARES: [u32; 2] = [20, 4];
/// How long a program starts.
const STARTING: Duration = Duration::from_secs(10);

/// What to do about whom.
#[derive(Debug)]
pub struct Tender<'a> {
    root: &'a Root,
    options: Options,
    per_second: u64,
    /// The page faults that a process had taken when it was last looked at.
    faults: BTreeMap<Process, u64>,
    /// Pages that were moved.
    pub moved: u64,
    /// What cannot be done, told once.
    pub notices: Vec<String>,
}

impl<'a> Tender<'a> {
    /// For the programs of the machine under `root`.
    pub fn new(root: &'a Root, options: Options, per_second: u64) -> Tender<'a> {
        Tender {
            root,
            options,
            per_second,
            faults: BTreeMap::new(),
            moved: 0,
            notices: Vec::new(),
        }
    }

    /// Tends `program` and its descendants until it ends.
    pub fn tend(&mut self, program: &mut Program<'_>) {
        let (started, mut wait) = (Instant::now(), FIRST);
        while !program.wait_whole(wait) {
            let (began, before) = (Instant::now(), self.moved);
            let (quiet, moving) = self.round(program);
            let looking = began.elapsed().saturating_sub(moving);
            let pays = self.moved > before || started.elapsed() < STARTING;
            let next = if quiet { wait * 2 } else { BETWEEN[0] };
            let least = looking * SHARES[usize::from(pays)];
            wait = next.clamp(BETWEEN[0], BETWEEN[1]).max(least);
        }
    }

    /// Looks at every process that took page faults since the last time. Says
    /// whether there was none, and how long moving took.
    fn round(&mut self, program: &mut Program<'_>) -> (bool, Duration) {
        let (mut quiet, mut moving) = (true, Duration::ZERO);
        let Ok(listed) = proc::list(self.root) else {
            return (quiet, moving);
        };
        let mut ours = vec![program.pid()];
        // A child may have a smaller number than its parent: go on until none is new.
        loop {
            let children = listed.iter().filter(|one| ours.contains(&one.stat.parent));
            let new = children
                .map(|one| one.process.pid)
                .filter(|pid| !ours.contains(pid));
            let new: Vec<u32> = new.collect();
            if new.is_empty() {
                break;
            }
            ours.extend(new);
        }
        let own = listed.iter().filter(|one| ours.contains(&one.process.pid));
        self.faults.retain(|process, _| ours.contains(&process.pid));
        for one in own.filter(|one| one.stat.has_address_space()) {
            let before = self.faults.insert(one.process, one.stat.faults);
            if before == Some(one.stat.faults) || program.ended().is_some() {
                continue;
            }
            quiet = false;
            let began = Instant::now();
            match self.spread(one.process.pid, program) {
                Ok(looking) => moving += began.elapsed().saturating_sub(looking),
                Err(RespreadError::NoProcess(_) | RespreadError::NoMemory(_)) => {}
                Err(error) => {
                    let told = error.to_string();
                    if !self.notices.contains(&told) {
                        self.notices.push(told);
                    }
                }
            }
        }
        (quiet, moving)
    }

    /// Spreads one process's pages, and says how long looking at them took.
    fn spread(&mut self, pid: u32, program: &mut Program<'_>) -> Result<Duration, RespreadError> {
        let kernel = RunningKernel::new(self.root.clone());
        let mut respread = Respread::open(self.root, kernel, pid, self.options.clone())?;
        let pause = |wait| program.wait(wait);
        let done = spread_out(&mut respread, self.per_second, pause, |_| {});
        self.moved += respread.moved();
        done.map(|_| respread.looking())
    }
}
