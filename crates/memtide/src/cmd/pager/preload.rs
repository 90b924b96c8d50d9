//! `memtide pager run`: a program with the pager between it and `mmap`.
//!
//! The program takes this process's place, with the preload library before all
//! others and its settings in the environment; both are inherited by what the
//! program starts.

use super::args::RunArgs;
use crate::shared::context::{BadUsage, Context, complain};
use crate::shared::pagers::LIBRARY;
use crate::shared::program::not_started;
use anyhow::bail;
use memtide_linux::files;
use rustix::fs::StatVfsMountFlags;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Where the library is, if not beside the command.
const LIBRARY_VARIABLE: &str = "MEMTIDE_PAGER_LIBRARY";

/// Runs the command; returns only if the program cannot be started.
pub fn run(args: &RunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let patterns = patterns(&args.files)?;
    // As the pager itself would: 16 granules of 64 KiB.
    if args.budget < 1 << 20 {
        return Err(BadUsage("--budget: at least 1MiB, or a batch is no batch".into()).into());
    }
    if args.local && args.budget < 2 << 20 {
        return Err(BadUsage(
            "--budget: at least 2MiB with --local: so much is copied at a time".into(),
        )
        .into());
    }
    if !context.root.is_live() {
        let root = context.root.path("/");
        bail!(
            "{}: programs run on the running machine only",
            root.display()
        );
    }
    let library = library()?;
    if let Some(total) = memory_bytes(context)
        && args.budget > total
    {
        let why = format!(
            "--budget: this machine has {}; give less, or run the program without the pager",
            crate::shared::lines::size(total)
        );
        return Err(BadUsage(why).into());
    }
    let program = &args.command[0];
    if let Some(path) = find(program)
        && let Some((path, why)) = refusal(&path)
    {
        bail!("{}: {why}", path.display());
    }
    let mut preload = OsString::from(library.as_os_str());
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(program);
    command
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload)
        .env("MEMTIDE_PAGER_FILES", patterns)
        .env("MEMTIDE_PAGER_BUDGET", args.budget.to_string())
        .env(
            "MEMTIDE_PAGER_EVICTION",
            if args.eager { "eager" } else { "lazy" },
        )
        .env("MEMTIDE_PAGER_LOCAL", if args.local { "on" } else { "off" })
        .env("MEMTIDE_PAGER_PID", std::process::id().to_string());
    match stats(args, context)? {
        Some(stats) => command.env("MEMTIDE_PAGER_STATS", stats),
        None => command.env_remove("MEMTIDE_PAGER_STATS"),
    };
    let error = command.exec();
    let (code, why) = not_started(&program.to_string_lossy(), &error);
    complain(&why);
    Ok(ExitCode::from(code))
}

/// All patterns as the library wants them.
fn patterns(files: &[String]) -> anyhow::Result<String> {
    for pattern in files {
        let wrong = |why: String| BadUsage(format!("--files {pattern:?}: {why}"));
        if pattern.is_empty() || pattern.contains(':') {
            let why = "give one pattern; several by several --files".to_owned();
            return Err(wrong(why).into());
        }
        glob::Pattern::new(pattern).map_err(|error| wrong(error.msg.to_owned()))?;
    }
    Ok(files.join(":"))
}

/// Where the library reports. A file is made now, for what cannot be written
/// should be known before the program runs for hours.
fn stats(args: &RunArgs, context: &Context) -> anyhow::Result<Option<OsString>> {
    let path = match &args.stats {
        None if context.json => return Ok(Some("stderr-json".into())),
        None => return Ok(None),
        Some(path) if path.as_os_str() == "stderr" && context.json => {
            return Ok(Some("stderr-json".into()));
        }
        Some(path) if path.as_os_str() == "stderr" => return Ok(Some("stderr".into())),
        Some(path) => path,
    };
    if let Err(why) = files::append(path) {
        bail!("{}: cannot be written: {why}", path.display());
    }
    // The program may change its working directory.
    Ok(Some(std::path::absolute(path)?.into_os_string()))
}

/// The preload library: where the variable says, beside the command, or where
/// packages put it.
fn library() -> anyhow::Result<PathBuf> {
    let given = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let candidates = match given {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let own = std::env::current_exe()?;
            let folder = own.parent().unwrap_or(Path::new("/"));
            vec![
                folder.join(LIBRARY),
                folder.join("../lib/memtide").join(LIBRARY),
            ]
        }
    };
    let Some(found) = candidates.iter().find(|path| path.is_file()) else {
        bail!(
            "{}: not there; build it with cargo build -p memtide-pager-preload, or say in \
             {LIBRARY_VARIABLE} where it is",
            candidates[0].display()
        );
    };
    let found = found.canonicalize()?;
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :".contains(byte))
    {
        bail!(
            "{}: the loader takes no path with a blank or a colon; put the library elsewhere and \
             say in {LIBRARY_VARIABLE} where",
            found.display()
        );
    }
    Ok(found)
}

/// The program's file, as the shell would find it.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// What would not load the library, and why: the program, or of a script its interpreter.
fn refusal(path: &Path) -> Option<(PathBuf, &'static str)> {
    // As many as Linux follows.
    const INTERPRETERS: usize = 5;
    let mut path = path.to_owned();
    for _ in 0..=INTERPRETERS {
        let metadata = path.metadata().ok()?;
        let mut head = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(4096).read_to_end(&mut head))
            .ok()?;
        if let Some(interpreter) = interpreter(&head) {
            path = interpreter;
            continue;
        }
        let why = if gains_privileges(&path, &metadata, &Caller::this()) {
            "gains privileges when it starts (set-uid, set-gid or capabilities of its file): the \
             loader gives such a program no library of ours"
        } else {
            match elf_loader(&head)? {
                Loader::None => {
                    "linked statically: its mappings would not be seen; link it with glibc"
                }
                Loader::OtherWidth => "not a program of 64 bits: the library is one",
                Loader::Other => {
                    "made for another C library than glibc: the library would not load"
                }
                Loader::Glibc => return None,
            }
        };
        return Some((path, why));
    }
    None
}

/// What runs a script, by its first line.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line.split(|byte| b" \t".contains(byte));
    let first = words.find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(first)))
}

/// Who starts a program, as far as it matters to privileges.
#[derive(Clone, Copy, Debug)]
struct Caller {
    user: u32,
    group: u32,
    /// The program may gain nothing, whatever its file says.
    no_new_privileges: bool,
}

impl Caller {
    fn this() -> Caller {
        Caller {
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            no_new_privileges: rustix::thread::no_new_privs().unwrap_or(false),
        }
    }
}

/// Whether the kernel starts the program with other credentials than the caller's, upon which the loader
/// ignores `LD_PRELOAD` (`AT_SECURE`, getauxval(3)): a set-uid program of another user, a set-gid program of
/// another group, and, unless root starts it, one whose file has capabilities.
fn gains_privileges(path: &Path, metadata: &Metadata, caller: &Caller) -> bool {
    let capabilities = || {
        let name = "security.capability";
        rustix::fs::getxattr(path, name, &mut [0u8; 64]).is_ok()
    };
    let ignored = || {
        let mount = rustix::fs::statvfs(path);
        mount.is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOSUID))
    };
    metadata.is_file() && grants(metadata, capabilities, caller) && !ignored()
}

fn grants(metadata: &Metadata, capabilities: impl FnOnce() -> bool, caller: &Caller) -> bool {
    const SET_USER: u32 = 0o4000;
    /// Without the group's right to execute, set-gid is a lock and no privilege.
    const SET_GROUP: u32 = 0o2010;
    let mode = metadata.mode();
    let other_user = mode & SET_USER != 0 && metadata.uid() != caller.user;
    let other_group = mode & SET_GROUP == SET_GROUP && metadata.gid() != caller.group;
    !caller.no_new_privileges && (other_user || other_group || caller.user != 0 && capabilities())
}

/// Who loads a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loader {
    Glibc,
    /// That of another C library, such as musl.
    Other,
    /// It is linked statically.
    None,
    /// Not of 64 bits.
    OtherWidth,
}

/// From the first bytes of a file; `None` if it is no ELF file in this machine's byte
/// order, or its headers lie elsewhere.
fn elf_loader(head: &[u8]) -> Option<Loader> {
    const PT_INTERP: u32 = 3;
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if head.get(..4)? != *b"\x7fELF" || *head.get(5)? != order {
        return None;
    }
    if *head.get(4)? != 2 {
        return Some(Loader::OtherWidth);
    }
    let number = |at: usize, bytes: usize| {
        let mut whole = [0; 8];
        let place = if order == 1 { 0 } else { 8 - bytes };
        whole[place..place + bytes].copy_from_slice(head.get(at..at + bytes)?);
        usize::try_from(u64::from_ne_bytes(whole)).ok()
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for nth in 0..count {
        let entry = table.checked_add(nth * size)?;
        if number(entry, 4)? == PT_INTERP as usize {
            let (at, bytes) = (number(entry + 8, 8)?, number(entry + 32, 8)?);
            let loader = head.get(at..at.checked_add(bytes)?)?;
            return Some(match loader.windows(4).any(|word| word == b"musl") {
                true => Loader::Other,
                false => Loader::Glibc,
            });
        }
    }
    Some(Loader::None)
}

/// Memory of the machine.
fn memory_bytes(context: &Context) -> Option<u64> {
    let text = std::fs::read_to_string(context.root.path("/proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_a_loader_are_told_from_those_without() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(refusal(&own), None);
        assert_eq!(refusal(Path::new("/etc/passwd")), None);
        let mut head = vec![0; 4096];
        let read = File::open(own).unwrap().read(&mut head).unwrap();
        head.truncate(read);
        assert_eq!(elf_loader(&head), Some(Loader::Glibc));
        let table = u64::from_ne_bytes(head[32..40].try_into().unwrap()) as usize;
        let count = usize::from(u16::from_ne_bytes(head[56..58].try_into().unwrap()));
        let mut narrow = head.clone();
        narrow[4] = 1;
        assert_eq!(elf_loader(&narrow), Some(Loader::OtherWidth));
        let mut other = head.clone();
        let name = b"ld-linux";
        let at = other.windows(8).position(|word| word == name).unwrap();
        other[at..at + 8].copy_from_slice(b"ld-musl-");
        assert_eq!(elf_loader(&other), Some(Loader::Other));
        for number in 0..count {
            // Every program header becomes PT_NOTE.
            head[table + number * 56..][..4].copy_from_slice(&4u32.to_ne_bytes());
        }
        assert_eq!(elf_loader(&head), Some(Loader::None));
        assert_eq!(elf_loader(&head[..40]), None);
    }

    #[test]
    fn programs_that_gain_privileges_are_told_from_those_that_do_not() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        File::create(&path).unwrap();
        let metadata = path.metadata().unwrap();
        let caller = Caller {
            user: metadata.uid(),
            group: metadata.gid(),
            no_new_privileges: false,
        };
        let (stranger, other_group) = (caller.user + 1, caller.group + 1);
        let gains = |mode: u32, caller: Caller| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            grants(&path.metadata().unwrap(), || false, &caller)
        };
        let user = Caller {
            user: stranger,
            ..caller
        };
        let group = Caller {
            group: other_group,
            ..caller
        };
        for (mode, of_user, of_group) in [
            (0o755, false, false),
            (0o4755, true, false),
            (0o2755, false, true),
            // Not executable by the group.
            (0o2745, false, false),
        ] {
            assert!(!gains(mode, caller), "{mode:o}");
            assert_eq!(gains(mode, user), of_user, "{mode:o}");
            assert_eq!(gains(mode, group), of_group, "{mode:o}");
            let nothing_new = Caller {
                no_new_privileges: true,
                ..user
            };
            assert!(!gains(mode, nothing_new), "{mode:o}");
        }
        let root = Caller { user: 0, ..caller };
        let user = Caller {
            user: 1000,
            ..caller
        };
        let metadata = std::fs::metadata("/").unwrap();
        assert!(grants(&metadata, || true, &user));
        assert!(!grants(&metadata, || true, &root));
    }

    #[test]
    fn of_a_script_the_interpreter_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let mut fixed = vec![0; 64];
        fixed[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let fixed = write("fixed", &fixed);
        let why = refusal(&fixed);
        let (refused, words) = why.as_ref().unwrap();
        assert!(*refused == fixed && words.starts_with("linked statically"));
        let line = format!("#! {} -x\nexit\n", fixed.display());
        let script = write("script", line.as_bytes());
        assert_eq!(refusal(&script), why);
        let line = format!("#!{}", script.display());
        assert_eq!(refusal(&write("outer", line.as_bytes())), why);
        assert_eq!(refusal(&write("shell", b"#!/bin/sh\n")), None);
        // One that runs itself is the kernel's to refuse.
        let line = format!("#!{}\n", folder.path().join("itself").display());
        assert_eq!(refusal(&write("itself", line.as_bytes())), None);
    }

    #[test]
    fn patterns_are_checked_one_by_one() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            patterns(&words).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["*.gguf", "/m/*"]).as_deref(), Ok("*.gguf:/m/*"));
        for wrong in ["", "a:b", "a***", "[x"] {
            let error = check(&[wrong]).unwrap_err();
            assert!(
                error.starts_with(&format!("--files {wrong:?}: ")),
                "{error}"
            );
        }
    }
}
