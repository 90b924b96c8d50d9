//! One reload after the other, with configurations drawn at random, right and wrong ones, while a program
//! changes what it uses.
//!
//! The service must take each right one, refuse each wrong one, go on working, and be no larger in the
//! last quarter than it was in the second, when it has seen all kinds. Where it is, it must not grow on when all
//! of that is done once more.
//!
//! What it keeps is seen from its size only if it gives the rest back. So it runs without huge pages, whose size
//! goes in steps of 2 MiB, and its allocator takes large pieces from the kernel and gives them back at once.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use rustix::thread::disable_transparent_huge_pages;

use super::shares::Slice;
use super::{FOLDER, MAIN, Manager, PATIENCE, SOCKET, put, serve, socket, until_home};
use crate::guest::memtide::{Line, Memtide};
use crate::guest::random::SplitMix;
use crate::guest::tests::Context;
use crate::guest::tests::manners::SMALL;
use crate::guest::tests::manners::settings::Settings;

/// So often the program uses other memory.
const CHANGES_EVERY: u64 = 25;
/// The service may grow by so much from the second quarter of the reloads to the last, in KiB: what its allocator
/// keeps.
const GROWTH_KIB: u64 = 512;
/// So often all of it is done where the service grew by more.
const ROUNDS: usize = 2;
/// An allocator that keeps little: by itself it would keep twice the largest piece that was ever given back.
const GIVE_BACK: &str = "glibc.malloc.mmap_threshold=16384:glibc.malloc.trim_threshold=16384";
/// So often it is told how far it is.
const TELL_EVERY: u64 = 250;
/// What no configuration may say, each for another reason.
const WRONG: [&str; 8] = [
    "[tier\n",
    "[tier]\nwindow = 6\n",
    "[tier]\ntiers = \"0/7\"\n",
    "[tier]\nrate_limti = \"1GiB\"\n",
    "[nonsense]\nall = true\n",
    "[class.a]\ncgroup = \"/a\"\nfast.low = \"2MiB\"\nfast.high = \"1MiB\"\n",
    "[class.a]\ncgroup = \"/a\"\ntier = false\nfast.low = \"1MiB\"\n",
    "[select]\nall = tr",
];

/// As many as fit into a run of everything.
pub(super) fn some(context: &mut Context) -> Result<()> {
    reloads(context, 300)
}

/// As many as the service must bear.
pub(super) fn many(context: &mut Context) -> Result<()> {
    reloads(context, 10_000)
}

/// A right configuration: the class of the program among others whose names come before it and after it,
/// and some options. One in twenty has another window, and says so: that needs another run.
fn right(random: &mut SplitMix, slice: &Slice) -> (String, bool) {
    let mut text = String::new();
    let maybe = |random: &mut SplitMix, keys: &[&str]| {
        let n = random.below(keys.len() as u64 + 1) as usize;
        keys.get(n).copied().unwrap_or_default().to_owned()
    };
    text += "[tier]\n";
    let rates = ["rate_limit = \"64MiB\"\n", "rate_limit = \"1GiB\"\n"];
    text += &maybe(random, &rates);
    text += &maybe(random, &["observe_cpu = \"10\"\n", "explain = true\n"]);
    let idle = ["demote_idle = \"10m\"\n", "demote_idle = \"2h\"\n"];
    text += &maybe(random, &idle);
    let other_window = random.below(20) == 0;
    if other_window {
        text += "window = \"6s\"\n";
    }
    text += "[select]\n";
    text += &maybe(random, &["demote = false\n", "demote_idle = false\n"]);
    for (name, user) in [("a", 1), ("b", 2), ("z", 3)] {
        if random.below(2) == 0 {
            text += &format!("[class.{name}]\nuser = \"{user}{}\"\n", random.below(9));
            let keys = ["leave_alone = true\n", "pressure = \"ignore\"\n"];
            text += &maybe(random, &keys);
        }
    }
    let shares = [
        "fast.low = \"4MiB\"",
        "demote = true\nfast.low = \"2MiB\"\nfast.high = \"90%\"",
        "tier = false",
        "priority = 3",
        "",
    ];
    let keys = shares[random.below(shares.len() as u64) as usize];
    (text + &slice.class("mill", keys), other_window)
}

/// The service as it is reloaded.
struct Reloaded<'a> {
    service: &'a mut Memtide,
    manager: &'a Manager,
    times: usize,
    /// After each reload.
    holds: Vec<Holds>,
}

impl Reloaded<'_> {
    /// Reloads `text`, and waits until the service has said that it is ready again.
    fn reload(&mut self, text: &str) -> Result<()> {
        put(MAIN, text)?;
        self.service.signal(Signal::HUP)?;
        self.times += 1;
        let ready = self.manager.wait_for("READY=1", self.times + 1);
        ready.with_context(|| format!("reload {}: {text}", self.times))?;
        self.holds.push(Holds::of(self.service.id())?);
        self.service.check()
    }
}

fn reloads(context: &mut Context, times: u64) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let before = Settings::now();
    let slice = Slice::create("mill")?;
    let mut victim = slice.victim(SMALL)?;
    let plain = slice.class("mill", "");
    put(MAIN, &plain)?;
    let manager = Manager::listen()?;
    let mut command = Command::new("memtide");
    command.env("GLIBC_TUNABLES", GIVE_BACK);
    let mut service = without_huge_pages(|| serve(command))?;
    manager.wait_for("READY=1", 1)?;
    let mut random = SplitMix::new(11);
    let mut reloaded = Reloaded {
        service: &mut service,
        manager: &manager,
        times: 0,
        holds: Vec::new(),
    };
    let (mut refused, mut wanted_runs) = (0, 1);
    let mut window = false;
    let mut grown = Vec::new();
    let (early, late) = loop {
        let first = reloaded.holds.len();
        for n in 0..times {
            let wrong = random.below(3) == 0;
            if wrong {
                refused += 1;
                reloaded.reload(WRONG[random.below(WRONG.len() as u64) as usize])?;
            } else {
                let (text, other_window) = right(&mut random, &slice);
                wanted_runs +=
                    u64::from(other_window != std::mem::replace(&mut window, other_window));
                reloaded.reload(&text)?;
            }
            if n % CHANGES_EVERY == CHANGES_EVERY - 1 {
                victim.change_hot_set()?;
            }
            // A guest that says nothing for long has hung.
            if (n + 1) % TELL_EVERY == 0 {
                context.note(format!("{} reloads", n + 1))?;
            }
        }
        wanted_runs += u64::from(std::mem::replace(&mut window, false));
        reloaded.reload(&plain)?;
        // A run opens files, and takes memory, as it looks at memory, and gives them back. What it never gives back
        // is there at every moment.
        let holds = &reloaded.holds[first..];
        let quarters: Vec<Holds> = holds
            .chunks(holds.len().div_ceil(4))
            .map(Holds::least)
            .collect();
        let (early, late) = (quarters[1], quarters[3]);
        let stays = late.kib <= early.kib + GROWTH_KIB
            && late.files <= early.files + 2
            && late.threads <= early.threads + 1;
        if stays {
            break (early, late);
        }
        // Something that is made once may come late. What is lost grows on.
        grown.push(quarters);
        ensure!(
            grown.len() < ROUNDS,
            "the service has grown; it held at least, by quarters of the time: {grown:?}"
        );
        context.note(format!("by quarters of the time: {grown:?}; once more"))?;
    };
    let seconds = until_home(
        &mut service,
        &victim.known_pages(),
        &context.dram.clone(),
        PATIENCE,
    )
    .with_context(socket::status)?;
    let lines = service.end(Signal::TERM)?.clean()?;
    let told = lines.iter().filter(|line| {
        matches!(line, Line::Notice { text } if text.contains("the old configuration is in force"))
    });
    let told = told.count();
    ensure!(
        told == refused,
        "{refused} were wrong, and {told} were refused"
    );
    let runs = lines.iter().filter(|line| matches!(line, Line::Summary(_)));
    let runs = runs.count() as u64;
    ensure!(
        runs == wanted_runs,
        "{runs} runs; other windows need {wanted_runs}, and nothing else another one"
    );
    before.check_unchanged()?;
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    drop(victim);
    context.note(format!(
        "{} reloads, {refused} refused, {runs} runs; {early:?} became {late:?}; home {seconds:.1} s after the last",
        times * (1 + grown.len() as u64)
    ))
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Holds {
    files: u64,
    threads: u64,
    /// Anonymous memory, in KiB.
    kib: u64,
}

impl Holds {
    fn of(pid: u32) -> Result<Holds> {
        Ok(Holds {
            files: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            threads: status(pid, "Threads:")?,
            kib: status(pid, "RssAnon:")?,
        })
    }

    /// The least of each.
    fn least(all: &[Holds]) -> Holds {
        let least = |of: fn(&Holds) -> u64| all.iter().map(of).min().unwrap_or(0);
        Holds {
            files: least(|holds| holds.files),
            threads: least(|holds| holds.threads),
            kib: least(|holds| holds.kib),
        }
    }
}

/// Starts a process that has no huge pages, nor have those that it starts.
fn without_huge_pages<T>(start: impl FnOnce() -> Result<T>) -> Result<T> {
    disable_transparent_huge_pages(true)?;
    let started = start();
    disable_transparent_huge_pages(false)?;
    started
}

/// A number of a process's status.
fn status(pid: u32, name: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).context(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_ascii_whitespace().next());
    let number = word.and_then(|number| number.parse().ok());
    number.context(name.to_owned())
}
