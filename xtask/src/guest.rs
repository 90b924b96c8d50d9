//! The end-to-end tests in guests: one boot per kernel, topology and settings.
//!
//! One boot if nothing goes wrong: when a guest dies, what it has reported stays, and another boot
//! runs the rest, under the rule of [`testbed::suite::series`]. Every death is told where it happens
//! and once more at the end, and the console's log of each boot is kept.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testbed::fetch::{Cache, KernelLine, Program};
use testbed::guest::tests::{BootClass, DEB, RPM, Test, all};
use testbed::image::Contents;
use testbed::kernel::Kernel;
use testbed::lab::{GuestPrograms, Workspace};
use testbed::machine::{Boot, Ending, Event, Limits, Outcome, make_disk, run as boot};
use testbed::report::{Job, Report, Verdict, Work};
use testbed::suite::series::{Death, Series};
use testbed::suite::{
    PlannedBoot, Results, Row, Summary, format_table, plan, plan_everything, plan_of,
};
use testbed::topology::Topology;

use crate::dist::{Packages, packages_for_a_trial};
use crate::random_programs::{Built, preload_library};

/// Modules for a disk with ext4, which asks for its checksum by name and not as a dependency.
const DISK_MODULES: [&str; 3] = ["crc32c_generic", "virtio_blk", "ext4"];
/// Room for the victim's file and the file system's own.
const DISK_MIB: u64 = 400;
/// A guest that reports nothing for so long hangs: the longest wait is 128 quiet seconds, and machines may be three
/// times as slow as a quiet one.
const SILENCE: Duration = Duration::from_secs(400);
/// What a boot may take in all, beside one [`SILENCE`]: each test's share.
const PER_TEST: Duration = Duration::from_secs(90);
/// The same of tests that fill gigabytes.
const PER_LONG_TEST: Duration = Duration::from_secs(240);
const HALF_AN_HOUR: Duration = Duration::from_secs(1800);
/// How much of a dead guest's console is printed.
const CONSOLE_LINES: usize = 40;

/// Under half a minute of a guest's.
const RANDOM_PROGRAMS: u32 = 8;
/// What each of them may take beside [`PER_TEST`].
const PER_PROGRAM: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only this kernel: 6.12 or 7.2
    #[arg(long)]
    kernel: Option<KernelLine>,
    /// Only tests whose name contains this
    #[arg(long, default_value = "")]
    test: String,
    /// List the tests and how they share boots
    #[arg(long)]
    list: bool,
    /// Boot this kernel image instead of a distribution's
    #[arg(
        long,
        value_name = "PATH",
        requires = "modules",
        conflicts_with = "kernel"
    )]
    kernel_image: Option<PathBuf>,
    /// The folder of that kernel's modules (lib/modules/RELEASE, or an empty folder if all is built in)
    #[arg(long, value_name = "PATH")]
    modules: Option<PathBuf>,
    /// Tell after each test what the kernel patched in its own code, and who asked for it
    #[arg(long)]
    trace_patches: bool,
    /// How many random programs each kernel runs with the preloaded pager and without it
    #[arg(long, value_name = "PROGRAMS", default_value_t = RANDOM_PROGRAMS)]
    random_programs: u32,
    /// Use the guest's programs as last built
    #[arg(long)]
    no_build: bool,
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    let tests = all();
    if arguments.list {
        let named = |test: &&Test| test.name.contains(&arguments.test);
        for boot in plan_of(tests.iter().filter(named)) {
            println!("boot {} {}", boot.topology, boot.class.name());
            for name in &boot.tests {
                let asked = |test: &Test| test.name == *name && test.is_asked_for(&arguments.test);
                let when = match tests.iter().any(asked) {
                    true => "",
                    false => " (only if its group is asked for)",
                };
                println!("  {name}{when}");
            }
        }
        return Ok(0);
    }
    let boots = plan(&tests, &arguments.test);
    ensure!(
        !boots.is_empty(),
        "no test's name contains {:?}; see guest --list",
        arguments.test
    );
    let summary = run_boots(arguments, None, |_| boots.clone())?;
    println!("{summary}");
    Ok(i32::from(summary.tally.failed > 0))
}

/// All tests, for `cargo xtask test`: on both kernels, except those that tell the same on either.
///
/// No guest begins after `until`: who runs this may have a limit of its own, and a run that is cut off
/// tells nothing. What is left out is named and counted.
pub fn run_everything(until: Option<Instant>) -> Result<Summary> {
    let arguments = Arguments {
        kernel: None,
        test: String::new(),
        list: false,
        kernel_image: None,
        modules: None,
        trace_patches: false,
        random_programs: RANDOM_PROGRAMS,
        no_build: false,
    };
    let tests = all();
    run_boots(&arguments, until, |kernel| {
        let line = KernelLine::ALL
            .into_iter()
            .find(|line| line.name() == kernel.name);
        line.map_or_else(|| plan(&tests, ""), |line| plan_everything(&tests, line))
    })
}

/// Boots each kernel for what is planned on it.
fn run_boots(
    arguments: &Arguments,
    until: Option<Instant>,
    planned_on: impl Fn(&Kernel) -> Vec<PlannedBoot>,
) -> Result<Summary> {
    let workspace = Workspace::find()?;
    let cache = Cache::open()?;
    let programs = if arguments.no_build {
        workspace.built_guest_programs()?
    } else {
        eprintln!("guest: building the guest's programs");
        workspace.build_guest_programs()?
    };
    let kernels: Vec<Kernel> = match (&arguments.kernel_image, &arguments.modules) {
        (Some(image), Some(modules)) => vec![Kernel::own(image.clone(), modules.clone())],
        _ => KernelLine::ALL
            .into_iter()
            .filter(|line| arguments.kernel.is_none_or(|only| only == *line))
            .map(|line| Kernel::fetched(&cache, line))
            .collect::<Result<_>>()?,
    };
    let boots: Vec<Vec<PlannedBoot>> = kernels.iter().map(planned_on).collect();
    let any = |asked: fn(&PlannedBoot) -> bool| boots.iter().flatten().any(asked);
    let packages = match any(|boot| boot.class.has_packages()) {
        true => Some(pack(&workspace, &programs)?),
        false => None,
    };
    let bench = Bench {
        cache,
        packages,
        programs,
        trace_patches: arguments.trace_patches,
        random_programs: arguments.random_programs,
        random_files: match any(|boot| boot.needs.random_programs) {
            true => Built::new(&workspace, true)?.files(),
            false => Vec::new(),
        },
        workspace,
    };
    let mut summary = Summary::default();
    let mut tables: Vec<(String, Vec<Row>)> = Vec::new();
    for (kernel, boots) in kernels.iter().zip(&boots) {
        let mut rows = std::collections::BTreeMap::new();
        for planned in boots {
            if until.is_some_and(|until| Instant::now() > until) {
                leave_out(kernel, planned, &mut summary);
                continue;
            }
            let results = bench.run(kernel, planned, &mut summary)?;
            for (table, more) in results.rows {
                rows.entry(table).or_insert_with(Vec::new).extend(more);
            }
        }
        tables.extend(
            rows.into_iter()
                .map(|(name, rows)| (format!("{name} on {}", kernel.name), rows)),
        );
    }
    for (name, rows) in &tables {
        println!("\n{name}\n{}", format_table(rows));
    }
    Ok(summary)
}

/// Says that there was no time for a boot.
fn leave_out(kernel: &Kernel, planned: &PlannedBoot, summary: &mut Summary) {
    for test in &planned.tests {
        let verdict = Verdict::Skipped("no time was left to begin its guest".to_owned());
        println!("  {} {test}: {}", kernel.name, words(&verdict));
        summary.count(test.clone(), &verdict);
    }
}

/// The packages of these programs.
pub fn pack(workspace: &Workspace, programs: &GuestPrograms) -> Result<Packages> {
    eprintln!("guest: packing");
    let library = preload_library(workspace, true)?;
    let folder = workspace.root.join("target/guest/packages");
    packages_for_a_trial(&workspace.root, &programs.memtide, &library, &folder)
}

/// What every boot uses.
struct Bench {
    workspace: Workspace,
    cache: Cache,
    programs: GuestPrograms,
    /// For machines that memtide was never on.
    packages: Option<Packages>,
    trace_patches: bool,
    random_programs: u32,
    /// What they need.
    random_files: Vec<PathBuf>,
}

impl Bench {
    /// Boots for `planned` until every test has its verdict; see [`Series`] for when it ends earlier.
    fn run(
        &self,
        kernel: &Kernel,
        planned: &PlannedBoot,
        summary: &mut Summary,
    ) -> Result<Results> {
        let class = planned.class.name();
        let name = format!("{}-{}-{class}", kernel.name, planned.topology);
        let folder = self.workspace.boot_folder(&name)?;
        let mut series = Series::new(&planned.tests);
        let mut number = 0;
        while let Some(tests) = series.next() {
            number += 1;
            println!(
                "boot: Linux {}, {}, {class}: {} tests",
                kernel.name,
                planned.topology,
                tests.len()
            );
            // Each boot has a folder of its own, so that every death's console is kept.
            let folder = folder.join(number.to_string());
            let outcome = self.boot(kernel, planned, tests, &folder, &mut series);
            let ending = match &outcome {
                Ok(outcome) => outcome.ending.clone(),
                Err(error) => Ending::Broken(format!("{error:#}")),
            };
            if let Some((death, cost)) = series.ended(&ending) {
                tell_death(&death, outcome.ok().as_ref());
                if let Some((test, verdict)) = cost {
                    println!("  {test}: {}", words(&verdict));
                }
            }
        }
        let (results, deaths, missing) = series.close();
        for (test, verdict) in missing {
            println!("  {test}: {}", words(&verdict));
        }
        for (test, verdict) in &results.verdicts {
            summary.count(format!("{} {test}", kernel.name), verdict);
        }
        let late = results.late.iter();
        let on_kernel = late.map(|(test, told)| (format!("{} {test}", kernel.name), told.clone()));
        summary.late.extend(on_kernel);
        let place = |death: Death| (format!("{name}, boot {}", death.boot), death);
        summary.deaths.extend(deaths.into_iter().map(place));
        Ok(results)
    }

    /// One boot for `tests`, which are some of the planned ones.
    fn boot(
        &self,
        kernel: &Kernel,
        planned: &PlannedBoot,
        tests: Vec<String>,
        folder: &Path,
        series: &mut Series,
    ) -> Result<Outcome> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let topology = Topology::named(&self.workspace.root, planned.topology)?;
        let per_test = match (planned.needs.half_an_hour, planned.needs.gigabytes) {
            (true, _) => HALF_AN_HOUR,
            (_, true) => PER_LONG_TEST,
            _ => PER_TEST,
        };
        let random = match planned.needs.random_programs {
            true => PER_PROGRAM * self.random_programs,
            false => Duration::ZERO,
        };
        let limits = Limits {
            boot: SILENCE + per_test * tests.len() as u32 + random,
            silence: SILENCE + random,
        };
        let disk = folder.join("disk.img");
        if planned.needs.disk {
            make_disk(&self.cache.mkfs()?, &disk, DISK_MIB)?;
        }
        let initrd = self.initrd(kernel, planned, tests)?;
        let qemu = self.cache.qemu()?;
        let request = Boot {
            qemu: &qemu,
            kernel,
            topology: &topology,
            cmdline: planned.class.cmdline(),
            initrd: &initrd,
            disk: planned.needs.disk.then_some(disk.as_path()),
            folder,
            interactive: false,
            limits,
        };
        let outcome = boot(&request, |event| {
            if let Event::Report(report) = event {
                show(&report);
                series.take(&report);
            }
        });
        let _ = std::fs::remove_file(disk);
        let outcome = outcome?;
        println!("  {:.1} s in all", outcome.elapsed.as_secs_f64());
        Ok(outcome)
    }

    /// The guest's files, with a job for `tests`.
    fn initrd(
        &self,
        kernel: &Kernel,
        planned: &PlannedBoot,
        tests: Vec<String>,
    ) -> Result<Vec<u8>> {
        let busybox = self.cache.busybox()?;
        let (mut placed, mut needing) = (Vec::new(), Vec::new());
        let mut system = None;
        let mut programs = match &self.packages {
            Some(packages) if planned.class == BootClass::Systemd => {
                placed.push((DEB.to_owned(), packages.deb.clone()));
                system = Some(self.cache.debian()?);
                Vec::new()
            }
            Some(packages) if planned.class == BootClass::Fresh => {
                placed = self.cache.rpm_configuration()?;
                placed.push((DEB.to_owned(), packages.deb.clone()));
                placed.push((RPM.to_owned(), packages.rpm.clone()));
                // What every distribution has that the package is for.
                needing.push(packages.library.clone());
                self.cache.package_tools()?
            }
            _ => vec![Program {
                path: self.programs.memtide.clone(),
                root: None,
            }],
        };
        if planned.needs.redis {
            programs.push(self.cache.redis()?);
        }
        let modules = match planned.needs.disk {
            true => kernel.module_closure(&busybox, &DISK_MODULES)?,
            false => Vec::new(),
        };
        let contents = Contents {
            init: self.programs.init.clone(),
            busybox,
            modules,
            programs,
            files: match planned.needs.random_programs {
                true => self.random_files.clone(),
                false => Vec::new(),
            },
            placed,
            needing,
            system,
        };
        let owned = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        let job = Job {
            modules: Vec::new(),
            settings: planned.class.settings().iter().map(owned).collect(),
            trace_patches: self.trace_patches,
            random_programs: self.random_programs,
            work: Work::Tests(tests),
        };
        contents.build(job).context("cannot pack the guest's files")
    }
}

/// Says what a guest died of. The console is printed as well as kept: of a run elsewhere, the output
/// is all that is left.
fn tell_death(death: &Death, outcome: Option<&Outcome>) {
    let during = death.during.as_deref().unwrap_or("no test");
    println!("  GUEST DIED during {during}: {}", death.reason);
    if let Some(outcome) = outcome {
        println!(
            "  last lines of {}:\n{}",
            outcome.console.display(),
            outcome.last_console_lines(CONSOLE_LINES)
        );
    }
}

fn show(report: &Report) {
    match report {
        Report::Ready { release, seconds } => println!("  Linux {release} up after {seconds:.1} s"),
        Report::Note { text } => println!("    {text}"),
        Report::Row { cells, .. } => {
            let cells: Vec<String> = cells
                .iter()
                .skip(1)
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            println!("    {}", cells.join(", "));
        }
        Report::Late { test, told } => println!("    {test}: late, {told}"),
        Report::Verdict {
            test,
            verdict,
            seconds,
        } => {
            println!("  {test}: {} ({seconds:.1} s)", words(verdict));
        }
        Report::Started { .. } | Report::End { .. } => {}
    }
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => "Passed".to_owned(),
        Verdict::Failed(reason) => format!("Failed: {reason}"),
        Verdict::Skipped(reason) => format!("Skipped: {reason}"),
    }
}
