//! Whether a configuration fits this machine, and where it says what does not.
//!
//! What the files say by themselves was checked when they were read. Here are the nodes, the groups, the
//! users and the folders that they name. An error begins with the place of the value that is wrong.

use crate::shared::configuration::Configuration;
use crate::shared::context::Context;
use crate::shared::control;
use crate::shared::metrics::Names;
use crate::shared::nodes::Known;
use crate::shared::outside::{self, causes};
use crate::shared::tiering;
use crate::shared::users;
use anyhow::{Context as _, bail};
use memtide_core::topology::Topology;
use memtide_loop::options::{AnyOf, User, fast_bytes};
use std::collections::BTreeMap;
use std::path::Path;

/// Where a file sets `key`, as the beginning of a sentence; empty if none does.
pub fn at(configuration: &Configuration, table: &str, key: &str) -> String {
    let place = configuration.place(table, key);
    place.map_or(String::new(), |place| format!("{place}: "))
}

/// How the places of metrics are called.
pub fn names(configuration: &Configuration) -> Names {
    let name = |key| format!("{}{key}", at(configuration, "metrics", key));
    Names {
        address: name("listen"),
        socket: name("socket"),
        file: name("file"),
    }
}

/// The machine's nodes, in the tiers that the configuration gives, or else in its own.
pub fn nodes(context: &Context, configuration: &Configuration) -> anyhow::Result<Topology> {
    let at = at(configuration, "tier", "tiers");
    tiering::nodes(context, &configuration.settings.tier, &at)
}

/// Whether the machine has the group that may ask.
pub fn group_is_there(context: &Context, configuration: &Configuration) -> anyhow::Result<()> {
    let checked = control::check(&configuration.settings.control, &context.root);
    checked.map_err(|error| {
        let at = at(configuration, "control", "group");
        anyhow::anyhow!("{at}{}", causes(&error))
    })
}

/// Whether metrics can be where they are wanted. At a start the attempt says it.
pub fn folders_are_there(context: &Context, configuration: &Configuration) -> anyhow::Result<()> {
    let names = names(configuration);
    let metrics = &configuration.settings.metrics;
    for (name, path) in [(names.socket, &metrics.socket), (names.file, &metrics.file)] {
        if let Some(folder) = path.as_deref().and_then(Path::parent)
            && !context.root.path(folder).is_dir()
        {
            let folder = outside::path(folder);
            bail!("{name}: {folder} is no directory; make it, or name another one");
        }
    }
    Ok(())
}

/// The nodes that pages can go to.
fn with_memory(nodes: &Topology) -> Known {
    let ids = |memory: bool| {
        let nodes = nodes.nodes().iter();
        let nodes = nodes.filter(move |node| !memory || node.has_memory());
        nodes.map(|node| u32::from(node.id.0)).collect()
    };
    Known {
        what: "node",
        exist: ids(false),
        serve: ids(true),
        having: "memory",
        allowed: ids(false),
    }
}

/// Whether the shares and weights of classes are ones that this machine can give.
pub fn fits(
    context: &Context,
    configuration: &Configuration,
    nodes: &Topology,
) -> anyhow::Result<()> {
    if configuration.settings.class.is_empty() {
        return Ok(());
    }
    let classes = &configuration.settings.class;
    let of_cgroups =
        (classes.values()).any(|class| class.cgroups().is_some() || class.unit.is_some());
    if of_cgroups && memtide_linux::fs::cgroup::mount(&context.root)?.is_none() {
        bail!(
            "classes of cgroups and units need cgroups, and no cgroup2 file system is mounted; mount one"
        );
    }
    for (name, class) in classes {
        let weights = class
            .weights
            .iter()
            .flat_map(|weights| weights.by_node().keys());
        for node in weights {
            let at = match configuration.class_place(name, "weights") {
                Some(place) => format!("{place}: weights"),
                None => format!("class {name}: weights"),
            };
            let known = with_memory(nodes);
            let known = known.check(u32::from(node.0));
            known.map_err(|why| anyhow::anyhow!("{at}: {why}"))?;
        }
    }
    let at = |name: &str| match configuration.class_place(name, "user") {
        Some(place) => format!("{place}: user"),
        None => format!("class {name}"),
    };
    let mut numbers = BTreeMap::new();
    for (name, class) in classes {
        for user in class.user.iter().flat_map(AnyOf::all) {
            let number = users::number(&context.root, user).with_context(|| at(name))?;
            numbers.insert(user.text(), number);
        }
    }
    // Two names may be those of one user.
    let number = |user: &User| numbers.get(user.text()).copied();
    for (n, (name, class)) in classes.iter().enumerate() {
        for (other, before) in classes.iter().take(n) {
            if class.may_tie_where(before, number) {
                let place = configuration.class_place(name, "user");
                let place = place.map_or(String::new(), |place| format!("{place}: "));
                bail!(
                    "{place}class {name}: a process may fit this class and {other} equally well, for users of both have one number; give one of both a higher priority"
                );
            }
        }
    }
    configuration.fits(fast_bytes(nodes))
}
