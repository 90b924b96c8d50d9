//! The end-to-end tests in guests: one boot per kernel, topology and settings.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::fetch::{Cache, KernelLine, Program};
use testbed::guest::tests::all;
use testbed::image::Contents;
use testbed::kernel::Kernel;
use testbed::lab::{GuestPrograms, Workspace};
use testbed::machine::{Boot, Ending, Event, Outcome, make_disk, run as boot};
use testbed::report::{Job, Report, Verdict, Work};
use testbed::suite::{PlannedBoot, Results, Row, Tally, format_table, plan};
use testbed::topology::Topology;

/// Modules for a disk with ext4, which asks for its checksum by name and not as a dependency.
const DISK_MODULES: [&str; 3] = ["crc32c_generic", "virtio_blk", "ext4"];
/// Room for the victim's file and the file system's own.
const DISK_MIB: u64 = 400;

#[derive(Debug, Default, clap::Args)]
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
    /// Use the guest's programs as last built
    #[arg(long)]
    no_build: bool,
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    let tests = all();
    let boots = plan(&tests, &arguments.test);
    if arguments.list {
        for boot in &boots {
            println!("boot {} {}", boot.topology, boot.class.name());
            for test in &boot.tests {
                println!("  {test}");
            }
        }
        return Ok(0);
    }
    ensure!(
        !boots.is_empty(),
        "no test's name contains {:?}; see guest --list",
        arguments.test
    );
    let tally = run_boots(arguments, &boots)?;
    println!("{tally}");
    Ok(i32::from(tally.failed > 0))
}

/// All tests on both kernels, for `cargo xtask test`.
pub fn run_everything() -> Result<Tally> {
    run_boots(&Arguments::default(), &plan(&all(), ""))
}

fn run_boots(arguments: &Arguments, boots: &[PlannedBoot]) -> Result<Tally> {
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
    let bench = Bench {
        workspace,
        cache,
        programs,
    };
    let mut tally = Tally::default();
    let mut tables: Vec<(String, Vec<Row>)> = Vec::new();
    for kernel in &kernels {
        let mut rows = std::collections::BTreeMap::new();
        for planned in boots {
            let results = bench.boot_twice_if_patching(kernel, planned)?;
            tally.add(results.tally());
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
    Ok(tally)
}

/// What every boot uses.
struct Bench {
    workspace: Workspace,
    cache: Cache,
    programs: GuestPrograms,
}

impl Bench {
    fn boot_twice_if_patching(&self, kernel: &Kernel, planned: &PlannedBoot) -> Result<Results> {
        let (mut results, outcome) = self.boot(kernel, planned)?;
        if outcome.is_code_patching_oops() {
            println!(
                "  the kernel died patching its own code, as it may under emulation: booting again \
                 (console kept in {})",
                outcome.console.display()
            );
            let (again, outcome) = self.boot(kernel, planned)?;
            results = again;
            self.close(&mut results, planned, &outcome);
        } else {
            self.close(&mut results, planned, &outcome);
        }
        Ok(results)
    }

    fn close(&self, results: &mut Results, planned: &PlannedBoot, outcome: &Outcome) {
        let why = match &outcome.ending {
            Ending::Orderly(_) => "the guest ended".to_owned(),
            Ending::Timeout => format!("the guest hung for {} s", outcome.elapsed.as_secs()),
            Ending::Oops(line) => format!("the kernel died ({line})"),
            Ending::Broken(text) => format!("the machine broke ({text})"),
        };
        let missing = results.close(&planned.tests, &why);
        for (test, verdict) in &missing {
            println!("  {test}: {}", words(verdict));
        }
        if !missing.is_empty() {
            println!(
                "  last lines of {}:\n{}",
                outcome.console.display(),
                outcome.last_console_lines(20)
            );
        }
    }

    fn boot(&self, kernel: &Kernel, planned: &PlannedBoot) -> Result<(Results, Outcome)> {
        let topology = Topology::named(&self.workspace.root, planned.topology)?;
        let busybox = self.cache.busybox()?;
        let name = format!(
            "{}-{}-{}",
            kernel.name,
            planned.topology,
            planned.class.name()
        );
        let folder = self.workspace.boot_folder(&name)?;
        let mut programs = vec![Program {
            path: self.programs.memtide.clone(),
            root: None,
        }];
        if planned.needs.redis {
            programs.push(self.cache.redis()?);
        }
        let disk = folder.join("disk.img");
        let mut modules = Vec::new();
        if planned.needs.disk {
            make_disk(&self.cache.mkfs()?, &disk, DISK_MIB)?;
            modules = kernel.module_closure(&busybox, &DISK_MODULES)?;
        }
        let contents = Contents {
            init: self.programs.init.clone(),
            busybox,
            modules,
            programs,
            files: Vec::new(),
        };
        let owned = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        let job = Job {
            modules: Vec::new(),
            settings: planned.class.settings().iter().map(owned).collect(),
            work: Work::Tests(planned.tests.clone()),
        };
        let initrd = contents
            .build(job)
            .context("cannot pack the guest's files")?;
        let count = planned.tests.len();
        println!(
            "boot: Linux {}, {}, {}: {count} tests",
            kernel.name,
            planned.topology,
            planned.class.name()
        );
        let qemu = self.cache.qemu()?;
        let request = Boot {
            qemu: &qemu,
            kernel,
            topology: &topology,
            cmdline: planned.class.cmdline(),
            initrd: &initrd,
            disk: planned.needs.disk.then_some(disk.as_path()),
            folder: &folder,
            interactive: false,
            timeout: Duration::from_secs(30 + 90 * count as u64),
        };
        let mut results = Results::default();
        let outcome = boot(&request, |event| {
            if let Event::Report(report) = event {
                show(&report);
                results.take(&report);
            }
        })?;
        println!("  {:.1} s in all", outcome.elapsed.as_secs_f64());
        let _ = std::fs::remove_file(disk);
        Ok((results, outcome))
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
