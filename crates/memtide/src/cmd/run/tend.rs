//! Moving a running program's memory to the wanted weights, again and again,
//! while its new pages come as the kernel places them.

use crate::shared::program::Program;
use crate::shared::tending::{FIRST, Manner, Pages, Tended, Tender};
use memtide_linux::fs::Root;
use memtide_linux::fs::proc;
use memtide_linux::respread::Options;
use std::time::{Duration, Instant};

/// A program that starts is looked at often.
const MANNER: Manner = Manner {
    shares: [20, 4],
    starting: Duration::from_secs(10),
    again: None,
};

/// What was done until the program ended.
#[derive(Debug, Default)]
pub struct Tending {
    /// Pages that were moved.
    pub moved: u64,
    /// What cannot be done, told once.
    pub notices: Vec<String>,
}

/// Tends `program` and its descendants until it ends, and moves at most so many pages a second.
pub fn tend(root: &Root, options: &Options, per_second: u64, program: &mut Program<'_>) -> Tending {
    let mut tender = Tender::new(MANNER, per_second);
    let (mut tending, started, mut wait) = (Tending::default(), Instant::now(), FIRST);
    while !program.wait_whole(wait) {
        let began = Instant::now();
        let all = descendants(root, program.pid(), options);
        let round = tender.round(started.elapsed(), &all, &mut Pages(root), |_, wait, _| {
            program.wait(wait)
        });
        tending.moved += round.moved;
        for (_, error) in &round.failed {
            let told = error.to_string();
            if !tending.notices.contains(&told) {
                tending.notices.push(told);
            }
        }
        wait = tender.wait(&round, began.elapsed(), started.elapsed());
    }
    tending
}

/// A program and its descendants that have memory.
fn descendants<'o>(root: &Root, program: u32, options: &'o Options) -> Vec<Tended<'o>> {
    let Ok(listed) = proc::list(root) else {
        return Vec::new();
    };
    let mut ours = vec![program];
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
    let own = own.filter(|one| one.stat.has_address_space());
    let tended = own.map(|one| Tended {
        process: one.process,
        faults: one.stat.faults,
        options,
    });
    tended.collect()
}
