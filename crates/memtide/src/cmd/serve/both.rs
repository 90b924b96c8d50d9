//! A run of the service: tiering, and balancing beside it for whom that is wanted.
//!
//! Both may want one unit of hardware that samples, which only one can have all the time. What `[tier]`
//! names is tiering's. Of the rest balancing has it, to which nothing else is as good; but for a machine
//! where tiering has no other source.

use crate::shared::balancing::{self, Balancing, Opening, Wanted};
use crate::shared::configuration::Settings;
use crate::shared::context::Context;
use crate::shared::report::Printer;
use crate::shared::selection::of_cgroup_or_all;
use crate::shared::tiering::{self, Tiering, print};
use memtide_core::topology::Topology;
use memtide_loop::options::TierSource;
use memtide_loop::report::Status;

/// Both, opened.
pub struct Opened {
    tiering: tiering::Opened,
    balancing: Opening,
    nodes: Topology,
}

/// Both, as they run.
pub struct Both {
    pub tiering: Tiering,
    pub balancing: Balancing,
}

fn wanted(settings: &Settings) -> Wanted<'_> {
    Wanted {
        options: &settings.balance,
        classes: &settings.class,
        others: settings.select.balance,
        tier: &settings.tier,
    }
}

/// Opens the sources of both. Tiering must have one.
pub fn open(context: &Context, nodes: Topology, settings: &Settings) -> anyhow::Result<Opened> {
    let balancing = balancing::open(context, &nodes, wanted(settings));
    let taken = balancing.hardware();
    let (balancing, tiering) = divide(balancing, taken, Opening::Rests, |taken| {
        let whom = (&settings.class, settings.select.tiered());
        tiering::open(context, nodes.clone(), &settings.tier, whom, taken)
    })?;
    Ok(Opened {
        tiering: match balancing.is_ready() {
            true => tiering.beside_another(),
            false => tiering,
        },
        balancing,
        nodes,
    })
}

/// Opens tiering without the unit that balancing has `taken`, or without balancing if it needs that unit.
fn divide<B, T>(
    balancing: B,
    taken: Option<TierSource>,
    rests: impl FnOnce(String) -> B,
    mut tiering: impl FnMut(Option<TierSource>) -> anyhow::Result<T>,
) -> anyhow::Result<(B, T)> {
    match (tiering(taken), taken) {
        (Ok(tiering), _) => Ok((balancing, tiering)),
        (Err(why), None) => Err(why),
        (Err(_), Some(unit)) => {
            drop(balancing);
            let tiering = tiering(None)?;
            let why = format!("{unit}: tiering listens to it, and has no other source");
            Ok((rests(why), tiering))
        }
    }
}

impl Opened {
    /// Begins both with the first survey.
    pub fn begin(
        self,
        context: &Context,
        settings: &Settings,
        printer: &mut Printer,
    ) -> anyhow::Result<Both> {
        let selection = || of_cgroup_or_all(settings.select.cgroup.as_deref());
        let tiering = self.tiering.begin(context, selection(), None, printer)?;
        let (nodes, wanted) = (&self.nodes, wanted(settings));
        let balancing = (self.balancing).begin(context, nodes, selection(), wanted, printer);
        Ok(Both { tiering, balancing })
    }
}

impl Both {
    /// Has what is of the class of this name stay where it is. Whether there is one.
    pub fn pause(&mut self, class: &str) -> bool {
        self.balancing.pause(class, true);
        self.tiering.pause(class)
    }

    /// Puts back what was changed, and says what was done and `why` it ended; where tiering stood, and
    /// whether that worked.
    pub fn finish(self, printer: &mut Printer, why: &str) -> (Status, anyhow::Result<()>) {
        self.balancing.ends();
        let (status, put_back) = self.tiering.finish(printer);
        let freed = self.balancing.finish(printer, why);
        print::summary(printer, &status, why);
        (status, put_back.map_err(anyhow::Error::from).and(freed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    /// Of a machine where balancing has IBS, and tiering works with what is left or only with that.
    fn divided(needs_it: bool, works: bool) -> Option<Result<(), String>> {
        let rests = |why| Err(why);
        let tiering = |taken: Option<TierSource>| match (works, needs_it && taken.is_some()) {
            (true, false) => Ok(()),
            _ => bail!("no source of accesses works here"),
        };
        let divided = divide(Ok(()), Some(TierSource::Ibs), rests, tiering);
        divided.ok().map(|(balancing, ())| balancing)
    }

    #[test]
    fn tiering_goes_before_balancing_where_only_one_can_have_a_source() {
        assert_eq!(divided(false, true), Some(Ok(())));
        let why = "ibs: tiering listens to it, and has no other source".to_owned();
        assert_eq!(divided(true, true), Some(Err(why)));
        assert_eq!(divided(true, false), None);
    }
}
