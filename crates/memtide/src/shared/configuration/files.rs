//! Which files there are, and whether they may be believed.
//!
//! The service is root and does what they say, so nobody but root may be able to change them: not the
//! files, not the folders in which they are. What others could have written is refused, and not left
//! out: a machine that silently runs with half of its configuration is worse than one that does not.

use super::Configuration;
use super::read::{Layer, read};
use crate::shared::outside;
use anyhow::{Context as _, bail};
use memtide_linux::files::input;
use memtide_linux::fs::Root;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where it is if nobody says.
const MAIN: &str = "/etc/memtide/memtide.toml";
/// The largest file, in bytes.
const LARGEST: u64 = 64 << 10;
/// Permissions of those who are neither the owner nor root.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The main file; its drop-ins are beside it.
#[derive(Clone, Debug)]
pub struct Files {
    main: PathBuf,
    /// Somebody named it, so it must be there.
    named: bool,
}

impl Files {
    /// The file that was named, or the usual one of the machine at `root`.
    pub fn new(named: Option<&Path>, root: &Root) -> Files {
        Files {
            main: named.map_or_else(|| root.path(MAIN), Path::to_owned),
            named: named.is_some(),
        }
    }

    /// The configuration, and how many files it is from.
    ///
    /// # Errors
    /// A file cannot be read, others may write to it, or it makes no sense.
    pub fn read(&self) -> anyhow::Result<(Configuration, usize)> {
        let mut layers = Vec::new();
        let main = layer(&self.main)?;
        if main.is_none() && self.named {
            bail!("{}: there is no such file", outside::path(&self.main));
        }
        layers.extend(main);
        for path in self.drop_ins()? {
            layers.extend(layer(&path)?);
        }
        Ok((read(&layers)?, layers.len()))
    }

    /// The main file, for people.
    pub fn name(&self) -> String {
        outside::path(&self.main)
    }

    /// `NAME.d/*.toml`, sorted by name.
    fn drop_ins(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut folder = self.main.clone().into_os_string();
        folder.push(".d");
        let folder = PathBuf::from(folder);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| outside::path(&folder)),
        };
        // Also where nothing is in it yet.
        let about = folder.metadata().with_context(|| outside::path(&folder))?;
        believe(&folder, &about)?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| outside::path(&folder))?.path();
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden
                && path
                    .extension()
                    .is_some_and(|extension| extension == "toml")
            {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}

/// A file's text; none if there is no such file, or if a link to /dev/null stands for "none".
fn layer(path: &Path) -> anyhow::Result<Option<Layer>> {
    let name = outside::path(path);
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => return Ok(None),
        Err(error) => return Err(error).context(name),
    };
    // Who may write to a folder may put another file, or another link, in the place of this one.
    for folder in [path.parent(), target.parent()].into_iter().flatten() {
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        let about = folder.metadata().with_context(|| outside::path(folder))?;
        believe(folder, &about)?;
    }
    if target == Path::new("/dev/null") {
        return Ok(None);
    }
    let file = input::regular(&target).with_context(|| name.clone())?;
    believe(path, &file.metadata().with_context(|| name.clone())?)?;
    let text = input::text_of(file, LARGEST).with_context(|| name.clone())?;
    Ok(Some(Layer { file: name, text }))
}

/// It belongs to root or to who runs this, and nobody else may write to it. In a folder with the sticky
/// bit others may add files, and not replace this one.
fn believe(path: &Path, about: &Metadata) -> anyhow::Result<()> {
    let us = rustix::process::geteuid().as_raw();
    if about.uid() != 0 && about.uid() != us {
        bail!(
            "{}: belongs to user {}, who could change what memtide does; chown it to root",
            outside::path(path),
            about.uid()
        );
    }
    let sticky = about.is_dir() && about.mode() & STICKY != 0;
    if about.mode() & OTHERS_WRITE != 0 && !sticky {
        bail!(
            "{}: others may write to it; run chmod go-w on it",
            outside::path(path)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Place {
        folder: tempfile::TempDir,
        main: PathBuf,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("memtide.toml");
        create_dir(folder.path().join("memtide.toml.d")).unwrap();
        Place { folder, main }
    }

    impl Place {
        fn drop_in(&self, name: &str) -> PathBuf {
            self.folder.path().join("memtide.toml.d").join(name)
        }

        fn put(&self, path: &Path, text: &str) {
            write(path, text).unwrap();
            set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }

        fn read(&self) -> anyhow::Result<(Configuration, usize)> {
            Files::new(Some(&self.main), &Root::default()).read()
        }
    }

    #[test]
    fn drop_ins_come_by_name_and_only_theirs() {
        let place = place();
        place.put(&place.main, "[tier]\nwindow = '2s'\n");
        place.put(&place.drop_in("20-b.toml"), "[tier]\nwindow = '4s'\n");
        place.put(&place.drop_in("10-a.toml"), "[tier]\nwindow = '3s'\n");
        place.put(&place.drop_in(".30.toml"), "nonsense");
        place.put(&place.drop_in("30.toml.orig"), "nonsense");
        symlink("/dev/null", place.drop_in("40-masked.toml")).unwrap();
        let (configuration, files) = place.read().unwrap();
        assert_eq!(files, 3);
        assert_eq!(configuration.settings.tier.window.ms(), 4000);
        let from = configuration.place("tier", "window").unwrap();
        assert!(from.file.ends_with("20-b.toml"), "{from}");
    }

    #[test]
    fn a_file_that_was_named_must_be_there_and_the_usual_one_need_not() {
        let place = place();
        let error = place.read().unwrap_err().to_string();
        assert!(
            error.ends_with("memtide.toml: there is no such file"),
            "{error}"
        );
        let root = Root::new(place.folder.path());
        let (configuration, files) = Files::new(None, &root).read().unwrap();
        assert_eq!((configuration, files), (Configuration::default(), 0));
        symlink("gone", place.drop_in("10-link.toml")).unwrap();
        place.put(&place.main, "");
        assert!(place.read().is_err());
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let place = place();
        place.put(&place.main, "");
        place.put(&place.drop_in("10.toml"), "");
        place.read().unwrap();
        for (path, safe) in [
            (place.main.clone(), 0o644),
            (place.drop_in("10.toml"), 0o600),
            (place.folder.path().to_owned(), 0o755),
            (place.folder.path().join("memtide.toml.d"), 0o755),
        ] {
            for wrong in [0o020, 0o002] {
                set_permissions(&path, Permissions::from_mode(safe | wrong)).unwrap();
                let error = place.read().unwrap_err().to_string();
                let name = path.display().to_string();
                assert!(
                    error.starts_with(&name) && error.contains("chmod go-w"),
                    "{error}"
                );
            }
            set_permissions(&path, Permissions::from_mode(safe)).unwrap();
            place.read().unwrap();
        }
    }

    /// What is not in it yet may come before the next reload.
    #[test]
    fn an_empty_folder_that_others_may_write_is_refused() {
        let place = place();
        place.put(&place.main, "");
        let folder = place.folder.path().join("memtide.toml.d");
        set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        let error = place.read().unwrap_err().to_string();
        assert!(
            error.contains("memtide.toml.d: others may write"),
            "{error}"
        );
    }

    #[test]
    fn devices_and_giants_are_no_configuration() {
        let place = place();
        symlink("/dev/zero", &place.main).unwrap();
        let error = outside::causes(&place.read().unwrap_err());
        assert!(
            error.contains("memtide.toml: not a regular file"),
            "{error}"
        );
        std::fs::remove_file(&place.main).unwrap();
        place.put(&place.main, &"#".repeat(65 << 10));
        let error = outside::causes(&place.read().unwrap_err());
        assert!(error.contains("larger than 64 KiB"), "{error}");
    }
}
