//! One guest for one command, or for a person.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::fetch::{Cache, KernelLine, Program};
use testbed::guest::tests::{BootClass, DEB};
use testbed::image::Contents;
use testbed::kernel::Kernel;
use testbed::lab::Workspace;
use testbed::machine::{Boot, Ending, Event, Limits, run as boot};
use testbed::report::{Job, Report, Work};
use testbed::topology::Topology;

use crate::guest::pack;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which kernel: 6.12 or 7.2
    #[arg(long, default_value = "6.12")]
    kernel: KernelLine,
    /// Which machine: a file of testbed/topologies without .toml
    #[arg(long, default_value = "cxl")]
    topology: String,
    /// Run this shell command as root and exit with its status; without it, a shell on this terminal
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,
    /// Place this host file in /bin (a dynamic program brings its libraries); repeatable
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// More words for the kernel's command line
    #[arg(long, default_value = "", value_name = "WORDS")]
    cmdline: String,
    /// Write a kernel setting before the command, as in /proc/sys/kernel/numa_balancing=2; repeatable
    #[arg(long, value_name = "PATH=TEXT")]
    set: Vec<String>,
    /// Load this module and those it needs; repeatable
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    /// Debian's systemd is process 1, and memtide is a package in /packages
    #[arg(long, conflicts_with = "file")]
    systemd: bool,
    /// Use the guest's programs as last built
    #[arg(long)]
    no_build: bool,
    /// Say how long the boot took and where its console's log is
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Debug, clap::Args)]
pub struct DemoArguments {
    /// Which kernel: 6.12 or 7.2
    #[arg(long, default_value = "6.12")]
    kernel: KernelLine,
    /// Show threads and pages of two sockets instead of hot pages of slow memory
    #[arg(long)]
    balance: bool,
    /// Show the kernel's own tiering, or balancing, instead of memtide
    #[arg(long)]
    kernel_tiering: bool,
}

pub fn demo(arguments: &DemoArguments) -> Result<i32> {
    let class = match (arguments.kernel_tiering, arguments.balance) {
        (false, _) => BootClass::Quiet,
        (true, false) => BootClass::KernelTiering,
        (true, true) => BootClass::KernelBalancing,
    };
    let flag = |given: bool, flag| if given { flag } else { "" };
    let kernel = flag(arguments.kernel_tiering, " --kernel");
    let (topology, what, balance) = match arguments.balance {
        true => ("two-socket", "two sockets", " --balance"),
        false => ("cxl", "two DRAM nodes and a far one", ""),
    };
    eprintln!(
        "demo: booting Linux {} with {what}",
        arguments.kernel.name()
    );
    run(&Arguments {
        kernel: arguments.kernel,
        topology: topology.to_owned(),
        run: Some(format!("guest demo{balance}{kernel}")),
        file: Vec::new(),
        cmdline: class.cmdline().to_owned(),
        set: class
            .settings()
            .iter()
            .map(|(path, text)| format!("{path}={text}"))
            .collect(),
        module: Vec::new(),
        timeout: 120,
        systemd: false,
        no_build: false,
        verbose: false,
    })
}

pub fn fetch() -> Result<()> {
    let cache = Cache::open()?;
    let tell = |what: &str, program: &Program| println!("{what}: {}", program.path.display());
    tell("qemu", &cache.qemu()?);
    tell("mkfs.ext4", &cache.mkfs()?);
    tell("redis-server", &cache.redis()?);
    println!("busybox: {}", cache.busybox()?.display());
    println!("systemd: {}", cache.debian()?.display());
    for tool in cache.package_tools()? {
        tell("for packages", &tool);
    }
    for line in KernelLine::ALL {
        println!(
            "kernel {}: {}",
            line.name(),
            Kernel::fetched(&cache, line)?.image.display()
        );
    }
    Ok(())
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    let workspace = Workspace::find()?;
    let topology = Topology::named(&workspace.root, &arguments.topology)?;
    let programs = if arguments.no_build {
        workspace.built_guest_programs()?
    } else {
        workspace.build_guest_programs()?
    };
    let cache = Cache::open()?;
    let kernel = Kernel::fetched(&cache, arguments.kernel)?;
    let busybox = cache.busybox()?;
    let settings = arguments
        .set
        .iter()
        .map(|text| {
            let (path, value) = text
                .split_once('=')
                .with_context(|| format!("--set {text}: no ="))?;
            Ok((path.to_owned(), value.to_owned()))
        })
        .collect::<Result<_>>()?;
    let wanted: Vec<&str> = arguments.module.iter().map(String::as_str).collect();
    let modules = kernel.module_closure(&busybox, &wanted)?;
    let work = arguments
        .run
        .clone()
        .map_or(Work::Interactive, Work::Command);
    let (mut placed, mut system) = (Vec::new(), None);
    let mut own = Vec::new();
    if arguments.systemd {
        placed.push((DEB.to_owned(), pack(&workspace, &programs)?.deb));
        system = Some(cache.debian()?);
    } else {
        own.push(Program {
            path: programs.memtide,
            root: None,
        });
    }
    let contents = Contents {
        init: programs.init,
        busybox,
        modules,
        programs: own,
        files: arguments.file.clone(),
        placed,
        needing: Vec::new(),
        system,
    };
    let initrd = contents.build(Job {
        modules: Vec::new(),
        settings,
        trace_patches: false,
        random_programs: 0,
        work,
    })?;
    let folder = workspace.boot_folder(&format!("lab-{}", std::process::id()))?;
    let qemu = cache.qemu()?;
    let request = Boot {
        qemu: &qemu,
        kernel: &kernel,
        topology: &topology,
        cmdline: &arguments.cmdline,
        initrd: &initrd,
        disk: None,
        folder: &folder,
        interactive: arguments.run.is_none(),
        limits: Limits {
            boot: Duration::from_secs(arguments.timeout),
            // A command need not report.
            silence: Duration::MAX,
        },
    };
    let outcome = boot(&request, |event| {
        // A closed pipe must not stop the guest half-way.
        let _ = match event {
            Event::Output(bytes) => std::io::stdout().write_all(bytes),
            Event::Error(bytes) => std::io::stderr().write_all(bytes),
            Event::Report(Report::Ready { release, seconds }) if arguments.verbose => {
                writeln!(
                    std::io::stderr(),
                    "lab: Linux {release} up after {seconds} s"
                )
            }
            Event::Report(Report::Note { text }) => writeln!(std::io::stderr(), "lab: {text}"),
            Event::Report(_) => Ok(()),
        };
    })?;
    if arguments.verbose {
        eprintln!(
            "lab: {:.1} s, console in {}",
            outcome.elapsed.as_secs_f64(),
            outcome.console.display()
        );
    }
    match &outcome.ending {
        Ending::Orderly(status) => {
            if !arguments.verbose {
                let _ = std::fs::remove_dir_all(&folder);
            }
            Ok(*status)
        }
        ending => anyhow::bail!(
            "{ending}; last lines of {}:\n{}",
            outcome.console.display(),
            outcome.last_console_lines(25)
        ),
    }
}
