//! The packages of a release, installed, tried and removed on a machine that memtide was never on.
//!
//! dpkg and rpm are Debian's. Each package leaves nothing, so the next one finds a fresh machine, too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::run::{MIB, PROGRAM, table};
use super::{BootClass, Context, Test};
use crate::guest::subject::Victim;

/// Where the host puts a package of this name.
pub const DEB: &str = "/packages/memtide.deb";
/// The other one.
pub const RPM: &str = "/packages/memtide.rpm";

const MEMTIDE: &str = "/usr/bin/memtide";
const UNIT: &str = "/usr/lib/systemd/system/memtide.service";
const CONFIGURATION: &str = "/etc/memtide/memtide.toml";
const SHARE: &str = "/usr/share/memtide";
const MAN: &str = "/usr/share/man/man1";
/// Debian's rpm says no without the first; its database would be root's own and not the machine's.
const RPM_TOOL: [&str; 4] = ["rpm", "--force-debian", "--dbpath", "/var/lib/rpm"];
const NEEDS: &str = "[%{REQUIRENAME}\\n]";
/// What it provides.
const HAS: &str = "[%{PROVIDENAME}\\n]";
/// What is not of a package: the kernel's, what programs leave there while they run, the tools' books.
const OTHERS: [&str; 7] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var", "/packages"];

type Promise = fn(&mut Context) -> Result<()>;

const PROMISES: [(&str, Promise); 2] = [("deb", deb), ("rpm", rpm)];

pub(super) fn tests() -> Vec<Test> {
    let test = |(name, promise): (&str, Promise)| {
        Test::promise(format!("packages/{name}"), "cxl", BootClass::Fresh, promise)
    };
    PROMISES.into_iter().map(test).collect()
}

fn deb(context: &mut Context) -> Result<()> {
    for folder in ["/var/lib/dpkg/info", "/var/lib/dpkg/updates", "/var/log"] {
        std::fs::create_dir_all(folder)?;
    }
    for file in ["/var/lib/dpkg/status", "/var/lib/dpkg/available"] {
        std::fs::write(file, "")?;
    }
    goes_in_and_out(
        context,
        &["dpkg", "--install", DEB],
        &["dpkg", "--verify", "memtide"],
        // The configuration, too, which a removal alone leaves.
        &["dpkg", "--purge", "memtide"],
    )?;
    let known = said(&["dpkg-query", "--show"])?;
    ensure!(known.is_empty(), "{known}");
    Ok(())
}

fn rpm(context: &mut Context) -> Result<()> {
    let rpm = |words: &[&'static str]| [&RPM_TOOL, words].concat();
    // No other package is here that could bring what this one needs, so that is looked at by itself.
    let asked = |format| {
        said(&rpm(&[
            "--query",
            "--package",
            "--queryformat",
            format,
            RPM,
        ]))
    };
    let (needs, has) = (asked(NEEDS)?, asked(HAS)?);
    let other = needs.lines().find(|need| {
        let of_rpm = need.starts_with("rpmlib(");
        // Its configuration is its own.
        let own = has.lines().any(|provided| provided == *need);
        !of_rpm && !own && *need != "/bin/sh"
    });
    ensure!(other.is_none(), "needs {other:?}");
    goes_in_and_out(
        context,
        &rpm(&["--install", "--nodeps", RPM]),
        &rpm(&["--verify", "--nodeps", "memtide"]),
        &rpm(&["--erase", "memtide"]),
    )?;
    let known = said(&rpm(&["--query", "--all"]))?;
    ensure!(known.is_empty(), "{known}");
    Ok(())
}

fn goes_in_and_out(
    context: &mut Context,
    install: &[&str],
    verify: &[&str],
    remove: &[&str],
) -> Result<()> {
    let weights = table()?;
    let before = files()?;
    ensure!(!Path::new(MEMTIDE).exists(), "{MEMTIDE} is here already");
    said(install)?;
    let changed = said(verify)?;
    ensure!(changed.is_empty(), "not as packed: {changed}");
    let installed = files()?;
    context.note(format!("{} files", installed.difference(&before).count()))?;
    works(context)?;
    kill_a_run()?;
    ensure!(
        table()? != weights,
        "a killed program has put something back"
    );
    said(remove)?;
    // Settings that a killed run left go back before the program that knows them is gone.
    ensure!(table()? == weights, "{:?} instead of {weights:?}", table()?);
    let left: Vec<PathBuf> = files()?.symmetric_difference(&before).cloned().collect();
    ensure!(left.is_empty(), "not as before: {left:?}");
    Ok(())
}

/// What a user does first, with what was installed and nothing else.
fn works(context: &mut Context) -> Result<()> {
    let version = said(&[MEMTIDE, "--version"])?;
    ensure!(
        version.trim() == concat!("memtide ", env!("CARGO_PKG_VERSION")),
        "{version}"
    );
    said(&[MEMTIDE, "doctor", "--no-probe"])?;
    service()?;
    let scenario = format!("{SHARE}/scenarios/page-count.toml");
    let simulated = said(&[MEMTIDE, "sim", "run", &scenario])?;
    ensure!(simulated.lines().count() > 3, "{simulated}");
    for file in ["grafana-dashboard.json", "prometheus-rules.yml"] {
        let path = format!("{SHARE}/deploy/{file}");
        ensure!(Path::new(&path).is_file(), "no {path}");
    }
    let help = said(&[MEMTIDE, "--help"])?;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.map_while(|line| line.split_whitespace().next());
    let mut pages = 0;
    for command in commands.filter(|name| *name != "help") {
        let page = said(&["zcat", &format!("{MAN}/memtide-{command}.1.gz")])?;
        ensure!(page.contains("\n.TH "), "{command}: no man page: {page}");
        pages += 1;
    }
    ensure!(pages > 5, "{pages} commands: {help}");
    // The program finds the library, and the library this machine's C library.
    let words = [
        "pager", "run", "--files", "*.deb", "--budget", "4MiB", "--stats",
    ];
    let kept = run(&[&[MEMTIDE][..], &words, &["tar", "--version"]].concat())?;
    ensure!(kept.0.contains("GNU tar"), "{kept:?}");
    ensure!(
        kept.1.contains("memtide-pager: tar: "),
        "no word of the library: {kept:?}"
    );
    context.note(format!("{pages} man pages; {}", kept.1.trim()))
}

/// The unit starts what was installed, by a configuration that sets nothing.
fn service() -> Result<()> {
    let unit = std::fs::read_to_string(UNIT).context(UNIT)?;
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    ensure!(start == Some("/usr/bin/memtide serve"), "{start:?}");
    let checked = said(&[MEMTIDE, "serve", "--check"])?;
    ensure!(checked == format!("{CONFIGURATION}: valid\n"), "{checked}");
    let shown = said(&[MEMTIDE, "config", "--show"])?;
    ensure!(!shown.contains(CONFIGURATION), "{shown}");
    let default = said(&[MEMTIDE, "config", "--default"])?;
    ensure!(
        default == std::fs::read_to_string(CONFIGURATION)?,
        "{CONFIGURATION} is not what this memtide has by default"
    );
    Ok(())
}

/// Leaves weights in the kernel's table, and the note that says what stood there.
fn kill_a_run() -> Result<()> {
    let mut command = Command::new(MEMTIDE);
    command
        .args(["run", "-w", "0,2", "--weights", "0=5,2=2"])
        .arg("--apply-weights")
        .args(PROGRAM)
        .arg(MIB);
    let mut victim = Victim::spawn(command, 1)?;
    victim.child().kill()?;
    victim.child().wait()?;
    Ok(())
}

/// What it prints, if it succeeds.
fn said(words: &[&str]) -> Result<String> {
    run(words).map(|(output, _)| output)
}

/// What it prints on standard output and on standard error, if it succeeds.
fn run(words: &[&str]) -> Result<(String, String)> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .with_context(|| words.join(" "))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    let words = words.join(" ");
    ensure!(
        output.status.success(),
        "{words}: {}: {said}{errors}",
        output.status
    );
    Ok((said, errors))
}

/// Every file, and the folders with our name: those that several packages share come and stay.
fn files() -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::from("/")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            if OTHERS.iter().any(|other| path == Path::new(other)) {
                continue;
            }
            let is_folder = entry.file_type()?.is_dir();
            if !is_folder || entry.file_name() == "memtide" {
                found.insert(path.clone());
            }
            if is_folder {
                folders.push(path);
            }
        }
    }
    Ok(found)
}
