//! `memtide.service` under Debian's systemd: the package, the unit as it is packed, and the commands that
//! users have.
//!
//! Nothing here is the test's own but what it looks at. systemd starts the service, confines it, watches
//! it and starts it again; a test uses systemctl, journalctl and the program that the package brought.
//! Each test brings the machine to where it begins by itself ([`Unit::at_rest`]), so that any of them may
//! be the first of a boot.

mod endings;
mod package;
mod reload;
mod rights;
mod slices;
mod weights;
mod writes;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::manners::PATIENCE;
use super::packages::DEB;
use super::serve::FOLDER;
use super::{BootClass, Context, Test};
use crate::guest::late::within;
use crate::guest::measure::GOAL;
use crate::guest::pace::Stretch;
use crate::guest::subject::{Victim, census_hot};

const SERVICE: &str = "memtide.service";
const MEMTIDE: &str = "/usr/bin/memtide";
/// Where a drop-in of this boot lies.
const DROP_INS: &str = "/run/systemd/system/memtide.service.d";
/// Between two questions to systemd: each starts a program.
const GLANCE: Duration = Duration::from_millis(100);

pub(super) fn tests() -> Vec<Test> {
    let test = |name: &str, promise| {
        Test::promise(
            format!("systemd/{name}"),
            "cxl",
            BootClass::Systemd,
            promise,
        )
    };
    vec![
        test("install", package::comes),
        test("reload", reload::takes_and_refuses),
        test("watchdog", endings::watchdog),
        test("killed", endings::killed),
        test("rights", rights::as_the_unit_says),
        test("slices", slices::are_classes),
        test("weights", weights::lent),
        test("writes", writes::with_a_right_more),
        test("remove", package::goes),
    ]
}

/// The service as systemctl shows it.
struct Unit;

impl Unit {
    /// The package is there, the configuration is the packaged one, and nothing runs.
    fn at_rest() -> Result<Self> {
        install()?;
        for drop_ins in [DROP_INS, &format!("{FOLDER}/memtide.toml.d")] {
            if Path::new(drop_ins).exists() {
                std::fs::remove_dir_all(drop_ins)?;
            }
        }
        done(&["systemctl", "daemon-reload"])?;
        done(&["systemctl", "stop", SERVICE])?;
        // Only where it failed, and so often that it may not start.
        let _ = output(&["systemctl", "reset-failed", SERVICE])?;
        Ok(Self)
    }

    /// At rest, and then started: systemctl waits until the service says that it is ready.
    fn started() -> Result<Self> {
        let unit = Self::at_rest()?;
        done(&["systemctl", "start", SERVICE])?;
        unit.is("ActiveState", "active")?;
        Ok(unit)
    }

    /// A property, as `systemctl show` prints it.
    fn get(&self, name: &str) -> Result<String> {
        let value = done(&["systemctl", "show", "--value", "--property", name, SERVICE])?;
        Ok(value.trim().to_owned())
    }

    fn is(&self, name: &str, wanted: &str) -> Result<()> {
        let value = self.get(name)?;
        ensure!(value == wanted, "{name} is {value} and not {wanted}");
        Ok(())
    }

    /// Its main process.
    fn pid(&self) -> Result<u32> {
        let pid = self.get("MainPID")?;
        pid.parse().with_context(|| format!("MainPID {pid}"))
    }

    /// Waits until a property has a value that begins with this; the seconds that it took.
    fn until(&self, name: &str, wanted: &str, limit: Duration) -> Result<f64> {
        let stretch = Stretch::begin();
        loop {
            let value = self.get(name)?;
            if value.starts_with(wanted) {
                return Ok(stretch.elapsed().as_secs_f64());
            }
            within(&stretch, limit, || {
                format!("{name} is {value:?} and not {wanted:?}")
            })?;
            std::thread::sleep(GLANCE);
        }
    }

    /// Waits until it is active with another main process than `old`; the seconds that it took.
    fn until_again(&self, old: u32, limit: Duration) -> Result<f64> {
        let stretch = Stretch::begin();
        loop {
            let (state, pid) = (self.get("ActiveState")?, self.pid()?);
            if state == "active" && pid != old && pid != 0 {
                return Ok(stretch.elapsed().as_secs_f64());
            }
            within(&stretch, limit, || {
                format!("{SERVICE} is {state}, process {pid}")
            })?;
            std::thread::sleep(GLANCE);
        }
    }

    /// Waits until the journal has a message of it, or of systemd about it, in these words: what writes
    /// the service's messages does so beside its loop.
    fn journal_has(&self, words: &[&str]) -> Result<()> {
        let unit = format!("--unit={SERVICE}");
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        let stretch = Stretch::begin();
        loop {
            let said = journal(&[&unit])?;
            if said.lines().any(has) {
                return Ok(());
            }
            within(&stretch, PATIENCE, || {
                let last: Vec<&str> = said.lines().rev().take(10).collect();
                format!("no {words:?} in the journal: {last:?}")
            })?;
            std::thread::sleep(GLANCE);
        }
    }
}

/// The messages of entries that the journal has of the service with all these fields.
fn entries(fields: &[&str]) -> Result<String> {
    let unit = format!("_SYSTEMD_UNIT={SERVICE}");
    journal(&[&[&*unit], fields].concat())
}

/// The same, once there is one: moves are told with the next status, once a second.
fn first_entries(fields: &[&str]) -> Result<String> {
    let stretch = Stretch::begin();
    loop {
        let told = entries(fields)?;
        if !told.is_empty() {
            return Ok(told);
        }
        within(&stretch, PATIENCE, || {
            format!("no entry with {fields:?} in the journal")
        })?;
        std::thread::sleep(GLANCE);
    }
}

/// The messages of this boot that the journal has with these arguments.
fn journal(arguments: &[&str]) -> Result<String> {
    done(&["journalctl", "--sync"])?;
    let all = ["--boot", "--output=cat", "--no-pager"];
    done(&[&["journalctl"], arguments, &all].concat())
}

/// What `memtide status --json` prints.
fn standing() -> Result<Value> {
    let text = done(&["memtide", "status", "--json"])?;
    serde_json::from_str(&text).with_context(|| text)
}

/// Installs the package as a user does who has its file; without effect where it is installed.
fn install() -> Result<()> {
    if !Path::new(MEMTIDE).exists() {
        done(&["apt-get", "install", "--yes", DEB])?;
    }
    Ok(())
}

/// Waits until the victim's hot pages are in fast memory; the seconds that it took.
fn until_home(unit: &Unit, victim: &Victim, context: &Context) -> Result<f64> {
    until_home_within(PATIENCE, unit, victim, context)
}

/// The same, with another limit.
fn until_home_within(
    limit: Duration,
    unit: &Unit,
    victim: &Victim,
    context: &Context,
) -> Result<f64> {
    let known = victim.known_pages();
    let stretch = Stretch::begin();
    loop {
        let share = census_hot(&known, &context.dram)?.share();
        if share >= GOAL {
            return Ok(stretch.elapsed().as_secs_f64());
        }
        within(&stretch, limit, || {
            let status = unit.get("StatusText").unwrap_or_default();
            format!(
                "{:.1} % of the hot pages on DRAM and no more ({status})",
                share * 100.0
            )
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What it prints, if it succeeds.
fn done(words: &[&str]) -> Result<String> {
    let output = output(words)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    let words = words.join(" ");
    ensure!(
        output.status.success(),
        "{words}: {}: {said}{errors}",
        output.status
    );
    Ok(said)
}

fn output(words: &[&str]) -> Result<Output> {
    Command::new(words[0])
        .args(&words[1..])
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .with_context(|| words.join(" "))
}
