//! `memtide serve` as a service manager has it, with the rights that the unit leaves it and no others.
//!
//! The manager is the test: it listens on a socket of its own and sends the signals. What systemd makes
//! of the unit is tried in [`super::systemd`].

mod balance;
mod container;
mod kills;
mod kills_at_writes;
mod late_node;
mod pods;
mod reloads;
pub(super) mod shares;
mod slices;
mod socket;
pub(super) mod weights;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use super::manners::group::Group;
use super::manners::settings::Settings;
use super::manners::{PATIENCE, SMALL, until_home};
use super::{BootClass, Context, Needs, Test};
use crate::guest::contain::capabilities;
use crate::guest::late::within;
use crate::guest::memtide::{Line, Memtide};
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;

const UNIT: &str = include_str!("../../../../../packaging/memtide.service");
pub(super) const FOLDER: &str = "/etc/memtide";
const MAIN: &str = "/etc/memtide/memtide.toml";
pub(super) const DROP_IN: &str = "/etc/memtide/memtide.toml.d/10-test.toml";
const SOCKET: &str = "/service-manager";
const METRICS: &str = "/memtide-serve.prom";
/// Short enough that a ping comes every half second.
const WATCHDOG_USEC: &str = "2000000";

pub(super) fn tests() -> Vec<Test> {
    let test = |name: &str, topology, promise| {
        Test::promise(name.to_owned(), topology, BootClass::Quiet, promise)
    };
    let needs = Needs {
        redis: true,
        ..Needs::default()
    };
    let three_slices = test("serve/three-slices", "small-dram", slices::three);
    // A quarter of an hour each.
    let many = [
        test("reloads/10000", "cxl", reloads::many),
        test("kills/1000", "cxl", kills::many),
        test("pods/1000", "cxl", pods::thousand),
        test("kills-at-writes/all", "cxl", kills_at_writes::all),
        test(
            "kills-at-writes/balancing",
            "two-socket",
            kills_at_writes::all_of_balancing,
        ),
    ];
    let many = many.map(|test| Test {
        on_request: true,
        needs: Needs {
            half_an_hour: true,
            ..Needs::default()
        },
        ..test
    });
    let mut tests = vec![
        test("serve/reload", "cxl", reload),
        test("serve/reloads", "cxl", reloads::some),
        test("serve/kills", "cxl", kills::some),
        test("serve/kills-at-writes", "cxl", kills_at_writes::some),
        test("serve/container", "cxl", container::comes_home),
        test("serve/late-node", "late-node", late_node::serve),
        test("serve/late-node-tier", "late-node", late_node::tier),
        test("serve/balance", "cxl", balance::beside_tiering),
        test("serve/balance-alone", "two-socket", balance::alone),
        test("serve/weights", "cxl", weights::spread),
        test("serve/weights-table", "cxl", weights::lent),
        test("serve/share-high", "small-dram", shares::high),
        test("serve/share-low", "small-dram", shares::low),
        test("serve/share-nested", "small-dram", shares::nested),
        Test {
            needs,
            ..three_slices
        },
    ];
    tests.extend(many);
    tests
}

/// Pages come home, before a reload and after it; a configuration that is wrong changes nothing; and at
/// the end everything is as before.
fn reload(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let _ = std::fs::remove_file(METRICS);
    let before = Settings::now();
    let dram = context.dram.clone();
    let group = Group::create()?;
    let mut victim = Victim::start(SMALL, 1)?;
    victim
        .pids()
        .iter()
        .try_for_each(|&pid| group.take_in(pid))?;
    select(&group)?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    until_home(&mut service, &victim.known_pages(), &dram, PATIENCE)?;
    manager.wait_for("STATUS=tiering 1 processes: ", 1)?;
    socket::asked(&group, victim.pids()[0])?;

    put(DROP_IN, "[tier]\nwindow = 6\n")?;
    service.signal(Signal::HUP)?;
    let place = format!("{DROP_IN}:2:10: window: not a time");
    says(&mut service, "the old configuration is in force", &place)?;
    manager.wait_for("READY=1", 2)?;
    socket::remembers(&place)?;

    // Right by itself, but not on this machine.
    put(DROP_IN, "[tier]\ntiers = \"0/7\"\n")?;
    socket::refuses("node 7 is in a tier")?;
    says(
        &mut service,
        "the old configuration is in force",
        "node 7 is in a tier",
    )?;
    manager.wait_for("READY=1", 3)?;

    put(DROP_IN, &format!("[metrics]\nfile = {METRICS:?}\n"))?;
    service.signal(Signal::HUP)?;
    says(&mut service, "reload: metrics.file was nothing", DROP_IN)?;
    manager.wait_for("READY=1", 4)?;
    ensure!(Path::new(METRICS).exists(), "no {METRICS} after the reload");

    // Another run, which has to find the pages that are in use by itself.
    victim.change_hot_set()?;
    put(DROP_IN, "[tier]\nwindow = \"6s\"\n")?;
    socket::takes("tier.window was \"5s\", is \"6s\"")?;
    says(&mut service, "tier.window was \"5s\", is \"6s\"", DROP_IN)?;
    manager.wait_for("READY=1", 5)?;
    until_home(&mut service, &victim.known_pages(), &dram, PATIENCE)?;

    let ended = service.end(Signal::TERM)?;
    let lines = ended.clean()?;
    manager.wait_for("STOPPING=1", 1)?;
    socket::is_gone()?;
    let summaries = lines.iter().filter(|line| matches!(line, Line::Summary(_)));
    let summaries = summaries.count();
    ensure!(summaries == 2, "{summaries} summaries of two runs");
    before.check_unchanged()?;
    let count = |start: &str| manager.count(start);
    let reloads = count("RELOADING=1\nMONOTONIC_USEC=");
    ensure!(reloads == 4, "{reloads} reloads announced, and 4 asked for");
    let pings = count("WATCHDOG=1");
    ensure!(pings > 5, "{pings} pings to the watchdog");
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(METRICS)?;
    std::fs::remove_file(SOCKET)?;
    drop(victim);
    drop(group);
    context.note(format!("{reloads} reloads, {pings} pings"))
}

/// Has the service manage the processes of a group, and nobody else.
fn select(group: &Group) -> Result<()> {
    let group = group.path().display();
    put(MAIN, &format!("[select]\ncgroup = {group:?}\n"))
}

/// Writes a file that root alone may change.
pub(super) fn put(path: &str, text: &str) -> Result<()> {
    let mode = std::fs::Permissions::from_mode;
    let path = Path::new(path);
    let folder = path.parent().context("a file is in a folder")?;
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, mode(0o755))?;
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(path, mode(0o644))?;
    Ok(())
}

/// The rights that the unit leaves.
pub(super) fn bounding_set() -> Result<CapabilitySet> {
    let lines = UNIT.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_"));
    let set = capabilities(lines)?;
    ensure!(!set.is_empty(), "the unit names no capability");
    Ok(set)
}

/// Starts the service.
fn start() -> Result<Memtide> {
    serve(Command::new("memtide"))
}

/// Starts the service by `command`, which lacks the words for memtide; the rights go with the thread that
/// starts it. It may lock memory for perf's rings, as the unit lets it.
fn serve(command: Command) -> Result<Memtide> {
    ensure!(
        UNIT.contains("\nLimitMEMLOCK=infinity\n"),
        "the unit has a limit"
    );
    let usual = getrlimit(Resource::Memlock);
    let none = Rlimit {
        current: None,
        maximum: None,
    };
    setrlimit(Resource::Memlock, none)?;
    let started = start_with_rights(command);
    setrlimit(Resource::Memlock, usual)?;
    started
}

fn start_with_rights(mut command: Command) -> Result<Memtide> {
    let keeps = bounding_set()?;
    let thread = std::thread::spawn(move || {
        for capability in CapabilitySet::all().difference(keeps).iter() {
            // The kernel may be older than the name of a right.
            let _ = remove_capability_from_bounding_set(capability);
        }
        command
            .args(["serve", "--json"])
            .env("NOTIFY_SOCKET", SOCKET)
            .env("WATCHDOG_USEC", WATCHDOG_USEC);
        Memtide::spawn(command)
    });
    let started = thread.join();
    started.map_err(|_| anyhow::anyhow!("the thread that starts it"))?
}

/// Waits for a notice with both of these.
fn says(service: &mut Memtide, one: &str, other: &str) -> Result<()> {
    service.wait_for(
        one,
        PATIENCE,
        |line| matches!(line, Line::Notice { text } if text.contains(one) && text.contains(other)),
    )
}

/// What listens where the service reports.
struct Manager(Arc<Mutex<Vec<String>>>);

impl Manager {
    fn listen() -> Result<Self> {
        // A try that failed leaves its own.
        let _ = std::fs::remove_file(SOCKET);
        let socket = UnixDatagram::bind(SOCKET).context(SOCKET)?;
        let messages = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&messages);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length) = socket.recv(&mut bytes) {
                let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
                sink.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(message);
            }
        });
        Ok(Self(messages))
    }

    /// Messages that begin so.
    fn count(&self, start: &str) -> usize {
        let messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let like = messages.iter().filter(|message| message.starts_with(start));
        like.count()
    }

    fn wait_for(&self, start: &str, times: usize) -> Result<()> {
        let stretch = Stretch::begin();
        while self.count(start) < times {
            within(&stretch, PATIENCE, || {
                format!("{start:?} came {} times and not {times}", self.count(start))
            })?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

#[cfg(test)]
mod units {
    use super::*;

    #[test]
    fn the_unit_names_rights_that_there_are() {
        let set = bounding_set().unwrap();
        assert_eq!(set.iter().count(), 5);
        assert!(set.contains(CapabilitySet::SYS_NICE | CapabilitySet::SYS_ADMIN));
    }
}
