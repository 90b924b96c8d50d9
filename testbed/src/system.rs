//! What a guest with systemd has of Debian: the packages that [`crate::fetch`] unpacked, without what no
//! test needs, and two units of ours.
//!
//! All of systemd's units are there, and nearly nothing of what Debian has it start by itself. A machine
//! that waits for no device, no network and no login is up within seconds under emulation. What is left
//! is what a service of ours may lean on: the journal, and the kernel's debugging file systems.
//!
//! The rest is as Debian has it: `/bin` is a link to `/usr/bin`, programs and libraries are Debian's, and
//! dpkg's book names every package. No package's script ran, so there are no users but root.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cpio::Archive;

/// Process 1 of such a guest.
pub const SYSTEMD: &str = "/usr/lib/systemd/systemd";
const UNITS: &str = "/etc/systemd/system";
/// What systemd begins with.
const DEFAULT: &str = "multi-user.target";
/// Our units by their names: the second has the first started.
const OURS: [(&str, &str); 2] = [
    (
        "testbed.service",
        include_str!("../systemd/testbed.service"),
    ),
    ("held.slice", include_str!("../systemd/held.slice")),
];
/// Folders that programs find under two names.
const LINKED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Of the folder that is for people, what dpkg reads.
const SHARED: (&str, &str) = ("usr/share/", "usr/share/dpkg");
/// Below these, nothing is taken: for other programs, or run at every boot.
const LEFT_OUT: [&str; 10] = [
    "usr/lib/locale",
    "usr/lib/udev",
    "usr/lib/systemd/system-generators",
    "usr/lib/systemd/user",
    "usr/lib/systemd/user-generators",
    "usr/lib/x86_64-linux-gnu/engines-3",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/ossl-modules",
    // Two that ask for perl.
    "usr/sbin/dpkg-preconfigure",
    "etc/apt/apt.conf.d/70debconf",
];
/// What Debian has systemd start by itself, and stays.
const STARTED: [&str; 5] = [
    "sockets.target.wants/systemd-journald-dev-log.socket",
    "sockets.target.wants/systemd-journald.socket",
    "sysinit.target.wants/sys-kernel-debug.mount",
    "sysinit.target.wants/sys-kernel-tracing.mount",
    "sysinit.target.wants/systemd-journald.service",
];
/// The same on every machine; without it, systemd would take this boot for the first one and enable all
/// that there is.
const MACHINE_ID: &[u8] = b"6d656d746964652074657374626564aa\n";

/// Adds the files below `root` to the archive; the names of those that are in `/bin` now.
///
/// # Errors
/// When a file cannot be read.
pub fn add(archive: &mut Archive, root: &Path) -> Result<BTreeSet<String>> {
    for folder in LINKED {
        archive.directory(&format!("/usr/{folder}"));
        archive.folder_link(&format!("/{folder}"), &format!("usr/{folder}"));
    }
    archive.symlink("/var/run", "/run");
    let mut programs = BTreeSet::new();
    add_below(archive, root, "", &mut programs)?;
    archive.file("/etc/machine-id", 0o444, MACHINE_ID);
    for (name, text) in OURS {
        archive.file(&format!("{UNITS}/{name}"), 0o644, text.as_bytes());
    }
    archive.symlink(
        &format!("{UNITS}/default.target"),
        &format!("/usr/lib/systemd/system/{DEFAULT}"),
    );
    let (starts, _) = OURS[0];
    archive.symlink(
        &format!("{UNITS}/{DEFAULT}.wants/{starts}"),
        &format!("{UNITS}/{starts}"),
    );
    Ok(programs)
}

/// `folder` is relative to the root, without slashes around it.
fn add_below(
    archive: &mut Archive,
    root: &Path,
    folder: &str,
    programs: &mut BTreeSet<String>,
) -> Result<()> {
    let here = root.join(folder);
    let entries = std::fs::read_dir(&here).with_context(|| here.display().to_string())?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<String>>>()?;
    // The order of a folder is the disk's own.
    names.sort();
    for name in names {
        let place = format!("{folder}/{name}");
        let place = place.trim_start_matches('/');
        if !is_taken(place) {
            continue;
        }
        let path = root.join(place);
        let about = path.symlink_metadata()?;
        let inside = format!("/{place}");
        if about.is_dir() {
            archive.directory(&inside);
            add_below(archive, root, place, programs)?;
            continue;
        }
        if about.is_symlink() {
            archive.symlink(&inside, &std::fs::read_link(&path)?.to_string_lossy());
        } else {
            let content = std::fs::read(&path).with_context(|| path.display().to_string())?;
            archive.file(&inside, about.permissions().mode() & 0o7777, &content);
        }
        if folder == "usr/bin" {
            programs.insert(name);
        }
    }
    Ok(())
}

/// Whether the guest has this file or folder of the system.
fn is_taken(place: &str) -> bool {
    let (for_people, needed) = SHARED;
    if LEFT_OUT.contains(&place) || place.starts_with(for_people) && !place.starts_with(needed) {
        return false;
    }
    match place.split_once(".target.wants/") {
        Some(_) => STARTED.iter().any(|started| place.ends_with(started)),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_started_by_itself() {
        let units = "usr/lib/systemd/system";
        assert!(is_taken(&format!("{units}/systemd-logind.service")));
        assert!(is_taken(&format!("{units}/sysinit.target.wants")));
        let wanted = |name: &str| is_taken(&format!("{units}/sysinit.target.wants/{name}"));
        assert!(wanted("systemd-journald.service"));
        assert!(!wanted("systemd-hwdb-update.service"));
        assert!(is_taken("usr/bin/systemctl") && is_taken("usr/share/dpkg/cputable"));
        assert!(!is_taken("usr/share/doc"));
    }
}
