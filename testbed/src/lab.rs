//! From a workspace to a running guest: builds the guest's programs, packs, boots.
//!
//! The programs are built statically against the host's C library, in a profile and in a target folder
//! of their own, so that neither the guest needs libraries nor the host's other builds are thrown away
//! by the different flags.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The target for which the guest's programs are built.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// How: `Cargo.toml` says what is different from a release.
const PROFILE: &str = "guest";

/// A checkout of the project.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Its top folder.
    pub root: PathBuf,
}

/// The programs built for the guest.
#[derive(Debug, Clone)]
pub struct GuestPrograms {
    /// `/init`.
    pub init: PathBuf,
    /// The project's own binary.
    pub memtide: PathBuf,
}

/// The cargo that runs this, or the one on PATH.
#[must_use]
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `program`, run a little behind others. Not far behind: somebody waits for it in the end, and beside
/// busy programs of others it has to get there.
#[must_use]
pub fn behind_others(program: OsString) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "5"]).arg(program);
    command
}

impl Workspace {
    /// The checkout that this program was built in, or else the one around the current folder.
    ///
    /// # Errors
    /// When neither is a checkout.
    pub fn find() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let here = std::env::current_dir().context("cannot find the current folder")?;
        program
            .ancestors()
            .chain(here.ancestors())
            .find(|folder| folder.join("testbed/topologies").is_dir())
            .map(|root| Self {
                root: root.to_owned(),
            })
            .context("no checkout of the project around this program or the current folder")
    }

    /// Builds `guest` and `memtide` for the guest.
    ///
    /// # Errors
    /// When cargo fails; its words have been shown.
    pub fn build_guest_programs(&self) -> Result<GuestPrograms> {
        let status = self
            .guest_build(&mut Command::new(cargo()))
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "the guest's programs do not build");
        self.built_guest_programs()
    }

    /// The same build in the background, a little behind others. Whoever builds next
    /// finds what it did, or its mistakes again.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_guest_build(&self) -> Result<Child> {
        let mut command = behind_others(cargo());
        self.guest_build(&mut command);
        command.stderr(Stdio::null());
        command.spawn().context("cannot run nice")
    }

    fn guest_build<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(&self.root)
            .args([
                "build",
                "--quiet",
                "--profile",
                PROFILE,
                "--target",
                TARGET,
                "--target-dir",
            ])
            .arg(self.target_folder())
            .args([
                "-p", "testbed", "-p", "memtide", "--bin", "guest", "--bin", "memtide",
            ])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
    }

    /// The programs of the last build.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn built_guest_programs(&self) -> Result<GuestPrograms> {
        let folder = self.target_folder().join(TARGET).join(PROFILE);
        let programs = GuestPrograms {
            init: folder.join("guest"),
            memtide: folder.join("memtide"),
        };
        for path in [&programs.init, &programs.memtide] {
            ensure!(path.is_file(), "{} has not been built", path.display());
        }
        Ok(programs)
    }

    /// A fresh folder for a boot's files; what an earlier run left there goes.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn boot_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target_folder().join("boots").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    fn target_folder(&self) -> PathBuf {
        Path::new(&self.root).join("target/guest")
    }
}
