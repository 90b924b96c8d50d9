//! What is started with the first mapping that is kept: a pager, or what keeps copies on nodes.

use super::exit;
use super::state::{settings, switch};
use crate::tally::TALLY;
use memtide_pager::local::Replicas;
use memtide_pager::{Pager, Unmapping};
use std::sync::atomic::AtomicBool;

/// A pager, or what keeps copies.
pub fn started() -> (Option<Pager>, Option<Replicas>) {
    match is_local() {
        true => (None, new_replicas()),
        false => (new_pager(), None),
    }
}

/// Whether copies on nodes were asked for.
pub fn is_local() -> bool {
    settings().is_some_and(|settings| settings.local)
}

fn new_replicas() -> Option<Replicas> {
    match Replicas::start(settings()?.budget_bytes, Some(exit::say)) {
        Ok(replicas) => Some(replicas),
        Err(why) => {
            switch(false);
            static SAID: AtomicBool = AtomicBool::new(false);
            exit::say_once(&SAID, &why.to_string());
            None
        }
    }
}

fn new_pager() -> Option<Pager> {
    let settings = settings()?;
    let unmapping = match settings.eager {
        true => Unmapping::EagerPages,
        false => Unmapping::Lazy,
    };
    let started = Pager::builder()
        .budget(settings.budget_bytes)
        .unmapping(unmapping)
        .tell(exit::say)
        .start();
    match started {
        Ok(pager) => {
            let before = crate::report::shootdowns_before();
            if settings.status
                && let Err(why) = pager.show_statistics(|| TALLY.counts(), before)
            {
                static SAID: AtomicBool = AtomicBool::new(false);
                exit::say_once(&SAID, &why.to_string());
            }
            Some(pager)
        }
        Err(why) => {
            switch(false);
            // Several threads may have mapped at once, and each have tried.
            static SAID: AtomicBool = AtomicBool::new(false);
            exit::say_once(&SAID, &why.to_string());
            None
        }
    }
}
