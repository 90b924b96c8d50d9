//! A bounded number of the swarm's seeds, and the mistakes that it has to find.

use memtide_loop::swarm::{self, Mistake};

#[test]
fn promises_are_kept_whatever_fails() {
    for seed in 0..20 {
        if let Err(violations) = swarm::run(seed, None) {
            panic!(
                "cargo xtask swarm --first {seed} --seeds 1\n{}",
                violations.join("\n")
            );
        }
    }
}

#[test]
fn deliberate_mistakes_are_found() {
    for mistake in Mistake::ALL {
        let found = (0..1000).find(|seed| swarm::run(*seed, Some(mistake)).is_err());
        assert!(found.is_some(), "{mistake:?}");
    }
}
