//! A run of the service: tiering, and balancing beside it for whom that is wanted. So is spreading by weights,
//! which listens to nothing.
//!
//! Both loops may want one unit of hardware that samples, which only one can have all the time. What `[tier]`
//! names is tiering's. Of the rest balancing has it, to which nothing else is as good; but for a machine
//! where tiering has no other source.

use crate::shared::balancing::{self, Balancing, Opening, Wanted};
use crate::shared::configuration::Settings;
use crate::shared::context::Context;
use crate::shared::nodes_watch;
use crate::shared::outside::causes;
use crate::shared::report::Printer;
use crate::shared::selection::{check_privileges, of_cgroup_or_all};
use crate::shared::spreading::{self, Spreading};
use crate::shared::tiering::{self, Tiering, print};
use anyhow::bail;
use memtide_core::topology::Topology;
use memtide_loop::options::{Classes, TierSource};
use memtide_loop::report::Status;

/// Both, opened.
pub struct Opened {
    tiering: tiering::Opened,
    balancing: Opening,
    nodes: Topology,
}

/// Both, as they run, and what goes on beside them.
pub struct Both {
    pub tiering: Tiering,
    pub balancing: Balancing,
    pub spreading: Spreading,
}

fn wanted(settings: &Settings, alone: bool) -> Wanted<'_> {
    Wanted {
        alone,
        options: &settings.balance,
        classes: &settings.class,
        others: settings.select.balance,
        tier: &settings.tier,
    }
}

/// Whose memory is spread by weights.
pub fn spread(settings: &Settings) -> spreading::Wanted<'_> {
    spreading::Wanted {
        options: &settings.weights,
        classes: &settings.class,
    }
}

/// Whether anybody is to be tiered.
fn tiers_anybody(settings: &Settings) -> bool {
    let others = settings.select.tiered();
    let mut classes = settings.class.values();
    others.tier || classes.any(|class| class.tiered(others).tier)
}

/// Why nobody is tiered on these nodes, if so.
pub fn rests(nodes: &Topology, settings: &Settings) -> Option<String> {
    match tiers_anybody(settings) {
        true => tiering::has_tiers(nodes).err().map(|why| causes(&why)),
        false => Some("tier = false for all, in [select] or in each class".to_owned()),
    }
}

/// Whether there is something to wait for where nobody is tiered: nodes that may come.
fn waits(context: &Context, settings: &Settings) -> bool {
    tiers_anybody(settings) && nodes_watch::may_come(&context.root)
}

/// Whether a run by the settings `old` can go on by `new` and forget nothing. Balancing and spreading cannot
/// follow other classes or options.
pub fn goes_on(nodes: &Topology, old: &Settings, new: &Settings) -> bool {
    // Both keep it free.
    let headroom = |settings: &Settings| match wanted(settings, false).anybody() {
        true => Some(settings.tier.headroom),
        false => None,
    };
    let who = |settings: &Settings| (settings.select.all, settings.select.cgroup.clone());
    let beside = |settings| wanted(settings, false).anybody() || spread(settings).anybody();
    let classes = |settings: &Settings| {
        let classes = settings.class.iter();
        let classes = classes.map(|(name, class)| (name.clone(), class.without_tiering()));
        (settings.select.balance, classes.collect::<Classes>())
    };
    old.tier.goes_on_with(&new.tier)
        && old.balance == new.balance
        && headroom(old) == headroom(new)
        && who(old) == who(new)
        && rests(nodes, old) == rests(nodes, new)
        && ((!beside(old) && !beside(new))
            || (classes(old) == classes(new) && same_spreading(old, new)))
}

/// Whether what classes with weights are spread by is the same; their weights are part of them.
pub fn same_spreading(old: &Settings, new: &Settings) -> bool {
    let how = |settings: &Settings| (settings.weights.rate_limit, settings.weights.dry_run);
    how(old) == how(new) || !spread(new).anybody()
}

/// Whether there is work without tiering and balancing: interleave weights, the kernel's or of classes.
fn has_weights(settings: &Settings) -> bool {
    settings.weights.table.is_some() || spread(settings).anybody()
}

/// What no second try can change: there must be something to tier, now or when nodes come, to balance or to
/// weigh, and the right to move pages.
pub fn check(context: &Context, nodes: &Topology, settings: &Settings) -> anyhow::Result<()> {
    if let Some(why) = rests(nodes, settings)
        && !wanted(settings, true).anybody()
        && !has_weights(settings)
        && !waits(context, settings)
    {
        bail!(
            "{why}; to balance between sockets, set balance = true in [select] or in a class; to have interleave weights, set weights in a class or table in [weights]"
        );
    }
    check_privileges(&context.root, settings.tier.dry_run)
}

/// Opens the sources of both. Tiering must have one, or else balancing where nobody is tiered, there are no
/// weights, and no nodes may come.
pub fn open(context: &Context, nodes: Topology, settings: &Settings) -> anyhow::Result<Opened> {
    let waits = waits(context, settings);
    let rests = rests(&nodes, settings).map(|why| match waits {
        true => format!("{why}; {}", nodes_watch::LATER),
        false => why,
    });
    let balancing = balancing::open(context, &nodes, wanted(settings, rests.is_some()));
    if let (Some(tiers), Opening::Rests(why)) = (&rests, &balancing)
        && !has_weights(settings)
        && !waits
    {
        bail!("nothing is balanced: {why}; nothing is tiered: {tiers}");
    }
    let taken = balancing.hardware();
    let (balancing, tiering) = divide(balancing, taken, Opening::Rests, |taken| {
        let whom = (&settings.class, settings.select.tiered());
        let nodes = nodes.clone();
        tiering::open(context, nodes, &settings.tier, whom, taken, rests.clone())
    })?;
    Ok(Opened {
        tiering: match balancing.is_ready() || spread(settings).anybody() {
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
        let (nodes, wanted) = (&self.nodes, wanted(settings, tiering.rests().is_some()));
        let balancing = (self.balancing).begin(context, nodes, selection(), wanted, printer);
        let spreading = spread(settings).begin(context, selection(), printer);
        Ok(Both {
            tiering,
            balancing,
            spreading,
        })
    }
}

impl Both {
    /// Has what is of the class of this name stay where it is. Whether there is one.
    pub fn pause(&mut self, class: &str) -> bool {
        self.balancing.pause(class, true);
        self.spreading.pause(class, true);
        self.tiering.pause(class)
    }

    /// Puts back what was changed, and says what was done and `why` it ended; where tiering stood, and
    /// whether that worked.
    pub fn finish(self, printer: &mut Printer, why: &str) -> (Status, anyhow::Result<()>) {
        self.balancing.ends();
        self.spreading.ends();
        let (status, put_back) = self.tiering.finish(printer);
        let freed = self.balancing.finish(printer, why);
        let spread = self.spreading.finish(printer);
        print::summary(printer, &status, why);
        let put_back = put_back.map_err(anyhow::Error::from);
        (status, put_back.and(freed).and(spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tiering::nodes;
    use memtide_linux::fs::Root;
    use std::path::Path;

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

    fn machine(fixture: &str) -> Context {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtide-linux/tests/fixtures");
        Context {
            root: Root::new(fixtures.join(fixture)),
            json: false,
            styled: false,
        }
    }

    /// Why nobody is tiered by these settings, and what is said of them, where nothing is moved.
    fn said(fixture: &str, text: &str) -> (Option<String>, Option<String>) {
        let context = machine(fixture);
        let mut settings: Settings = toml::from_str(text).unwrap();
        settings.tier.dry_run = true;
        let nodes = nodes(&context, &settings.tier, "").unwrap();
        let checked = check(&context, &nodes, &settings);
        (
            rests(&nodes, &settings),
            checked.err().map(|why| causes(&why)),
        )
    }

    #[test]
    fn what_is_not_tiered_must_be_balanced_or_weighted() {
        let one_tier = "this machine has one tier of memory";
        let none = "tier = false for all";
        let balanced = "select.balance = true";
        for (fixture, text, rests, refused) in [
            ("two-sockets", "", Some(one_tier), true),
            ("two-sockets", balanced, Some(one_tier), false),
            (
                "two-sockets",
                "weights.table = '0=3,1=1'",
                Some(one_tier),
                false,
            ),
            (
                "two-sockets",
                "class.a.balance = true",
                Some(one_tier),
                false,
            ),
            ("two-sockets-cxl-hmat", "", None, false),
            // A node with processors may get memory, and another may come.
            ("node-offline", "", Some(one_tier), false),
            ("node-offline", "select.tier = false", Some(none), true),
            (
                "two-sockets-cxl-hmat",
                "select.tier = false",
                Some(none),
                true,
            ),
            (
                "two-sockets-cxl-hmat",
                "select.tier = false\nclass.a.weights = '0=3,1=1'",
                Some(none),
                false,
            ),
            (
                "two-sockets-cxl-hmat",
                "class.a.tier = true\nselect.tier = false",
                None,
                false,
            ),
            (
                "two-sockets-cxl-hmat",
                "select = { tier = false, balance = true }",
                Some(none),
                false,
            ),
        ] {
            let (why, error) = said(fixture, text);
            let at = format!("{fixture} {text}: {why:?} {error:?}");
            assert_eq!(why.is_some(), rests.is_some(), "{at}");
            let begins = |why: String| why.starts_with(rests.unwrap_or_default());
            assert!(why.is_none_or(begins), "{at}");
            assert_eq!(error.is_some(), refused, "{at}");
        }
    }

    /// A copy of a machine has no source for balancing.
    #[test]
    fn where_neither_can_be_done_both_reasons_are_said() {
        let context = machine("two-sockets");
        let settings: Settings = toml::from_str("select.balance = true").unwrap();
        let nodes = nodes(&context, &settings.tier, "").unwrap();
        let why = open(&context, nodes, &settings).err().unwrap().to_string();
        assert!(why.starts_with("nothing is balanced: "), "{why}");
        assert!(
            why.contains("; nothing is tiered: this machine has one tier"),
            "{why}"
        );
    }

    #[test]
    fn tiering_goes_before_balancing_where_only_one_can_have_a_source() {
        assert_eq!(divided(false, true), Some(Ok(())));
        let why = "ibs: tiering listens to it, and has no other source".to_owned();
        assert_eq!(divided(true, true), Some(Err(why)));
        assert_eq!(divided(true, false), None);
    }
}
