//! Which process makes which call of a sequence.
//!
//! A process is a number here, in the order of the forks; the first is 0. What belongs to no process
//! is the first one's, which therefore stays to the end.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::calls::{Call, Sequence};

/// Who has to do with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Who makes it. An exit is its parent's, who waits for the end.
    pub actor: usize,
    /// Whom a fork makes, or an exit ends.
    pub other: usize,
}

/// The roles of all calls.
#[derive(Debug)]
pub struct Cast {
    /// A role for each call.
    pub roles: Vec<Role>,
    /// How many processes there ever are.
    pub processes: usize,
}

impl Cast {
    /// Who does what.
    ///
    /// # Errors
    /// When a call names a process that is not there, or one ends before its children.
    pub fn new(sequence: &Sequence) -> Result<Self> {
        let mut alive = BTreeMap::from([(None, 0)]);
        let mut parents = vec![0];
        let mut roles = Vec::new();
        for (number, line) in sequence.calls.iter().enumerate() {
            let place = || format!("line {}", number + 2);
            let who = *alive.get(&line.process).with_context(place)?;
            roles.push(match &line.call {
                Call::Fork { child } => {
                    let other = parents.len();
                    let old = alive.insert(Some(child.clone()), other);
                    ensure!(old.is_none(), "{}: {child} is there", place());
                    parents.push(who);
                    Role { actor: who, other }
                }
                Call::Exit => {
                    alive.remove(&line.process);
                    let childless = alive
                        .values()
                        .all(|&child| child == 0 || parents[child] != who);
                    ensure!(
                        who != 0 && childless,
                        "{}: it has children, or is the first",
                        place()
                    );
                    Role {
                        actor: parents[who],
                        other: who,
                    }
                }
                _ => Role {
                    actor: who,
                    other: who,
                },
            });
        }
        Ok(Self {
            roles,
            processes: parents.len(),
        })
    }
}
