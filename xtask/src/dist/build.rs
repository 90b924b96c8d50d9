//! Builds what is packed: from nothing, with this machine's paths mapped away.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The target of the program: no library is needed where it runs.
pub const STATIC: &str = "x86_64-unknown-linux-musl";
/// The target of the preload library, which goes into programs of the C library that most have.
const SHARED: &str = "x86_64-unknown-linux-gnu";

/// The program for another processor. It is linked by the linker that comes with Rust, so no other
/// compiler is needed.
pub const AARCH64: &str = "aarch64-unknown-linux-musl";

/// What a build made.
#[derive(Debug)]
pub struct Built {
    /// The file.
    pub content: Vec<u8>,
    /// Where it is, for programs that are run here.
    pub path: PathBuf,
    /// The lowest version of glibc that it runs with; none if it needs none.
    pub glibc: Option<(u32, u32)>,
}

impl Built {
    pub fn words(&self) -> String {
        let size = self.content.len() / 1024;
        match self.glibc {
            None => format!("{size} KiB, needs no library"),
            Some((major, minor)) => format!("{size} KiB, needs glibc {major}.{minor} or later"),
        }
    }

    /// What another build made, without the symbols that packages do without.
    pub fn stripped(from: &Path, folder: &Path) -> Result<Self> {
        let path = folder.join(from.file_name().context("a program without a name")?);
        let status = Command::new("strip")
            .arg("-o")
            .args([&path, from])
            .status()
            .context("cannot run strip")?;
        ensure!(status.success(), "{} cannot be stripped", from.display());
        Self::read(path)
    }

    fn read(path: PathBuf) -> Result<Self> {
        let content = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let glibc = glibc(&content);
        Ok(Self {
            content,
            path,
            glibc,
        })
    }
}

/// The program, or why it cannot be built here.
pub fn static_binary(root: &Path) -> Result<Result<Built, String>> {
    build(root, STATIC, "memtide", "memtide")
}

/// The same for another processor.
pub fn aarch64_binary(root: &Path) -> Result<Result<Built, String>> {
    build(root, AARCH64, "memtide", "memtide")
}

/// The library of `memtide pager run`, or why it cannot be built here.
pub fn preload_library(root: &Path) -> Result<Result<Built, String>> {
    let name = "libmemtide_pager_preload.so";
    build(root, SHARED, "memtide-pager-preload", name)
}

/// Why nothing can be built for `target`, if so.
pub fn missing(target: &str) -> Result<Option<String>> {
    let libraries = rustc(&["--print", "target-libdir", "--target", target])?;
    Ok((!Path::new(&libraries).is_dir()).then(|| {
        format!(
            "Rust's libraries for {target} are missing; rustup target add {target} installs them"
        )
    }))
}

fn build(root: &Path, target: &str, package: &str, file: &str) -> Result<Result<Built, String>> {
    if let Some(why) = missing(target)? {
        return Ok(Err(why));
    }
    // Always the same place: what a build leaves of its paths is then the same, too.
    let folder = root.join("target/dist-build");
    let made = folder.join(target);
    if made.exists() {
        std::fs::remove_dir_all(&made).with_context(|| made.display().to_string())?;
    }
    eprintln!("dist: building {package} for {target}");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--locked", "--profile", "dist"])
        .args(["--package", package, "--target", target, "--target-dir"])
        .arg(&folder)
        .current_dir(root)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root, target)?)
        .env_remove("RUSTFLAGS")
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "{package} does not build for {target}");
    let built = Built::read(made.join("dist").join(file))?;
    ensure!(
        target == SHARED || built.glibc.is_none(),
        "{}: not static after all",
        built.path.display()
    );
    Ok(Ok(built))
}

/// The compiler's flags: no path of this machine stays in what it makes.
fn flags(root: &Path, target: &str) -> Result<String> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let sysroot = rustc(&["--print", "sysroot"])?;
    let maps = [
        (root.display().to_string(), "/memtide"),
        (cargo.display().to_string(), "/cargo"),
        (sysroot, "/rust"),
    ];
    let maps = maps.map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let linker = (target == AARCH64).then(|| "-Clinker=rust-lld".to_owned());
    let flags: Vec<String> = maps.into_iter().chain(linker).collect();
    Ok(flags.join("\u{1f}"))
}

fn rustc(arguments: &[&str]) -> Result<String> {
    let output = Command::new("rustc")
        .args(arguments)
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?.trim().to_owned();
    ensure!(
        output.status.success(),
        "rustc {} failed",
        arguments.join(" ")
    );
    Ok(text)
}

/// The highest version of glibc that the file's symbols name. The dynamic section holds them as
/// text: `GLIBC_2.34`.
fn glibc(content: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"\0GLIBC_2.";
    content
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK)
        .filter_map(|(at, _)| {
            let digits = &content[at + MARK.len()..];
            let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
            std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
        })
        .max()
        .map(|minor| (2, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_glibc_counts() {
        let content = b"..\0GLIBC_2.2.5\0open\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE\0";
        assert_eq!(glibc(content), Some((2, 34)));
        assert_eq!(glibc(b"GLIBC_2.34 in a sentence"), None);
    }
}
