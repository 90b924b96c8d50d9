//! The end-to-end tests: what there is, and how one is run.
//!
//! The same list is compiled into the host's side, which needs to know how to boot for each test,
//! and into the guest, which runs them. A test belongs to a *boot*: a topology and a [`BootClass`];
//! all tests of one boot run one after another in one guest. A test says how it ended, with a reason
//! whenever it did not pass; an error or a panic is a failure. Only a promise of time is tried again
//! ([`super::late`]).

mod agreement;
mod balance;
mod journal;
mod large;
mod manners;
mod packages;
mod pager;
mod placement;
mod random_programs;
mod respread;
mod run;
mod serve;
mod systemd;
mod terminal;
mod tiering;
mod weights;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;

pub use packages::{DEB, RPM};

use super::init::Reporter;
use super::kernel_log::KernelLog;
use super::late::is_late;
use super::measure::Figures;
use super::pace::Stretch;
use super::patches::Patches;
use super::procfs::dram_nodes;
use crate::fetch::KernelLine;
use crate::report::{Report, Verdict};

/// Settings that hold for a whole boot, because switching them while the machine runs is a test of
/// something else (and once crashed an emulated kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootClass {
    /// No NUMA balancing, no demotion: whoever moves a page is under test.
    Quiet,
    /// The kernel's own tiering: NUMA balancing mode 2, demotion on.
    KernelTiering,
    /// The kernel's own balancing between sockets: NUMA balancing mode 1, on from the boot.
    KernelBalancing,
    /// Quiet, and a machine that memtide was never on: beside it lie packages and what installs them.
    Fresh,
    /// Fresh, and Debian's systemd is process 1.
    Systemd,
}

impl BootClass {
    /// Words for the kernel's command line.
    #[must_use]
    pub fn cmdline(self) -> &'static str {
        match self {
            Self::Quiet | Self::Fresh | Self::Systemd => "numa_balancing=disable",
            Self::KernelTiering => "",
            Self::KernelBalancing => "numa_balancing=enable",
        }
    }

    /// Kernel files to write before the tests.
    #[must_use]
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Quiet | Self::KernelBalancing | Self::Fresh | Self::Systemd => &[],
            Self::KernelTiering => &[
                ("/proc/sys/kernel/numa_balancing", "2"),
                ("/sys/kernel/mm/numa/demotion_enabled", "1"),
            ],
        }
    }

    /// A word for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::KernelTiering => "kernel-tiering",
            Self::KernelBalancing => "kernel-balancing",
            Self::Fresh => "fresh",
            Self::Systemd => "systemd",
        }
    }

    /// Whether the packages lie beside it.
    #[must_use]
    pub fn has_packages(self) -> bool {
        matches!(self, Self::Fresh | Self::Systemd)
    }
}

/// What a test needs beside memory and CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// An ext4 file system on /mnt.
    pub disk: bool,
    /// redis-server.
    pub redis: bool,
    /// Random programs, what compares them, a program that reads, and the preload library.
    pub random_programs: bool,
    /// Gigabytes of memory, and the time to fill them.
    pub gigabytes: bool,
    /// Half an hour.
    pub half_an_hour: bool,
}

/// How often a test is tried whose promise of time was not kept, and nothing else; a failed try is told
/// of, never hidden.
const TRIES: u32 = 3;

/// On which kernels `cargo xtask test` has a test: of the entries that its name begins with, the longest
/// says so, and without an entry it is both. `cargo xtask guest` has everything on both.
///
/// On one: what our programs do by themselves, whichever kernel is below. On both: what kernels do
/// differently, which are sources, moves, ways to unmap, weights and policies.
pub(crate) const KERNELS: [(&str, &[KernelLine]); 44] = [
    ("victim/", NEW),
    ("tiering/four-threads/", NEW),
    ("tiering/hot-set-changes/", NEW),
    ("tiering/redis/", NEW),
    ("tiering/touched-once-in-20-s/", NEW),
    ("tiering/overcommit-contiguous/", OLD),
    ("tiering/overcommit-scattered/", NEW),
    ("manners/", NEW),
    ("manners/bound/", BOTH),
    ("manners/demote-idle", OLD),
    ("manners/doctor", BOTH),
    ("manners/doctor/interrupted", NEW),
    ("manners/idle/settled", OLD),
    ("manners/other-damon-user", BOTH),
    ("manners/rate-limit", OLD),
    ("manners/sources/", BOTH),
    ("serve/", NEW),
    ("serve/container", OLD),
    ("serve/share-low", OLD),
    ("run/", NEW),
    ("run/balancing", BOTH),
    ("run/before-6.9", BOTH),
    ("run/policies", BOTH),
    ("run/weighted-interleave", BOTH),
    ("respread/", OLD),
    ("respread/as-the-kernel", BOTH),
    ("respread/huge", BOTH),
    ("weights/", NEW),
    ("weights/kernels-rule", BOTH),
    ("pager/local/", NEW),
    ("pager/local/two-nodes", BOTH),
    ("terminal/", NEW),
    ("journal/tier", OLD),
    ("journal/balance", NEW),
    ("balance/", NEW),
    ("balance/bound", BOTH),
    ("balance/churn", OLD),
    ("balance/cpu-limit", NEITHER),
    ("balance/cpu-offline", OLD),
    ("balance/read-only", BOTH),
    ("balance/tasks/killed", OLD),
    ("balance/two-sets/", BOTH),
    ("packages/", OLD),
    ("systemd/", OLD),
];

const OLD: &[KernelLine] = &[KernelLine::V6_12];
const NEW: &[KernelLine] = &[KernelLine::V7_2];
/// A minute, for what the loop decides: its own tests hold the same in virtual time.
const NEITHER: &[KernelLine] = &[];
const BOTH: &[KernelLine] = &KernelLine::ALL;

type RunTest = Box<dyn Fn(&mut Context) -> Result<Verdict> + Send + Sync>;

/// One end-to-end test.
pub struct Test {
    /// Unique, by parts separated with `/`.
    pub name: String,
    /// A topology's name.
    pub topology: &'static str,
    /// The boot's settings.
    pub class: BootClass,
    /// What else must be there.
    pub needs: Needs,
    /// Not part of a run of everything: only if its group, the first part of its name, is asked for.
    pub on_request: bool,
    run: RunTest,
}

impl Test {
    /// One that passes if `promise` is kept, and needs nothing in particular.
    fn promise(
        name: String,
        topology: &'static str,
        class: BootClass,
        promise: fn(&mut Context) -> Result<()>,
    ) -> Test {
        Test {
            name,
            topology,
            class,
            needs: Needs::default(),
            on_request: false,
            run: Box::new(move |context| promise(context).map(|()| Verdict::Passed)),
        }
    }

    /// Whether a run of the tests whose names contain `filter` has it.
    #[must_use]
    pub fn is_asked_for(&self, filter: &str) -> bool {
        let group = self.name.split('/').next().unwrap_or_default();
        self.name.contains(filter) && (!self.on_request || filter.starts_with(group))
    }

    /// The kernels on which `cargo xtask test` has it.
    pub(crate) fn kernels(&self) -> &'static [KernelLine] {
        let of_it = KERNELS
            .iter()
            .filter(|(name, _)| self.name.starts_with(name));
        of_it
            .max_by_key(|(name, _)| name.len())
            .map_or(BOTH, |(_, kernels)| kernels)
    }

    /// Whether `cargo xtask test` has it on this kernel.
    #[must_use]
    pub fn is_in_a_run_of_everything(&self, kernel: KernelLine) -> bool {
        self.is_asked_for("") && self.kernels().contains(&kernel)
    }
}

impl std::fmt::Debug for Test {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Test")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Every test, in the order in which those of one boot run.
#[must_use]
pub fn all() -> Vec<Test> {
    let mut tests = placement::tests();
    tests.extend(tiering::tests());
    tests.extend(manners::tests());
    tests.extend(serve::tests());
    tests.extend(run::tests());
    tests.extend(respread::tests());
    tests.extend(weights::tests());
    tests.extend(pager::tests());
    tests.extend(random_programs::tests());
    tests.extend(balance::tests());
    tests.extend(journal::tests());
    tests.extend(terminal::tests());
    tests.extend(agreement::tests());
    tests.extend(large::tests());
    tests.extend(packages::tests());
    tests.extend(systemd::tests());
    tests
}

/// What a running test may use.
#[derive(Debug)]
pub struct Context {
    /// The test's name.
    pub name: String,
    /// Nodes with CPUs.
    pub dram: Vec<u32>,
    /// What tests of this boot measured for later ones, by name.
    measured: BTreeMap<String, Figures>,
    reporter: Reporter,
}

impl Context {
    /// Tells people something.
    ///
    /// # Errors
    /// When the host is gone.
    pub fn note(&mut self, text: String) -> Result<()> {
        self.reporter.send(&Report::Note {
            text: format!("{}: {text}", self.name),
        })
    }

    /// Adds a row to `table`.
    ///
    /// # Errors
    /// When the host is gone.
    pub fn row(&mut self, table: &str, cells: Vec<(String, String)>) -> Result<()> {
        self.reporter.send(&Report::Row {
            table: table.to_owned(),
            cells,
        })
    }
}

/// Runs the named tests one after another and reports each, with what was patched meanwhile if that
/// is traced.
///
/// # Errors
/// When the host is gone or a name is unknown.
pub fn run_all(
    names: &[String],
    reporter: Reporter,
    patches: Option<&Patches>,
) -> Result<Reporter> {
    let tests = all();
    let boot = Stretch::begin();
    let mut context = Context {
        name: String::new(),
        dram: dram_nodes()?,
        measured: BTreeMap::new(),
        reporter,
    };
    for name in names {
        let Some(test) = tests.iter().find(|test| test.name == *name) else {
            anyhow::bail!("no test {name}");
        };
        context.name.clone_from(name);
        context
            .reporter
            .send(&Report::Started { test: name.clone() })?;
        let began = Instant::now();
        let mut log = KernelLog::from_now_on();
        let (mut verdict, mut late) = run_once(test, &mut context);
        for turn in 1..TRIES {
            let Verdict::Failed(why) = &verdict else {
                break;
            };
            if !late {
                break;
            }
            context.reporter.send(&Report::Late {
                test: name.clone(),
                told: format!("try {turn} of {TRIES}: {why}"),
            })?;
            put_back(test, &mut context)?;
            (verdict, late) = run_once(test, &mut context);
        }
        if let Verdict::Failed(why) = &mut verdict {
            if let Some(said) = log.said() {
                why.push_str(&format!(" (the kernel said: {said})"));
            }
            // The next test is not to fail for it.
            put_back(test, &mut context)?;
        }
        for line in patches.map_or(Ok(Vec::new()), Patches::since)? {
            context.note(line)?;
        }
        context.reporter.send(&Report::Verdict {
            test: name.clone(),
            verdict,
            seconds: began.elapsed().as_secs_f64(),
        })?;
    }
    context.name = "slowness".to_owned();
    context.note(format!("{:.2} over this boot's tests", boot.slowness()))?;
    Ok(context.reporter)
}

/// Puts back what a try left that failed, whose memtide was killed: the next one compares the end with what
/// it finds. How that went is told and not judged.
fn put_back(test: &Test, context: &mut Context) -> Result<()> {
    let output = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).output()
    };
    if test.class == BootClass::Systemd {
        // It may not be installed.
        let _ = output(&["systemctl", "stop", "memtide.service"]);
    }
    let words = ["memtide", "doctor", "--restore"];
    let told = match output(&words) {
        Ok(output) => [output.stdout, output.stderr].concat(),
        Err(error) => error.to_string().into_bytes(),
    };
    let told = String::from_utf8_lossy(&told).into_owned();
    context.note(format!("{}: {}", words.join(" "), told.trim()))
}

/// The verdict, and whether what failed is a promise of time.
fn run_once(test: &Test, context: &mut Context) -> (Verdict, bool) {
    let run = std::panic::AssertUnwindSafe(|| (test.run)(context));
    match std::panic::catch_unwind(run) {
        Ok(Ok(verdict)) => (verdict, false),
        Ok(Err(error)) => (Verdict::Failed(format!("{error:#}")), is_late(&error)),
        Err(panic) => {
            let text = format!("panic: {}", panic_text(&*panic));
            (Verdict::Failed(text), false)
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a text")
}

#[cfg(test)]
mod list {
    use super::*;

    #[test]
    fn names_are_unique_and_topologies_exist() {
        let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap();
        let topologies = crate::topology::Topology::names(workspace);
        let mut names = std::collections::BTreeSet::new();
        for (name, _) in KERNELS {
            let named = |test: &Test| test.name.starts_with(name);
            assert!(all().iter().any(named), "{name}");
        }
        for test in all() {
            assert!(
                topologies.iter().any(|name| name == test.topology),
                "{test:?}"
            );
            assert!(names.insert(test.name.clone()), "{test:?}");
        }
    }
}
