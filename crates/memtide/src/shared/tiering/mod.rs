//! Tiering of the running machine: the one loop of `memtide tier` and `memtide serve`.
//!
//! [`check`] says whether this machine can be tiered, [`open`] finds what tells of accesses,
//! [`Opened::begin`] makes a run, [`Tiering::work`] has it turn. However that ends,
//! [`Tiering::finish`] puts back what was changed.

pub mod print;

use super::context::Context;
use super::foreground::{Ended, Foreground};
use super::journal::{Journaled, Run};
use super::metrics::Metrics;
use super::report::Printer;
use super::selection::check_privileges;
use super::source;
use super::spread::page_size;
use super::users;
use anyhow::{anyhow, bail};
use memtide_core::access;
use memtide_core::topology::Topology;
use memtide_core::units::{Millis, PageSize};
use memtide_linux::fs::{cgroup, topology};
use memtide_linux::live::LiveWorld;
use memtide_linux::live::processes::Selection;
use memtide_loop::World;
use memtide_loop::journal::Line;
use memtide_loop::options::{Classes, Rules, TierOptions, TierSource, Tiered, User};
use memtide_loop::report::Status;
use memtide_loop::tier::{TierConfig, Tierer};
use memtide_loop::world::WorldError;
use std::path::Path;

/// The machine's nodes, in the tiers that `options` give, or else in its own. `at` is where they give
/// them, with a blank behind it.
pub fn nodes(context: &Context, options: &TierOptions, at: &str) -> anyhow::Result<Topology> {
    let own = topology::read(&context.root)?.topology;
    match &options.tiers {
        None => Ok(own),
        Some(tiers) => own
            .with_tiers(tiers)
            .map_err(|wrong| anyhow!("{at}tiers {tiers}: {wrong}")),
    }
}

/// Whether there is a tier to promote from and one to promote to.
pub fn has_tiers(nodes: &Topology) -> anyhow::Result<()> {
    let lower = nodes
        .nodes()
        .iter()
        .find(|node| !node.top_tier && node.has_memory());
    match lower {
        None => bail!(
            "this machine has one tier of memory, so there is nothing to promote; memtide topology shows its nodes, and the option tiers gives them tiers by hand"
        ),
        Some(node) if node.promotion_target.is_none() => bail!(
            "node {}: no faster node has memory; memtide topology shows the nodes",
            node.id
        ),
        Some(_) => Ok(()),
    }
}

/// What no second try can change: there must be tiers, and the right to move pages.
pub fn check(context: &Context, nodes: &Topology, options: &TierOptions) -> anyhow::Result<()> {
    has_tiers(nodes)?;
    check_privileges(&context.root, options.dry_run)
}

/// What is needed to begin.
pub struct Opened {
    nodes: Topology,
    page: PageSize,
    sources: source::Opened,
    options: TierOptions,
    classes: Classes,
    config: TierConfig,
    seed: u64,
    /// Whether another loop runs on another thread.
    beside: bool,
    /// Why nobody is tiered, if so.
    rests: Option<String>,
}

/// Opens the sources of accesses, but for a unit of hardware that balancing has `taken`. The classes fit
/// the machine; for all others so much is done. For the reason `rests`, if there is one, nobody is tiered,
/// and there are no sources.
pub fn open(
    context: &Context,
    nodes: Topology,
    options: &TierOptions,
    (classes, others): (&Classes, Tiered),
    taken: Option<TierSource>,
    rests: Option<String>,
) -> anyhow::Result<Opened> {
    let page = page_size()?;
    LiveWorld::stay_off_fast_memory(&nodes);
    let sources = match rests {
        None => source::open(options, &context.root, page, taken)?,
        Some(_) => source::Opened::none(),
    };
    if !context.root.is_live() {
        bail!(
            "{}: only the running machine's pages can be moved",
            context.root.path("/").display()
        );
    }
    let seed = seed();
    let rest = rests.is_some();
    let config = config(options, (classes, others), rest, &nodes, page)?;
    Ok(Opened {
        nodes,
        page,
        sources,
        options: options.clone(),
        classes: classes.clone(),
        config,
        seed,
        beside: false,
        rests,
    })
}

fn seed() -> u64 {
    u64::from(std::process::id())
}

/// How the loop works by these options and classes; it tiers nobody if it is to `rest`.
fn config(
    options: &TierOptions,
    (classes, others): (&Classes, Tiered),
    rest: bool,
    nodes: &Topology,
    page: PageSize,
) -> anyhow::Result<TierConfig> {
    let config = TierConfig::new(options, nodes, page, seed())?.with_others(others);
    let config = config.with_classes(classes, nodes, page);
    Ok(match rest {
        true => config.resting(),
        false => config,
    })
}

/// Whether [`open`] can succeed after the end of a run that listens to `held`.
pub fn can_open(
    context: &Context,
    nodes: &Topology,
    options: &TierOptions,
    held: &[access::Source],
) -> anyhow::Result<()> {
    let page = page_size()?;
    TierConfig::new(options, nodes, page, 0)?;
    source::can_open(options, held, &context.root, page)
}

/// The nodes of each tier, the fastest first, as the option `tiers` writes them.
pub fn tiers(nodes: &Topology) -> String {
    let tiers = nodes.tiers();
    let tiers: Vec<String> = tiers.iter().map(|(_, nodes)| nodes.to_string()).collect();
    tiers.join("/")
}

/// The classes that are paused.
pub fn paused(status: &Status) -> Vec<String> {
    let classes = status.tiering.iter().flat_map(|tiering| &tiering.classes);
    let paused = classes.filter(|class| class.paused);
    paused.map(|class| class.name.clone()).collect()
}

/// What classes ask for on this machine.
pub fn rules(context: &Context, classes: &Classes) -> anyhow::Result<Rules> {
    if classes.is_empty() {
        return Ok(Rules::default());
    }
    let mount = cgroup::mount(&context.root)?.unwrap_or_default();
    let user = |user: &User| users::number(&context.root, user).ok();
    Ok(Rules::new(classes, &mount.to_string_lossy(), user))
}

impl Opened {
    /// The machine's nodes, in the tiers of the run.
    pub fn nodes(&self) -> &Topology {
        &self.nodes
    }

    /// The same beside another loop, which runs on a thread of its own: only this thread's processor
    /// time is this one's.
    #[must_use]
    pub fn beside_another(self) -> Opened {
        Opened {
            beside: true,
            ..self
        }
    }

    /// Begins with the first survey of `selection`.
    pub fn begin(
        self,
        context: &Context,
        selection: Selection,
        journal: Option<&Path>,
        printer: &mut Printer,
    ) -> anyhow::Result<Tiering> {
        for notice in &self.sources.notices {
            printer.notice(notice);
        }
        if let Some(why) = &self.rests {
            printer.notice(&format!("nothing is tiered: {why}"));
        }
        let mut world = LiveWorld::new(
            context.root.clone(),
            self.nodes,
            self.page,
            selection,
            self.sources.sources,
        );
        world = world.with_classes(rules(context, &self.classes)?);
        if self.beside {
            world = world.of_this_thread();
        }
        let run = Run::Tier {
            options: self.options,
            classes: self.classes,
            seed: self.seed,
        };
        let journal = Journaled::begin(journal, &world, run)?;
        let config = self.config;
        let tierer = journal.note(None, &mut world, printer, |world, _| {
            Tierer::new(world, config)
        });
        Ok(Tiering {
            rests: self.rests,
            world,
            tierer,
            journal,
        })
    }
}

/// Who watches a run go on.
pub trait Watch {
    /// Somebody may want something of the loop between two turns.
    fn asked(&self, _: &mut Tierer, _: &mut dyn World) {}

    /// A turn is over.
    fn turned(&self) {}

    /// Somebody may have something to tell, about once a second, before it is said where things stand.
    fn tells(&self, _: &mut Printer) {}

    /// Where things stand, about once a second.
    fn stands(&self, _: &Status, _: &Printer) {}
}

/// Nobody.
impl Watch for () {}

/// A run.
pub struct Tiering {
    rests: Option<String>,
    world: LiveWorld,
    tierer: Tierer,
    journal: Journaled,
}

impl Tiering {
    /// The time since its start.
    pub fn now(&mut self) -> Millis {
        self.world.now()
    }

    /// Whom it manages, for another run: who was named is known, and nobody else is taken for him.
    pub fn selection(&self) -> Selection {
        self.world.selection()
    }

    /// Calls `alive` now and then while one turn takes long.
    pub fn tell_while_surveying(&mut self, alive: fn()) {
        self.world.tell_while_surveying(alive);
    }

    /// Why nobody is tiered, if so.
    pub fn rests(&self) -> Option<&str> {
        self.rests.as_deref()
    }

    /// What tells of accesses.
    pub fn source(&self) -> String {
        if self.rests.is_some() {
            return "none".to_owned();
        }
        let sources = self.world.sources().iter();
        let names: Vec<&str> = sources.map(|source| source.name.as_str()).collect();
        names.join(", ")
    }

    /// The kinds of that.
    pub fn held(&self) -> Vec<access::Source> {
        let sources = self.world.sources().iter();
        sources.map(|source| source.kind).collect()
    }

    /// Goes on by these options and classes, and forgets nothing. The `nodes` are those of the run, with as
    /// much memory as they have now.
    ///
    /// # Errors
    ///
    /// Why that cannot be. Then nothing has changed.
    pub fn follow(
        &mut self,
        context: &Context,
        nodes: &Topology,
        options: &TierOptions,
        whom: (&Classes, Tiered),
    ) -> anyhow::Result<()> {
        let rest = self.rests.is_some();
        let config = config(options, whom, rest, nodes, self.world.page())?;
        let rules = rules(context, whom.0)?;
        self.world.set_classes(rules);
        self.tierer.follow(&mut self.world, config);
        Ok(())
    }

    /// Has pages of the class of this name stay where they are. Whether there is one.
    pub fn pause(&mut self, class: &str) -> bool {
        (self.tierer.pause(&mut self.world, class, true)).is_some()
    }

    /// The machine's nodes, in the tiers of this run.
    pub fn nodes(&self) -> &Topology {
        self.world.topology()
    }

    /// Where things stand.
    pub fn status(&mut self) -> Status {
        self.tierer.status(&mut self.world)
    }

    /// Turns until something ends them; what that was. It may be called again after that.
    pub fn work(
        &mut self,
        foreground: &Foreground<'_>,
        printer: &mut Printer,
        metrics: &Metrics,
        watch: &impl Watch,
    ) -> anyhow::Result<Ended> {
        foreground.work(
            &self.journal,
            &mut self.tierer,
            &mut self.world,
            printer,
            |tierer, world, reporter| {
                let any_left = tierer.step(world, reporter)?;
                watch.asked(tierer, world);
                watch.turned();
                Ok(any_left)
            },
            |printer, tierer, world| {
                watch.tells(printer);
                let status = tierer.status(world);
                metrics.tell(printer, &status);
                print::status(printer, &status);
                watch.stands(&status, printer);
            },
        )
    }

    /// Puts back what was changed; where things stood at the end, and whether that worked.
    pub fn finish(mut self, printer: &mut Printer) -> (Status, Result<(), WorldError>) {
        let tierer = &mut self.tierer;
        let put_back =
            self.journal
                .note(Some(Line::Finish), &mut self.world, printer, |world, _| {
                    tierer.finish(world)
                });
        (self.tierer.status(&mut self.world), put_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_linux::fs::Root;
    use memtide_loop::report::{ClassStatus, TierStatus};

    #[test]
    fn who_is_paused_is_known_by_name() {
        let class = |name: &str, paused| ClassStatus {
            name: name.to_owned(),
            paused,
            ..ClassStatus::default()
        };
        let status = Status {
            tiering: Some(TierStatus {
                classes: vec![class("a", true), class("b", false), class("c", true)],
                ..TierStatus::default()
            }),
            ..Status::default()
        };
        assert_eq!(paused(&status), ["a", "c"]);
        assert!(paused(&Status::default()).is_empty());
    }

    #[test]
    fn without_classes_nothing_is_read_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context {
            root: Root::new(folder.path()),
            json: false,
            styled: false,
        };
        assert!(rules(&context, &Classes::default()).unwrap().is_empty());
    }
}
