//! A source breaks: the others go on, and what it had cost and lost is not forgotten.
//!
//! Nobody asks a source that broke again. What it had come to is remembered, and added to
//! what those that are left say, so that counters never fall.

use super::Tierer;
use crate::report::{Event, Reporter};
use crate::world::{SourceId, SourceStatus, World, WorldError};

/// What sources have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Broken {
    /// The kernel's processor time.
    pub kernel_cpu_ns: u64,
    /// Reports that were lost.
    pub lost: u64,
}

impl Broken {
    /// One that breaks now: a world that has closed it may no longer know what was `known`.
    pub fn of(known: Broken, now: SourceStatus) -> Broken {
        Broken {
            kernel_cpu_ns: known.kernel_cpu_ns.max(now.kernel_cpu_ns),
            lost: known.lost.max(now.lost),
        }
    }

    /// Another one broke.
    pub fn add(&mut self, other: Broken) {
        self.kernel_cpu_ns = self.kernel_cpu_ns.saturating_add(other.kernel_cpu_ns);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

impl Tierer {
    /// Goes on with the sources that are left.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(super) fn go_on_without(
        &mut self,
        world: &mut dyn World,
        source_id: SourceId,
        what: String,
        reporter: &mut dyn Reporter,
    ) -> Result<(), WorldError> {
        let heard = self.listeners.has(source_id);
        let main = source_id == self.observer.source;
        if !heard && !main {
            // It is known to be broken, and something else goes on.
            return Ok(());
        }
        let next = match main {
            true => Some(self.successor(world, source_id)),
            false => None,
        };
        if let Some(None) = next {
            return Err(WorldError::Source { source_id, what });
        }
        let now = world.source_status(source_id);
        let known = match self.listeners.last_known(source_id) {
            Some(known) => known,
            None => self.observer.last_known(),
        };
        self.broken.add(Broken::of(known, now));
        self.listeners.remove(source_id);
        let mut how = "goes on";
        if let Some(next) = next.flatten() {
            self.observer.take_over(world, next);
            // How long the other's passes took is nothing to this one.
            let least_ms = self.shared.config.hotness.window_ms();
            self.shared.records.follow(0, least_ms);
            if self.observer.is_told() {
                self.listeners.remove(next);
                how = "takes over";
            }
        }
        let now = world.now();
        if self.listeners.is_empty() {
            let whole = self.shared.config.cadence.share_permille;
            self.observer.set_share(now, whole);
        }
        let name = |source: SourceId| world.sources()[usize::from(source.0)].name.as_str();
        let (broken, left) = (name(source_id), name(self.observer.source));
        let text = match what.starts_with(broken) {
            true => format!("{what}; {left} {how}"),
            false => format!("{broken}: {what}; {left} {how}"),
        };
        reporter.event(now, Event::Notice { text });
        Ok(())
    }

    /// Who takes the place of the source that is told what to observe: the next that
    /// completes passes, or else one that is listened to.
    fn successor(&self, world: &dyn World, source_id: SourceId) -> Option<SourceId> {
        let later = (0..)
            .zip(world.sources())
            .skip(usize::from(source_id.0) + 1);
        let mut looks = later.filter(|(_, info)| info.abilities.passes);
        let looking = looks.next().map(|(n, _)| SourceId(n));
        looking.or_else(|| self.listeners.other_than(source_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_counts_if_nobody_knows_it_any_more() {
        let known = Broken {
            kernel_cpu_ns: 500,
            lost: 3,
        };
        let mut all = Broken::of(known, SourceStatus::default());
        assert_eq!(all, known);
        let later = SourceStatus {
            kernel_cpu_ns: 700,
            lost: 2,
            ..SourceStatus::default()
        };
        all.add(Broken::of(known, later));
        assert_eq!((all.kernel_cpu_ns, all.lost), (1200, 6));
    }
}
