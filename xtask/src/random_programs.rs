//! Random programs with the preloaded pager and without it: nothing may differ.
//!
//! The programs and what runs and compares them are C, beside the preload library's own tests, so
//! that they do what programs do. They are built here with the machine's C compiler, for this machine
//! and for guests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use testbed::lab::{Workspace, cargo};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many
    #[arg(long, default_value_t = 300)]
    programs: u32,
    /// The first seed; the next program has the next one
    #[arg(long, default_value_t = 1)]
    first: u32,
    /// Pairs of runs at a time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,
    /// Where their files go; not in memory, where nothing could be evicted [default: in target/]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<i32> {
    let workspace = Workspace::find()?;
    let built = Built::new(&workspace, false)?;
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => workspace.root.join("target/random-programs/files"),
    };
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let status = Command::new(&built.compare)
        .args([&built.library, &built.program, &folder])
        .args([arguments.first, arguments.programs, arguments.jobs].map(|n| n.to_string()))
        .status()
        .context("cannot run the comparison")?;
    Ok(status.code().unwrap_or(1))
}

/// Everything that a machine needs for it.
#[derive(Debug)]
pub struct Built {
    library: PathBuf,
    program: PathBuf,
    /// Found beside the program, by its name.
    plugin: PathBuf,
    compare: PathBuf,
    /// Reads a file through one mapping, whenever it is told to.
    reader: PathBuf,
}

impl Built {
    /// Builds it; `release` for machines that are slow.
    ///
    /// # Errors
    /// When there is no C compiler, or something does not build; its words have been shown.
    pub fn new(workspace: &Workspace, release: bool) -> Result<Built> {
        let library = preload_library(workspace, release)?;
        let target = workspace.root.join("target");
        let folder = target.join("random-programs");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let sources = workspace
            .root
            .join("pager/memtide-pager-preload/tests/programs");
        let compile = |name: &str, from: &str, options: &[&str]| -> Result<PathBuf> {
            // A comparison that is running goes on with the files that it began with.
            let new = folder.join(format!("{name}.{}", std::process::id()));
            let status = Command::new("cc")
                .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&new)
                .args(c_files(&sources.join(from))?)
                .args(options)
                .status()
                .context("cannot run cc, the C compiler")?;
            ensure!(status.success(), "{name} does not compile");
            let output = folder.join(name);
            std::fs::rename(&new, &output)
                .with_context(|| format!("cannot write {}", output.display()))?;
            Ok(output)
        };
        Ok(Built {
            library,
            program: compile("random", "random", &["-lpthread"])?,
            plugin: compile("random_plugin.so", "random/plugin", &["-shared", "-fPIC"])?,
            compare: compile("compare", "random/compare", &[])?,
            reader: compile("reader", "reader", &["-lpthread"])?,
        })
    }

    /// What goes into a guest's /bin.
    pub fn files(self) -> Vec<PathBuf> {
        vec![
            self.library,
            self.program,
            self.plugin,
            self.compare,
            self.reader,
        ]
    }
}

/// Builds the library of `memtide pager run`; `release` for machines that are slow.
///
/// # Errors
/// When it does not build; cargo's words have been shown.
pub fn preload_library(workspace: &Workspace, release: bool) -> Result<PathBuf> {
    let mut build = build_library(workspace, Command::new(cargo()), release);
    let status = build.status().context("cannot run cargo")?;
    ensure!(status.success(), "the preload library does not build");
    let profile = if release { "release" } else { "debug" };
    let target = workspace.root.join("target").join(profile);
    Ok(target.join("libmemtide_pager_preload.so"))
}

/// `cargo` with the words that build it.
pub fn build_library(workspace: &Workspace, mut cargo: Command, release: bool) -> Command {
    cargo.current_dir(&workspace.root).args([
        "build",
        "--quiet",
        "--package",
        "memtide-pager-preload",
    ]);
    if release {
        cargo.arg("--release");
    }
    cargo
}

fn c_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "c"));
    paths.sort();
    Ok(paths)
}
