//! Who is told how the run goes on: the service manager, and who asks at the socket.

use super::manager::Manager;
use crate::shared::balancing::Balancing;
use crate::shared::control::Control;
use crate::shared::control::interface::{self, Granted, Wish};
use crate::shared::control::standing::{Process, Setup, Standing};
use crate::shared::control::varlink::{Parameters, Reply};
use crate::shared::metrics::Metrics;
use crate::shared::nodes_watch::NodesWatch;
use crate::shared::pagers::Pagers;
use crate::shared::report::Printer;
use crate::shared::spreading::Spreading;
use crate::shared::tiering::{Watch, print};
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_loop::World;
use memtide_loop::report::Status;
use memtide_loop::tier::Tierer;
use std::sync::atomic::AtomicBool;

/// Does what a client wishes.
fn grant(
    wish: Wish,
    tierer: &mut Tierer,
    world: &mut dyn World,
    (balancing, spreading): (&Balancing, &Spreading),
    page: PageSize,
) -> Granted {
    let (key, value) = match wish {
        Wish::Pause { class, paused } => match tierer.pause(world, &class, paused) {
            Some(changed) => {
                balancing.pause(&class, paused);
                spreading.pause(&class, paused);
                ("changed", changed.into())
            }
            None => return Err(Reply::wrong(interface::NO_CLASS, "class", &class)),
        },
        Wish::Processes { order, most } => {
            let standing = tierer.processes(order, most);
            let standing = standing.iter().map(|one| Process::of(one, page));
            let standing = serde_json::to_value(standing.collect::<Vec<_>>());
            ("processes", standing.unwrap_or_default())
        }
        Wish::Explain { pid, address } => match tierer.page(world, pid, address) {
            Ok(page) => ("page", serde_json::to_value(page).unwrap_or_default()),
            Err(why) => return Err(Reply::wrong(interface::UNKNOWN, "reason", &why)),
        },
    };
    Ok(Parameters::from_iter([(key.to_owned(), value)]))
}

/// They, and what they are told beside the status.
pub struct Watchers<'a> {
    pub manager: &'a Manager,
    pub control: &'a Control,
    pub metrics: &'a Metrics,
    pub balancing: &'a Balancing,
    pub spreading: &'a Spreading,
    pub pagers: &'a Pagers,
    /// What the kernel's interleave weights are for the service, if it has them.
    pub table: Option<String>,
    pub setup: Setup,
    /// Why nobody is tiered, if so.
    pub rests: Option<&'a str>,
    pub nodes: Topology,
    /// Since the configuration was looked at last.
    pub nodes_watch: &'a NodesWatch<'a>,
    /// Where a reload is wished for.
    pub reload: &'a AtomicBool,
    pub page: PageSize,
}

impl Watchers<'_> {
    /// Leaves the status for who asks at the socket.
    pub fn tell_control(&self, status: &Status) {
        let standing = || {
            let mut standing = Standing::of(status, self.page, &self.setup, &self.nodes);
            standing.rests = self.rests.map(str::to_owned);
            self.balancing.complete(&mut standing, self.page);
            let table = self.table.clone();
            self.spreading.complete(&mut standing, table, self.page);
            self.pagers.complete(&mut standing, self.page);
            standing
        };
        self.control.tell(standing);
    }
}

impl Watch for Watchers<'_> {
    fn asked(&self, tierer: &mut Tierer, world: &mut dyn World) {
        let (page, beside) = (self.page, (self.balancing, self.spreading));
        (self.control).grant(|wish| grant(wish, tierer, world, beside, page));
    }

    fn tells(&self, printer: &mut Printer) {
        self.balancing.tells(printer, self.metrics);
        self.spreading.tells(printer, self.metrics);
        self.pagers.tells(printer, self.metrics);
    }

    fn turned(&self) {
        self.manager.turned();
    }

    fn stands(&self, status: &Status, printer: &Printer) {
        // A reload says what is to be done with others.
        self.nodes_watch.tell(self.reload);
        self.tell_control(status);
        let told = || {
            let tiering = match self.rests {
                Some(why) => format!("nothing is tiered: {why}"),
                None => print::short(printer, status),
            };
            let beside = [self.balancing.short(printer), self.spreading.short(printer)];
            let all: Vec<String> = [Some(tiering)]
                .into_iter()
                .chain(beside)
                .flatten()
                .collect();
            all.join("; ")
        };
        self.manager.stands(told);
    }
}
