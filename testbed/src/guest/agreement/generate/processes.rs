//! Processes that come and go in a sequence.

use super::memory::Region;
use super::{Counter, Generator};
use crate::guest::agreement::calls::Call;

/// Processes at once.
const MOST: usize = 3;

/// A process whose turn it is not.
#[derive(Debug)]
pub(super) struct Other {
    process: Option<String>,
    parent: Option<String>,
    counter: Counter,
    regions: Vec<Region>,
}

impl Generator {
    /// Forks, ends one, or lets another go on; mostly nothing.
    pub(super) fn change_processes(&mut self) {
        match self.draw.below(100) {
            0..4 if self.others.len() + 1 < MOST => self.fork(),
            4..7 => self.exit(),
            7..37 if !self.others.is_empty() => {
                let other = self.draw.below(self.others.len() as u64) as usize;
                self.let_go_on(other);
            }
            _ => {}
        }
    }

    fn fork(&mut self) {
        self.born += 1;
        let child = format!("child{}", self.born);
        self.push(Call::Fork {
            child: child.clone(),
        });
        self.spoil_counter();
        self.others.push(Other {
            process: Some(child),
            parent: self.process.clone(),
            counter: self.counter,
            regions: self.regions.clone(),
        });
    }

    /// Ends a process that is neither the first nor the parent of one that is there.
    fn exit(&mut self) {
        let mut parents: Vec<_> = self.others.iter().map(|of| &of.parent).collect();
        parents.push(&self.parent);
        let ends = |of: &Other| of.process.is_some() && !parents.contains(&&of.process);
        let Some(at) = self.others.iter().position(ends) else {
            return;
        };
        let ended = self.others.remove(at);
        let now = std::mem::replace(&mut self.process, ended.process);
        self.push(Call::Exit);
        self.process = now;
    }

    fn let_go_on(&mut self, other: usize) {
        let other = &mut self.others[other];
        std::mem::swap(&mut self.process, &mut other.process);
        std::mem::swap(&mut self.counter, &mut other.counter);
        std::mem::swap(&mut self.regions, &mut other.regions);
        std::mem::swap(&mut self.parent, &mut other.parent);
    }

    /// Where the pages of all processes are now.
    pub(super) fn look_everywhere(&mut self) {
        for other in 0..self.others.len() {
            self.let_go_on(other);
            self.look_at(None);
            self.let_go_on(other);
        }
        self.look_at(None);
    }
}
