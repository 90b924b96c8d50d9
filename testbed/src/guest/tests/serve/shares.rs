//! Shares of fast memory for cgroups.
//!
//! What a cgroup uses is read here as an operator would read it, from `memory.numa_stat`, and where the
//! pages of a victim lie is asked of the kernel page by page.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::socket;
use super::{FOLDER, MAIN, Manager, PATIENCE, SOCKET, put, start, until_home};
use crate::guest::late::within;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::subject::{Victim, census_hot};
use crate::guest::tests::Context;

const ROOT: &str = "/sys/fs/cgroup";
/// The fast node of the topology `small-dram`.
pub(super) const FAST: u32 = 0;
/// The bound, in MiB, and what of it may be exceeded.
const BOUND_MIB: u64 = 80;
const MOST: u64 = (BOUND_MIB << 20) / 100 * 102;
/// How long a class may be above its bound.
pub(in crate::guest::tests) const BOUND_AFTER: Duration = Duration::from_secs(5);
/// What a class leaves free that fills the fast node, in MiB.
const FREE_MIB: u64 = 64;
/// How long a protected class is watched: on a quiet machine room is made within two seconds.
const KEPT_FOR: Duration = Duration::from_secs(15);
/// Until scattered hot pages of a class at its bound are home: the longest wait from one try, in
/// which others make way, to the next. It was 25 to 60 s.
pub(in crate::guest::tests) const EXCHANGED_WITHIN: Duration = Duration::from_secs(128);
/// How long it is watched that something stays as it is.
const WATCH: Duration = Duration::from_secs(10);

/// A cgroup with the memory controller, removed on drop; its processes must be gone by then.
pub(super) struct Slice(PathBuf);

impl Slice {
    pub(super) fn create(name: &str) -> Result<Self> {
        let root = Path::new(ROOT);
        std::fs::write(root.join("cgroup.subtree_control"), "+memory")
            .context("cannot switch the memory controller on")?;
        let path = root.join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// A cgroup in this one.
    pub(super) fn below(&self, name: &str) -> Result<Self> {
        std::fs::write(self.0.join("cgroup.subtree_control"), "+memory")
            .context("cannot switch the memory controller on")?;
        let path = self.0.join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// Starts something in it: memory is charged to the cgroup in which it is first touched.
    pub(super) fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let enter = |group: &Path| std::fs::write(group.join("cgroup.procs"), "0");
        enter(&self.0).with_context(|| self.0.display().to_string())?;
        let started = start();
        enter(Path::new(ROOT)).context(ROOT)?;
        started
    }

    pub(super) fn victim(&self, words: &str) -> Result<Victim> {
        self.start(|| Victim::start(words, 1))
    }

    /// Its class in a configuration, with `keys`.
    pub(super) fn class(&self, name: &str, keys: &str) -> String {
        format!("[class.{name}]\ncgroup = {:?}\n{keys}\n", self.0.display())
    }

    /// Bytes that it has on the fast node.
    pub(super) fn used(&self) -> Result<u64> {
        on_node(&self.0, FAST)
    }
}

/// Bytes that a cgroup has on a node.
pub(in crate::guest::tests) fn on_node(group: &Path, node: u32) -> Result<u64> {
    let path = group.join("memory.numa_stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lists = text.lines().filter(|line| {
        let name = line.split(' ').next().unwrap_or_default();
        name.starts_with("active_") || name.starts_with("inactive_") || name == "unevictable"
    });
    let there = |line: &str| {
        let mut fields = line.split(' ');
        let field = fields.find_map(|field| field.strip_prefix(&format!("N{node}=")));
        field.and_then(|bytes| bytes.parse::<u64>().ok())
    };
    let sum: Option<u64> = lists.map(there).sum();
    sum.with_context(|| format!("{} has no node {node}: {text}", path.display()))
}

impl Drop for Slice {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A class that is above its bound is brought down to it in time and stays there, its pages in use
/// are home, others come up beyond that; and other pages come home when they are in use instead.
pub(super) fn high(context: &mut Context) -> Result<()> {
    let slice = Slice::create("bound")?;
    let mut bound = slice.victim(&format!("--node {FAST} --size 160 --hot 16 --scattered"))?;
    let other = Victim::start("--node 1 --size 64 --hot 8 --scattered", 1)?;
    ensure!(
        slice.used()? > 150 << 20,
        "the victim is not charged to its cgroup"
    );
    let share = format!("fast.high = \"{BOUND_MIB}MiB\"");
    put(MAIN, &slice.class("bound", &share))?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    let stretch = Stretch::begin();
    while slice.used()? > MOST {
        within(&stretch, BOUND_AFTER, || {
            "the class was above its bound".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = stretch.elapsed().as_secs_f64();
    let mut most = watch(&slice, &mut service)?;
    // On a slow machine some may have left before it was seen what is idle: they come back.
    until_home(
        &mut service,
        &bound.known_pages(),
        &[FAST],
        EXCHANGED_WITHIN,
    )?;
    until_home(&mut service, &other.known_pages(), &[FAST], PATIENCE)?;
    // The rest may take minutes on a slow machine, and a guest that reports nothing for so long hangs.
    context.note(format!(
        "{seconds:.1} s down to the bound of {BOUND_MIB} MiB"
    ))?;

    // Nothing is exchanged as long as the class is paused.
    socket::says(&["pause", "bound"], "paused")?;
    bound.change_hot_set()?;
    let paused = census_hot(&bound.known_pages(), &[FAST])?.share();
    ensure!(
        paused < 0.9,
        "{paused} of the other hot pages are home already: nothing is to be exchanged"
    );
    most = most.max(watch(&slice, &mut service)?);
    let later = census_hot(&bound.known_pages(), &[FAST])?.share();
    ensure!(
        paused.to_bits() == later.to_bits(),
        "{paused} of a paused class's hot pages were home, and then {later}"
    );
    let pid = bound.pids()[0].to_string();
    let known = bound.known_pages();
    let address = known
        .first()
        .and_then(|pages| pages.hot.first())
        .context("no hot page")?;
    let address = format!("{address:#x}");
    socket::says(&["explain", &pid, &address], "its class is paused")?;
    socket::says(&["status"], "paused")?;
    socket::says(&["resume", "bound"], "resumed")?;
    let exchanged = until_home(
        &mut service,
        &bound.known_pages(),
        &[FAST],
        EXCHANGED_WITHIN,
    )?;
    most = most.max(watch(&slice, &mut service)?);
    manager.wait_for("STATUS=tiering ", 1)?;
    let ended = service.end(Signal::TERM)?;
    ended.clean()?;
    let shown =
        |line: &String| line.contains(r#""classes":[{"name":"bound","within":null,"fast_pages":"#);
    ensure!(ended.lines.iter().any(shown), "no status names the class");
    clear()?;
    drop((bound, other));
    drop(slice);
    context.note(format!(
        "at most {:.2} MiB then; other hot pages home after {exchanged:.1} s",
        most as f64 / f64::from(1 << 20)
    ))
}

/// Hot pages of others come home beside a class that is protected, and not in place of it, as long as it
/// is; without protection its idle pages make room for all of them.
pub(super) fn low(context: &mut Context) -> Result<()> {
    let slice = Slice::create("kept")?;
    // Idle, and fills the node.
    let kept = slice.victim(&format!("--node {FAST} --leave-free {FREE_MIB}"))?;
    let other = Victim::start("--node 1 --size 128 --hot 96", 1)?;
    let before = slice.used()?;
    let share = format!("fast.low = \"{}MiB\"", (before >> 20) + 1);
    put(MAIN, &slice.class("kept", &share))?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    let stretch = Stretch::begin();
    let mut least = before;
    while stretch.elapsed() < KEPT_FOR {
        least = least.min(slice.used()?);
        ensure!(
            least >= before / 100 * 98,
            "the class had {before} bytes of fast memory, all protected, and has {least}"
        );
        service.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let hot = census_hot(&other.known_pages(), &[FAST])?;
    ensure!(
        hot.share() < 0.9,
        "{:.0} % of the others' hot pages found room: the protection was not tried",
        hot.share() * 100.0
    );

    put(MAIN, &slice.class("kept", ""))?;
    service.signal(Signal::HUP)?;
    manager.wait_for("READY=1", 2)?;
    let seconds = until_home(&mut service, &other.known_pages(), &[FAST], 3 * PATIENCE)?;
    let after = slice.used()?;
    service.end(Signal::TERM)?.clean()?;
    clear()?;
    drop((kept, other));
    drop(slice);
    let mib = |bytes: u64| bytes >> 20;
    context.note(format!(
        "{} MiB protected: at least {} MiB stayed, {:.0} % of the others' hot pages found room; without protection all came home after {seconds:.1} s, and {} MiB stayed",
        mib(before), mib(least), hot.share() * 100.0, mib(after)
    ))
}

/// A bound around two classes holds for both together, and what is protected of one of them stays.
pub(super) fn nested(context: &mut Context) -> Result<()> {
    let around = Slice::create("around")?;
    let (kept, other) = (around.below("kept")?, around.below("other")?);
    let kept_mib = 48;
    let idle = kept.victim(&format!("--node {FAST} --size {kept_mib}"))?;
    let used = other.victim(&format!("--node {FAST} --size 128 --hot 16 --scattered"))?;
    // The kernel sums up a cgroup's memory within two seconds, that of those within it as well.
    let stretch = Stretch::begin();
    while around.used()? <= 170 << 20 {
        within(&stretch, PATIENCE, || {
            "the victims are not charged to their cgroups".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let before = kept.used()?;
    let classes = [
        around.class("around", &format!("fast.high = \"{BOUND_MIB}MiB\"")),
        kept.class("kept", &format!("fast.low = \"{}MiB\"", (before >> 20) + 1)),
        other.class("other", ""),
    ];
    put(MAIN, &classes.concat())?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    let stretch = Stretch::begin();
    while around.used()? > MOST {
        within(&stretch, BOUND_AFTER, || {
            "the classes were above the bound around them".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = stretch.elapsed().as_secs_f64();
    let most = watch(&around, &mut service)?;
    let least = kept.used()?;
    ensure!(
        least >= before / 100 * 98,
        "the class had {before} bytes of fast memory, all protected, and has {least}"
    );
    socket::says(&["status"], "in around")?;
    until_home(&mut service, &used.known_pages(), &[FAST], EXCHANGED_WITHIN)?;
    service.end(Signal::TERM)?.clean()?;
    clear()?;
    drop((idle, used));
    drop((kept, other));
    drop(around);
    context.note(format!(
        "{seconds:.1} s down to the bound of {BOUND_MIB} MiB around both, at most {:.2} MiB then; {} MiB protected, {} MiB stayed",
        most as f64 / f64::from(1 << 20),
        before >> 20,
        least >> 20
    ))
}

/// The most that the class uses for a while, which is not above its bound.
fn watch(slice: &Slice, service: &mut Memtide) -> Result<u64> {
    let stretch = Stretch::begin();
    let mut most = 0;
    while !stretch.is_over(WATCH) {
        most = most.max(slice.used()?);
        ensure!(
            most <= MOST,
            "the class uses {most} bytes of fast memory, and {MOST} are the bound and 2 %"
        );
        service.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(most)
}

pub(super) fn clear() -> Result<()> {
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    Ok(())
}
