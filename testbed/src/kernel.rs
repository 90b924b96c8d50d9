//! A kernel to boot: its image, and the modules that a job needs in loading order.
//!
//! The distribution's packages hold no dependency list (it is made at installation), but every
//! module names what it needs in its own `.modinfo` section: NUL-separated `key=value` texts, of
//! which `depends=` lists module names. Reading that from the unpacked module gives the order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::fetch::{Cache, KernelLine};

/// A kernel image and where its modules lie.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// How to call it: `6.12`, `7.2`, or the file's name.
    pub name: String,
    /// The bzImage.
    pub image: PathBuf,
    /// The folder of `*.ko*` files, searched recursively.
    pub modules: PathBuf,
}

/// A module ready for the image.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its name as `depends=` writes it.
    pub name: String,
    /// The unpacked object file.
    pub data: Vec<u8>,
}

impl Kernel {
    /// A distribution kernel, fetched if need be.
    ///
    /// # Errors
    /// When it must be fetched and cannot, or its packages have an unknown layout.
    pub fn fetched(cache: &Cache, line: KernelLine) -> Result<Self> {
        let root = cache.kernel(line)?;
        let release_folder = ["lib/modules", "usr/lib/modules"]
            .iter()
            .filter_map(|place| std::fs::read_dir(root.join(place)).ok())
            .flat_map(|entries| entries.flatten())
            .map(|entry| entry.path())
            .find(|path| path.join("kernel").is_dir())
            .with_context(|| format!("{} holds no modules", root.display()))?;
        let release = release_folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let image = [
            release_folder.join("vmlinuz"),
            root.join(format!("boot/vmlinuz-{release}")),
        ]
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("{} holds no kernel image", root.display()))?;
        Ok(Self {
            name: line.name().to_owned(),
            image,
            modules: release_folder,
        })
    }

    /// Somebody's own kernel, as for testing a patch.
    #[must_use]
    pub fn own(image: PathBuf, modules: PathBuf) -> Self {
        let name = image
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            image,
            modules,
        }
    }

    /// `wanted` modules and all they depend on, dependencies first. A module without a file is
    /// taken to be built in.
    ///
    /// # Errors
    /// When a module cannot be read or unpacked.
    pub fn module_closure(&self, busybox: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
        let mut files = BTreeMap::new();
        collect_modules(&self.modules, &mut files)?;
        let mut done = Vec::new();
        for name in wanted {
            add_module(&files, busybox, name, &mut done)?;
        }
        Ok(done)
    }
}

/// Module names, with `-` written `_`, and their files.
fn collect_modules(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read the modules' folder {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            collect_modules(&path, files)?;
        } else if let Some((stem, _)) = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.split_once(".ko"))
        {
            files.insert(stem.replace('-', "_"), path.clone());
        }
    }
    Ok(())
}

fn add_module(
    files: &BTreeMap<String, PathBuf>,
    busybox: &Path,
    name: &str,
    done: &mut Vec<Module>,
) -> Result<()> {
    let name = name.replace('-', "_");
    if done.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let Some(path) = files.get(&name) else {
        return Ok(());
    };
    let data = unpack(busybox, path)?;
    for dependency in depends(&data) {
        add_module(files, busybox, &dependency, done)?;
    }
    done.push(Module { name, data });
    Ok(())
}

fn unpack(busybox: &Path, path: &Path) -> Result<Vec<u8>> {
    let applet = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xzcat",
        Some("gz") => "zcat",
        _ => return std::fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let file = std::fs::File::open(path)?;
    let output = Command::new(busybox)
        .arg(applet)
        .stdin(file)
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", busybox.display()))?;
    ensure!(output.status.success(), "cannot unpack {}", path.display());
    Ok(output.stdout)
}

/// The names after `depends=` in a module's `.modinfo`.
fn depends(data: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = data.windows(key.len()).position(|window| window == key) else {
        return Vec::new();
    };
    let value = &data[at + key.len()..];
    let end = value
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        assert_eq!(
            depends(b"\x7fELF\0license=x\0depends=jbd2,mbcache\0name=y\0"),
            ["jbd2", "mbcache"]
        );
        assert_eq!(depends(b"..\0depends=\0"), Vec::<String>::new());
        assert_eq!(depends(b"nothing"), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_comes_before_its_user_and_once() {
        let folder = std::env::temp_dir().join(format!("testbed-modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("sub/low-level.ko"), b"\0depends=\0").unwrap();
        std::fs::write(folder.join("high.ko"), b"\0depends=low_level\0").unwrap();
        let kernel = Kernel::own(PathBuf::from("k"), folder.clone());
        let modules = kernel
            .module_closure(Path::new("unused"), &["high", "low-level"])
            .unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let names: Vec<_> = modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["low_level", "high"]);
    }
}
