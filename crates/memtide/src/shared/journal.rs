//! A live run written down (`--journal`), and run again (`--from-journal`).
//!
//! # Shape
//!
//! Lines of JSON. The first is the [`Head`]: what the world was, and the options.
//! Each other is a [`Line`]: a turn begins, the loop called the world and was
//! answered, the loop told something, the run ends.
//!
//! # Properties
//!
//! - A run that is killed leaves a journal that can be read up to its last whole
//!   turn. So the file stands in its place from its head on, and is not renamed at
//!   the end; lines are handed to the kernel turn by turn.
//! - It tells where programs' memory lies, so its mode is 0600.
//! - A journal that cannot be written any more ends there; the run goes on, and
//!   says so.
//! - To run one again takes no privilege: the only file that is opened is it.

use crate::shared::outside;
use anyhow::{Context as _, bail};
use memtide_core::topology::Topology;
use memtide_linux::files::Output;
use memtide_loop::World;
use memtide_loop::balance::{BalanceConfig, Balancer};
use memtide_loop::journal::{
    Answer, Call, Entry, Facts, Journal, Line, Recording, Replaying, Telling,
};
use memtide_loop::options::{BalanceOptions, Classes, TierOptions};
use memtide_loop::report::{Event, Reporter};
use memtide_loop::tier::{TierConfig, Tierer};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The version of the shape.
const SHAPE: u32 = 1;
/// Bytes of the head.
const LONGEST_HEAD: u64 = 16 << 20;
/// Bytes of another line: where millions of pages are.
const LONGEST_LINE: u64 = 256 << 20;
/// Bytes of a line that are shown before and after a difference in it.
const SHOWN: (usize, usize) = (60, 100);

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    memtide_journal: u32,
    version: String,
    run: Run,
    facts: Facts,
}

/// Which loop ran, and all that it was told.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    Tier {
        options: TierOptions,
        /// Absent without classes, as in journals from before there were any.
        #[serde(default, skip_serializing_if = "Classes::is_empty")]
        classes: Classes,
        seed: u64,
    },
    Balance {
        options: BalanceOptions,
        /// Whether the source tells in rounds.
        by_rounds: bool,
    },
}

/// The journal of a live run, if one was asked for.
pub struct Journaled(Option<RefCell<Writer>>);

struct Writer {
    path: PathBuf,
    to: BufWriter<Output>,
    /// Nothing more is written.
    ended: bool,
    /// Why, until it is told.
    failed: Option<io::Error>,
}

impl Journaled {
    /// Begins the journal at `path` with its head.
    pub fn begin(path: Option<&Path>, world: &dyn World, run: Run) -> anyhow::Result<Journaled> {
        let Some(path) = path else {
            return Ok(Journaled(None));
        };
        let head = Head {
            memtide_journal: SHAPE,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run,
            facts: Facts::of(world),
        };
        let begin = || {
            let mut output = Output::create_private(path)?;
            let mut line = serde_json::to_vec(&head)?;
            line.push(b'\n');
            output.write_all(&line)?;
            output.commit_and_go_on()
        };
        let file =
            begin().with_context(|| format!("{}: cannot be written", outside::path(path)))?;
        Ok(Journaled(Some(RefCell::new(Writer {
            path: path.to_owned(),
            to: BufWriter::new(file),
            ended: false,
            failed: None,
        }))))
    }

    /// Does `what`, and writes it down behind `mark`.
    pub fn note<T>(
        &self,
        mark: Option<Line<'_>>,
        world: &mut dyn World,
        reporter: &mut dyn Reporter,
        what: impl FnOnce(&mut dyn World, &mut dyn Reporter) -> T,
    ) -> T {
        let Some(journal) = &self.0 else {
            return what(world, reporter);
        };
        if let Some(mark) = mark {
            journal.borrow_mut().line(mark);
        }
        let done = what(
            &mut Recording::new(world, journal),
            &mut Telling::new(reporter, journal),
        );
        if let Some(text) = journal.borrow_mut().hand_on() {
            reporter.event(world.now(), Event::Notice { text });
        }
        done
    }
}

impl Writer {
    /// Hands all lines to the kernel. What went wrong, in a sentence.
    fn hand_on(&mut self) -> Option<String> {
        if !self.ended
            && let Err(error) = self.to.flush()
        {
            self.fails(error);
        }
        let error = self.failed.take()?;
        let path = outside::path(&self.path);
        Some(format!(
            "{path}: {error}; the journal ends here, the run goes on"
        ))
    }

    fn fails(&mut self, error: io::Error) {
        self.ended = true;
        self.failed = Some(error);
    }
}

impl Journal for Writer {
    fn line(&mut self, line: Line<'_>) {
        if self.ended {
            return;
        }
        let mut text = serde_json::to_vec(&line).expect("plain data");
        text.push(b'\n');
        let written = match text.len() as u64 <= LONGEST_LINE {
            true => self.to.write_all(&text),
            false => Err(io::Error::other("a line is longer than can be read again")),
        };
        if let Err(error) = written {
            self.fails(error);
        }
    }
}

/// The lines of a journal, one after the other.
struct Tape<R> {
    from: R,
    /// The number of the line that is next.
    number: u64,
    next: Option<String>,
    /// There is no further line.
    over: bool,
    end: Option<End>,
}

/// What nothing can be compared behind.
enum End {
    /// The journal has no further line.
    Cut,
    Difference(String),
    Failed(anyhow::Error),
}

impl<R: BufRead> Tape<R> {
    /// The next line, unless there is none or nothing is comparable any more.
    fn line(&mut self) -> Option<&str> {
        if self.end.is_some() {
            return None;
        }
        if self.next.is_none() && !self.over {
            match self.read() {
                Ok(next) => {
                    self.over = next.is_none();
                    self.next = next;
                }
                Err(error) => self.end = Some(End::Failed(error)),
            }
        }
        self.next.as_deref()
    }

    fn read(&mut self) -> anyhow::Result<Option<String>> {
        let most = match self.number {
            1 => LONGEST_HEAD,
            _ => LONGEST_LINE,
        };
        let mut bytes = Vec::new();
        self.from
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut bytes)?;
        if bytes.pop_if(|last| *last == b'\n').is_none() {
            if bytes.len() as u64 == most {
                bail!("line {}: longer than {} MiB", self.number, most >> 20);
            }
            // The writer was ended in the middle of it.
            return Ok(None);
        }
        let text = String::from_utf8(bytes);
        let text = text.with_context(|| format!("line {}: not UTF-8", self.number))?;
        Ok(Some(text))
    }

    fn pass(&mut self) {
        self.next = None;
        self.number += 1;
    }

    /// What the next line says.
    fn entry(&mut self) -> Option<Entry> {
        let number = self.number;
        match serde_json::from_str(self.line()?) {
            Ok(entry) => Some(entry),
            Err(error) => {
                let error = anyhow::Error::new(error);
                let error = error.context(format!("line {number}: not a line of a journal"));
                self.end = Some(End::Failed(error));
                None
            }
        }
    }

    /// Whether `now` is the next line, which is then passed.
    fn compare(&mut self, now: &str) {
        let number = self.number;
        let difference = match self.line() {
            Some(written) if written == now => return self.pass(),
            Some(written) => difference(number, written, now),
            None => {
                self.end.get_or_insert(End::Cut);
                return;
            }
        };
        // What makes no sense is no difference.
        if self.entry().is_some() {
            self.end = Some(End::Difference(difference));
        }
    }
}

/// Where two lines part, in one line.
fn difference(number: u64, written: &str, now: &str) -> String {
    let pairs = written.char_indices().zip(now.chars());
    let same = pairs.take_while(|((_, a), b)| a == b).last();
    let at = same.map_or(0, |((at, c), _)| at + c.len_utf8());
    let part = |text: &str| {
        let (from, to) = (at.saturating_sub(SHOWN.0), (at + SHOWN.1).min(text.len()));
        let (from, to) = (text.floor_char_boundary(from), text.floor_char_boundary(to));
        let before = if from > 0 { "..." } else { "" };
        let after = if to < text.len() { "..." } else { "" };
        outside::outside(&format!("{before}{}{after}", &text[from..to])).into_owned()
    };
    format!(
        "line {number}, character {}: written was {}, now came {}",
        at + 1,
        part(written),
        part(now)
    )
}

/// The answers of a tape, which are passed when they are written again.
struct Answers<'a, R>(&'a RefCell<Tape<R>>);

impl<R: BufRead> Iterator for Answers<'_, R> {
    type Item = (Call, Answer);

    fn next(&mut self) -> Option<(Call, Answer)> {
        match self.0.borrow_mut().entry()? {
            Entry::Call { call, answer } => Some((call, answer)),
            Entry::Step | Entry::Finish | Entry::Event(_) => None,
        }
    }
}

/// Holds what is written now against a tape.
struct Comparing<'a, R>(&'a RefCell<Tape<R>>);

impl<R: BufRead> Journal for Comparing<'_, R> {
    fn line(&mut self, line: Line<'_>) {
        let mut tape = self.0.borrow_mut();
        if tape.end.is_none() {
            tape.compare(&serde_json::to_string(&line).expect("plain data"));
        }
    }
}

/// Either loop.
enum Managed {
    Tier(Box<Tierer>),
    Balance(Box<Balancer>),
}

impl Managed {
    fn new(world: &mut dyn World, run: &Run) -> anyhow::Result<Managed> {
        Ok(match run {
            Run::Tier {
                options,
                classes,
                seed,
            } => {
                let config = TierConfig::new(options, world.topology(), world.page(), *seed)?;
                let config = config.with_classes(classes, world.topology(), world.page());
                Managed::Tier(Box::new(Tierer::new(world, config)))
            }
            Run::Balance { options, by_rounds } => {
                let config = BalanceConfig::new(options, world.page(), *by_rounds)?;
                Managed::Balance(Box::new(Balancer::new(world, config)?))
            }
        })
    }

    /// A turn; that it fails is in the journal, too.
    fn step(&mut self, world: &mut dyn World, reporter: &mut dyn Reporter) {
        let _ = match self {
            Managed::Tier(tierer) => tierer.step(world, reporter),
            Managed::Balance(balancer) => balancer.step(world, reporter),
        };
    }

    fn finish(&mut self, world: &mut dyn World) {
        let _ = match self {
            Managed::Tier(tierer) => tierer.finish(world),
            Managed::Balance(balancer) => balancer.finish(world).map(|_| ()),
        };
    }
}

/// Runs the journal at `path`, of `memtide tier` or `memtide balance`, again. The line that says how
/// that went.
pub fn run_again(path: &Path, command: &str) -> anyhow::Result<String> {
    let name = || outside::path(path);
    let file = File::open(path).with_context(name)?;
    let (turns, end) = again(BufReader::new(file), command).with_context(name)?;
    match end {
        None => Ok(format!("all {turns} turns agree\n")),
        Some(End::Cut) => Ok(format!(
            "all {turns} whole turns agree; the journal ends without the end of its run\n"
        )),
        Some(End::Difference(what)) => bail!("{}: after {turns} turns that agree, {what}", name()),
        Some(End::Failed(error)) => Err(error.context(name())),
    }
}

/// A journal of any bytes, for the fuzz target: it runs again, or there is a difference or an error
/// of one line.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    for command in ["tier", "balance"] {
        let said = match again(bytes, command) {
            Ok((_, None | Some(End::Cut))) => continue,
            Ok((_, Some(End::Difference(what)))) => what,
            Ok((_, Some(End::Failed(error)))) | Err(error) => outside::causes(&error),
        };
        let said = outside::message(&said);
        assert!(!said.is_empty() && !said.contains('\n'), "{said}");
    }
}

/// How many turns agree, and what ended that before the run's own end.
fn again(from: impl BufRead, command: &str) -> anyhow::Result<(u64, Option<End>)> {
    let mut tape = Tape {
        from,
        number: 1,
        next: None,
        over: false,
        end: None,
    };
    let head = tape.line().map(serde_json::from_str::<Head>);
    let head = match (head, tape.end.take()) {
        (Some(head), _) => head.context("line 1: not the head of a journal")?,
        (None, Some(End::Failed(error))) => return Err(error),
        (None, _) => bail!("line 1: there is no head of a journal"),
    };
    if head.memtide_journal != SHAPE {
        bail!(
            "line 1: a journal of shape {}, not {SHAPE}",
            head.memtide_journal
        );
    }
    let wrote = match head.run {
        Run::Tier { .. } => "tier",
        Run::Balance { .. } => "balance",
    };
    if wrote != command {
        bail!("a journal of memtide {wrote}; use memtide {wrote} --from-journal");
    }
    tape.pass();
    let _: Topology = head.facts.topology.clone().try_into().context("line 1")?;
    let tape = RefCell::new(tape);
    let journal = RefCell::new(Comparing(&tape));
    let mut replaying = Replaying::new(head.facts, Answers(&tape)).context("line 1")?;
    let mut world = Recording::new(&mut replaying, &journal);
    let mut managed = Managed::new(&mut world, &head.run)?;
    let mut turns = 0;
    loop {
        let entry = tape.borrow_mut().entry();
        match entry {
            Some(Entry::Step) => {
                journal.borrow_mut().line(Line::Step);
                managed.step(&mut world, &mut Telling::new(&mut (), &journal));
                turns += u64::from(tape.borrow().end.is_none());
            }
            Some(Entry::Finish) => {
                journal.borrow_mut().line(Line::Finish);
                managed.finish(&mut world);
                break;
            }
            // The loop has done all of its turn, and did more of it before.
            Some(_) => tape.borrow_mut().compare("nothing"),
            None => {
                tape.borrow_mut().end.get_or_insert(End::Cut);
                break;
            }
        }
    }
    let mut tape = tape.borrow_mut();
    if tape.line().is_some() {
        tape.compare("nothing");
    }
    let end = tape.end.take();
    Ok((turns, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::units::Millis;
    use memtide_linux::files::faults::{self, Fault};
    use memtide_linux::files::refusals::{self, Ended};
    use memtide_loop::testing::{FakeProcess, FakeWorld, SLOW};
    use std::os::unix::fs::MetadataExt;

    /// The notices that people are given.
    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Reporter for Heard {
        fn event(&mut self, _: Millis, event: Event) {
            if let Event::Notice { text } = event {
                self.0.push(text);
            }
        }
    }

    /// Some turns of tiering with a journal at `path`; the notices.
    fn run(path: &Path) -> anyhow::Result<Vec<String>> {
        let mut world = FakeWorld::two_tiers(50, 200);
        world.processes.push(FakeProcess::new(7, 100, 20, SLOW));
        let options = TierOptions::DEFAULT;
        let config = TierConfig::new(&options, world.topology(), world.page(), 5)?;
        let classes = Classes::new();
        let run = Run::Tier {
            options,
            classes,
            seed: 5,
        };
        let journal = Journaled::begin(Some(path), &world, run)?;
        let mut heard = Heard::default();
        let mut tierer = journal.note(None, &mut world, &mut heard, |world, _| {
            Tierer::new(world, config)
        });
        for _ in 0..4 {
            let turn = Some(Line::Step);
            journal.note(turn, &mut world, &mut heard, |world, reporter| {
                tierer.step(world, reporter)
            })?;
        }
        let finish = Some(Line::Finish);
        journal.note(finish, &mut world, &mut heard, |world, _| {
            tierer.finish(world)
        })?;
        Ok(heard.0)
    }

    /// Until its head is whole the file is what it was; from then on it can be read up to its
    /// last whole turn, and the run goes on.
    #[test]
    fn the_nth_failure_leaves_the_old_file_or_a_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.journal");
        let (notices, trail) = faults::trail(|| run(&path).unwrap());
        assert!(notices.is_empty() && trail.len() >= 9, "{trail:?}");
        let whole = std::fs::read_to_string(&path).unwrap();
        let (turns, end) = again(whole.as_bytes(), "tier").unwrap();
        assert!(turns == 4 && end.is_none(), "{turns} turns");
        for (nth, what) in trail.iter().enumerate() {
            for fault in [Fault::Fail(libc::ENOSPC), Fault::Die] {
                std::fs::write(&path, "old").unwrap();
                let done = faults::with(nth, fault, || run(&path));
                let now = std::fs::read_to_string(&path).unwrap();
                let at = format!("{fault:?} at {nth}, {what}");
                match trail[..nth].iter().any(|what| what == "rename the output") {
                    false => assert_eq!(now, "old", "{at}"),
                    true => {
                        assert!(whole.starts_with(&now), "{at}: {now}");
                        let (agree, end) = again(now.as_bytes(), "tier").expect(&at);
                        assert!(agree <= 4 && matches!(end, None | Some(End::Cut)), "{at}");
                        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{at}");
                    }
                }
                let said = match &done {
                    Ok(notices) => notices.concat(),
                    Err(error) => outside::causes(error),
                };
                assert!(said.contains("run.journal"), "{at}: {said}");
                assert_eq!(said.lines().count(), 1, "{at}: {said}");
                for left in std::fs::read_dir(dir.path()).unwrap() {
                    let left = left.unwrap();
                    if left.file_name() != "run.journal" {
                        assert_eq!(fault, Fault::Die, "{at}: {left:?} is left");
                        std::fs::remove_file(left.path()).unwrap();
                    }
                }
            }
        }
    }

    /// The same when an allocation is refused, which ends the run.
    #[test]
    fn whichever_allocation_is_refused_there_is_the_old_file_or_a_journal() {
        const NAME: &str = "shared::journal::tests::whichever_allocation_is_refused_there_is_the_old_file_or_a_journal";
        if let Some(place) = refusals::place() {
            refusals::begin();
            let _ = run(&place.join("run.journal"));
            std::process::exit(0);
        }
        let library = tempfile::tempdir().unwrap();
        let whole = library.path().join("whole.journal");
        run(&whole).unwrap();
        let whole = std::fs::read_to_string(whole).unwrap();
        let ended = refusals::Library::build(library.path()).each(
            || {
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join("run.journal"), "old").unwrap();
                dir
            },
            |dir| refusals::itself(NAME, dir.path()),
            |dir, ended, at| {
                let now = std::fs::read_to_string(dir.path().join("run.journal")).unwrap();
                if now != "old" {
                    assert!(whole.starts_with(&now), "{at}: {now}");
                    let (agree, end) = again(now.as_bytes(), "tier").expect(at);
                    assert!(agree <= 4 && matches!(end, None | Some(End::Cut)), "{at}");
                }
                let names = std::fs::read_dir(dir.path()).unwrap().count();
                let aborted = matches!(ended, Ended::Aborted);
                assert!(names == 1 || aborted, "{at}: {names} files");
            },
        );
        assert!(ended > 50, "only {ended}");
    }
}
