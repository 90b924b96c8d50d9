//! Shares of fast memory for cgroups.
//!
//! What a cgroup uses is read here as an operator would read it, from `memory.numa_stat`, and where the
//! pages of a victim lie is asked of the kernel page by page.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{DROP_IN, FOLDER, MAIN, Manager, PATIENCE, SOCKET, put, start, until_home};
use crate::guest::late::within;
use crate::guest::measure::GOAL;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::subject::{KnownPages, Victim, census_cold, census_hot};
use crate::guest::tests::Context;

const ROOT: &str = "/sys/fs/cgroup";
/// The fast node of the topology `small-dram`.
const FAST: u32 = 0;
/// The bound, in MiB, and what of it may be exceeded.
const BOUND_MIB: u64 = 80;
const MOST: u64 = (BOUND_MIB << 20) / 100 * 102;
/// How long a class may be above its bound.
const BOUND_AFTER: Duration = Duration::from_secs(5);
/// How long it is watched that something stays as it is.
const WATCH: Duration = Duration::from_secs(10);

/// A cgroup with the memory controller, removed on drop; its processes must be gone by then.
struct Slice(PathBuf);

impl Slice {
    fn create(name: &str) -> Result<Self> {
        let root = Path::new(ROOT);
        std::fs::write(root.join("cgroup.subtree_control"), "+memory")
            .context("cannot switch the memory controller on")?;
        let path = root.join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// Starts a victim in it: memory is charged to the cgroup in which it is first touched.
    fn victim(&self, words: &str) -> Result<Victim> {
        let enter = |group: &Path| std::fs::write(group.join("cgroup.procs"), "0");
        enter(&self.0).with_context(|| self.0.display().to_string())?;
        let victim = Victim::start(words, 1);
        enter(Path::new(ROOT)).context(ROOT)?;
        victim
    }

    /// Bytes that it has on the fast node.
    fn used(&self) -> Result<u64> {
        let path = self.0.join("memory.numa_stat");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let lists = text.lines().filter(|line| {
            let name = line.split(' ').next().unwrap_or_default();
            name.starts_with("active_") || name.starts_with("inactive_") || name == "unevictable"
        });
        let on_fast = |line: &str| {
            let mut fields = line.split(' ');
            let field = fields.find_map(|field| field.strip_prefix(&format!("N{FAST}=")));
            field.and_then(|bytes| bytes.parse::<u64>().ok())
        };
        let sum: Option<u64> = lists.map(on_fast).sum();
        sum.with_context(|| format!("{} has no node {FAST}: {text}", path.display()))
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The share of all pages that are on the fast node.
fn at_home(known: &[KnownPages]) -> Result<f64> {
    let (hot, cold) = (census_hot(known, &[FAST])?, census_cold(known, &[FAST])?);
    Ok((hot.there + cold.there) as f64 / (hot.asked + cold.asked) as f64)
}

/// A class that is above its bound is brought down to it in time and stays there, its pages in use
/// stay home, others come up beyond that; and other pages come home when they are in use instead.
pub(super) fn high(context: &mut Context) -> Result<()> {
    let slice = Slice::create("bound")?;
    let mut bound = slice.victim(&format!("--node {FAST} --size 160 --hot 16"))?;
    let other = Victim::start("--node 1 --size 64 --hot 8 --scattered", 1)?;
    ensure!(
        slice.used()? > 150 << 20,
        "the victim is not charged to its cgroup"
    );
    let class = |key: &str| format!("[class.bound]\ncgroup = {:?}\n{key}\n", slice.0.display());
    put(MAIN, &class(&format!("fast.high = \"{BOUND_MIB}MiB\"")))?;
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
    let hot = census_hot(&bound.known_pages(), &[FAST])?.share();
    ensure!(
        hot >= GOAL,
        "{:.1} % of the class's hot pages stayed",
        hot * 100.0
    );
    until_home(&mut service, &other.known_pages(), &[FAST], PATIENCE)?;

    bound.change_hot_set()?;
    let exchanged = until_home(&mut service, &bound.known_pages(), &[FAST], 3 * PATIENCE)?;
    most = most.max(watch(&slice, &mut service)?);
    manager.wait_for("STATUS=tiering ", 1)?;
    let ended = service.end(Signal::TERM)?;
    ended.clean()?;
    let shown = |line: &String| line.contains(r#""classes":[{"name":"bound","fast_pages":"#);
    ensure!(ended.lines.iter().any(shown), "no status names the class");
    clear()?;
    drop((bound, other));
    drop(slice);
    context.note(format!(
        "{seconds:.1} s down to the bound of {BOUND_MIB} MiB, then at most {:.2} MiB; other hot pages home after {exchanged:.1} s",
        most as f64 / f64::from(1 << 20)
    ))
}

/// The most that the class uses for a while, which is not above its bound.
fn watch(slice: &Slice, service: &mut Memtide) -> Result<u64> {
    let stretch = Stretch::begin();
    let mut most = 0;
    while stretch.elapsed() < WATCH {
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

/// Memory of a class that is not in use stays while others press, for it is protected; and goes when it
/// is not.
pub(super) fn low(context: &mut Context) -> Result<()> {
    let slice = Slice::create("calm")?;
    let calm = slice.victim(&format!("--node {FAST} --size 48 --hot 1"))?;
    // Bound to the node, so what presses finds no other pages that could leave.
    let filler = Victim::start(&format!("--node {FAST} --leave-free 100 --keep-policy"), 1)?;
    let press = Victim::start("--node 1 --size 160 --hot 96", 1)?;
    let class = format!("[class.calm]\ncgroup = {:?}\n", slice.0.display());
    put(MAIN, &format!("{class}fast.low = \"64MiB\"\n"))?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    let pressing = |least: f64| -> Result<bool> {
        Ok(census_hot(&press.known_pages(), &[FAST])?.share() >= least)
    };
    let stretch = Stretch::begin();
    while !pressing(0.4)? {
        within(&stretch, 3 * PATIENCE, || {
            "others did not come up".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let stretch = Stretch::begin();
    let mut least = 1.0_f64;
    while stretch.elapsed() < 2 * WATCH {
        least = least.min(at_home(&calm.known_pages())?);
        ensure!(
            least >= GOAL,
            "{:.1} % of what is protected is home",
            least * 100.0
        );
        service.check()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    put(DROP_IN, "[class.calm]\nfast.low = \"0\"\n")?;
    service.signal(Signal::HUP)?;
    manager.wait_for("READY=1", 2)?;
    let stretch = Stretch::begin();
    while at_home(&calm.known_pages())? > 0.8 {
        within(&stretch, 6 * PATIENCE, || {
            "what is not protected did not leave".to_owned()
        })?;
        service.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let gone = stretch.elapsed().as_secs_f64();
    service.end(Signal::TERM)?.clean()?;
    clear()?;
    drop((calm, press, filler));
    drop(slice);
    context.note(format!(
        "at least {:.2} % stayed while protected; a fifth went {gone:.1} s after that ended",
        least * 100.0
    ))
}

fn clear() -> Result<()> {
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    Ok(())
}
