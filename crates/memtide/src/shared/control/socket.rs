//! Where the service listens, and who may get there.
//!
//! # The place
//!
//! Without a group the socket is `/run/memtide/io.memtide`, of mode 0600. The folder has mode 0700 and is
//! ours ([`Private`]), so nobody else can put something in the socket's place.
//!
//! A group could not get into that folder. To open it to a group is no way out: root believes the notes
//! in there after a crash. So with a group the socket is in a folder of its own,
//! `/run/memtide-control/io.memtide`. That folder holds nothing else, everybody may look into it and only
//! we may write to it; the socket has mode 0660 and belongs to the group. Clients try both places.
//!
//! # One service
//!
//! Who listens holds the lock `control.lock` of the private folder, which ends with its process. With the
//! lock in hand, a socket that is there was left by a service that has ended, and it is replaced. What is
//! no socket, or somebody else's, was not left by a service; it is an error, and nothing is removed.
//!
//! # In between
//!
//! The socket has its mode and its group before it has its name: there is no moment in which others could
//! connect. It is made beside its place and then put there, so that a socket that is in the place is given
//! up when the new one is complete, and stays if there is none.

use crate::shared::control_args::ControlArgs;
use crate::shared::outside;
use crate::shared::unix_socket::{Bound, bind};
use anyhow::{Context as _, bail};
use memtide_core::numbers;
use memtide_linux::files::{Lock, Private, input};
use memtide_linux::fs::Root;
use memtide_linux::lent;
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The socket's name: its interface.
const SOCKET: &str = super::interface::NAME;
const LOCK: &str = "control.lock";
/// The folder of a socket for a group.
const OPEN_FOLDER: &str = "run/memtide-control";
/// What to do about something else at its place.
const ADVICE: &str = "remove it, or set enabled = false in [control]";
/// The largest list of groups, in bytes.
const GROUPS: u64 = 4 << 20;

/// Where a service may listen; the first that answers is it.
pub fn places(root: &Root) -> [PathBuf; 2] {
    [lent::FOLDER, OPEN_FOLDER].map(|folder| root.path(folder).join(SOCKET))
}

/// The right to listen.
pub struct Turn {
    root: Root,
    _lock: Lock,
}

/// Whether the machine has the group that `args` name.
///
/// # Errors
/// It has not, or its groups cannot be read.
pub fn check(args: &ControlArgs, root: &Root) -> anyhow::Result<()> {
    match &args.group {
        Some(group) if args.enabled => gid(root, group).map(drop),
        _ => Ok(()),
    }
}

/// Has everybody look into the folder of a socket for a group.
///
/// # Errors
/// The kernel's.
pub fn let_look(root: &Root) -> Result<(), Errno> {
    rustix::fs::chmod(root.path(OPEN_FOLDER), Mode::from_raw_mode(0o755))
}

impl Turn {
    /// Takes it.
    ///
    /// # Errors
    /// Another service has it, or the folder is not ours alone.
    pub fn take(root: &Root) -> anyhow::Result<Turn> {
        let folder = Private::make(&root.path(lent::FOLDER))?;
        match folder.lock(LOCK)? {
            Some(lock) => Ok(Turn {
                root: root.clone(),
                _lock: lock,
            }),
            None => bail!(
                "another memtide serve listens at {}; end it first, or set enabled = false in [control]",
                outside::path(&places(root)[0])
            ),
        }
    }

    /// Listens where `args` want it, without waiting for connections. A socket of ours that is there is
    /// replaced.
    ///
    /// # Errors
    /// There is no such group, something else is at the place, or the kernel's. Then a socket that is
    /// there stays.
    pub fn listen(&self, args: &ControlArgs) -> anyhow::Result<(UnixListener, Bound)> {
        let [alone, open] = places(&self.root);
        let Some(group) = &args.group else {
            let (listener, beside) = bind(&alone, ADVICE)?;
            return Ok((listener, beside.put(alone)?));
        };
        let gid = gid(&self.root, group)?;
        // Closed while there is something to do in it.
        Private::make(&self.root.path(OPEN_FOLDER))?;
        let given = bind(&open, ADVICE).and_then(|(listener, beside)| {
            give(beside.path(), gid).with_context(|| {
                format!(
                    "cannot give {} to the group {group}; add SupplementaryGroups={group} to the unit",
                    outside::path(&open)
                )
            })?;
            Ok((listener, beside))
        });
        // Also where that failed: the socket that stays is for a group, too.
        let looked_into = let_look(&self.root).with_context(|| outside::path(&open));
        let (listener, beside) = given?;
        looked_into?;
        Ok((listener, beside.put(open)?))
    }
}

fn give(path: &Path, gid: Gid) -> Result<(), Errno> {
    rustix::fs::chown(path, None, Some(gid))?;
    rustix::fs::chmod(path, Mode::from_raw_mode(0o660))
}

/// The number of a group. A static program has no other way to ask than to read the file.
fn gid(root: &Root, group: &str) -> anyhow::Result<Gid> {
    // Not the number that stands for "leave as it is".
    if let Some(number) = numbers::decimal::<u32>(group)
        && number != u32::MAX
    {
        return Ok(Gid::from_raw(number));
    }
    let path = root.path("etc/group");
    let file = input::regular(&path).with_context(|| outside::path(&path))?;
    let text = input::text_of(file, GROUPS).with_context(|| outside::path(&path))?;
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse::<u32>().ok())?
    };
    match text.lines().find_map(number) {
        Some(number) => Ok(Gid::from_raw(number)),
        None => bail!(
            "group {group}: not in {}; make it, or give its number",
            outside::path(&path)
        ),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    /// A machine on which nothing runs yet, and what its service's socket is for.
    pub fn machine() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        (folder, root)
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn of_group(group: &str) -> ControlArgs {
        ControlArgs {
            group: Some(group.to_owned()),
            ..ControlArgs::default()
        }
    }

    #[test]
    fn the_socket_is_ours_alone_and_goes_with_the_service() {
        let (_folder, root) = machine();
        let turn = Turn::take(&root).unwrap();
        let (_listener, bound) = turn.listen(&ControlArgs::default()).unwrap();
        let [path, _] = places(&root);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        UnixStream::connect(&path).unwrap();
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn a_group_gets_in_and_sees_no_notes() {
        let (folder, root) = machine();
        let own = rustix::process::getegid().as_raw();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let groups = format!("root:x:0:\nwatch:x:{own}:a,b\n");
        std::fs::write(folder.path().join("etc/group"), groups).unwrap();
        let turn = Turn::take(&root).unwrap();
        for group in ["watch", &own.to_string()] {
            let (_listener, _bound) = turn.listen(&of_group(group)).unwrap();
            let [alone, open] = places(&root);
            assert_eq!(mode(&open), 0o660);
            assert_eq!(std::fs::metadata(&open).unwrap().gid(), own);
            assert_eq!(mode(open.parent().unwrap()), 0o755);
            assert_eq!(mode(alone.parent().unwrap()), 0o700);
            assert!(!alone.exists());
        }
        let said = turn.listen(&of_group("nobody-like-that")).err().unwrap();
        assert!(
            said.to_string()
                .starts_with("group nobody-like-that: not in ")
        );
    }

    #[test]
    fn one_that_was_left_is_replaced_and_a_living_one_is_not() {
        let (_folder, root) = machine();
        let [path, _] = places(&root);
        let turn = Turn::take(&root).unwrap();
        let said = Turn::take(&root).err().unwrap().to_string();
        assert!(
            said.starts_with("another memtide serve listens at "),
            "{said}"
        );
        let (listener, bound) = turn.listen(&ControlArgs::default()).unwrap();
        // Killed: nothing was put back.
        std::mem::forget(bound);
        drop((listener, turn));
        assert!(UnixStream::connect(&path).is_err() && path.exists());
        let turn = Turn::take(&root).unwrap();
        let _listening = turn.listen(&ControlArgs::default()).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_of_ours_stays() {
        let (folder, root) = machine();
        let [path, open] = places(&root);
        let turn = Turn::take(&root).unwrap();
        let refused = |what: &str, args: &ControlArgs| {
            let said = turn.listen(args).err().unwrap().to_string();
            assert!(said.contains(what), "{said}");
        };
        std::fs::write(&path, "mine").unwrap();
        refused("no socket of memtide's", &ControlArgs::default());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        std::fs::remove_file(&path).unwrap();
        symlink("elsewhere", &path).unwrap();
        refused("no socket of memtide's", &ControlArgs::default());
        assert!(path.is_symlink());
        // And a folder in which others may write.
        let theirs = open.parent().unwrap();
        std::fs::create_dir(theirs).unwrap();
        std::fs::set_permissions(theirs, PermissionsExt::from_mode(0o777)).unwrap();
        refused("others may write", &of_group("0"));
        drop(folder);
    }

    #[test]
    fn a_place_too_deep_for_a_socket_is_an_error_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().join("x".repeat(120)));
        let turn = Turn::take(&root).unwrap();
        let error = turn.listen(&ControlArgs::default()).err().unwrap();
        let said = outside::causes(&error);
        assert!(said.starts_with("cannot listen at "), "{said}");
    }
}
