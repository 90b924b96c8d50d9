//! DAMON as a [`Source`]: looks and glances over its two kdamonds.

use super::damon::plan::PlanError;
use super::damon::{Damon, DamonError, Ended, Session, Target, kept_records};
use super::observe::{Abilities, Sink, Source, SourceError, Span, Subject, View};
use crate::fs::proc::Process;
use crate::fs::{FsError, Root};
use crate::perf::event;
use memtide_core::access;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
use memtide_core::units::PageSize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a view that ended for a reason that may pass is begun anew before
/// it counts as failed.
const TRIES: u32 = 3;

/// DAMON. Dropping it gives DAMON back as it was.
#[derive(Debug)]
pub struct DamonSource {
    damon: Damon,
    root: Root,
    page: PageSize,
    look: Option<Running>,
    glance: Option<Running>,
    /// Sessions that are being ended, by view.
    ending: [Option<JoinHandle<Result<Duration, DamonError>>>; 2],
    /// CPU time of kdamonds that have ended.
    ended_cpu: Duration,
    lost: u64,
    /// The pieces into which the present glance's spans are cut, in pages.
    piece: Option<u64>,
    /// Where among the wanted pages the next look that cannot take all begins.
    turn: u64,
}

/// A session and what it was asked for.
#[derive(Debug)]
struct Running {
    session: Session,
    subjects: Vec<Subject>,
    interval: Duration,
    owners: Vec<OwnerId>,
    /// Passes told of.
    passes: u64,
    tries: u32,
    /// What the kdamond had used when it was asked last.
    known: Duration,
    /// What it will have used when it ends, and the passes told of by then, once it was told to.
    ends_with: Option<(Duration, u64)>,
}

impl Running {
    /// The kdamond's processor time. It cannot be read any more once that has ended, so that what it
    /// will be is reckoned when it is told to end.
    fn cpu_time(&mut self) -> Duration {
        if let Some((cpu, _)) = self.ends_with {
            return cpu;
        }
        self.known = self.session.cpu_time().unwrap_or(self.known);
        self.known
    }

    /// The pass that is under way is the last. It has cleared its pages' bits by now and will read
    /// them, which costs about as much.
    fn will_end(&mut self) {
        let halves = u32::try_from(2 * self.passes + 1).unwrap_or(u32::MAX);
        let cpu = self.cpu_time();
        self.ends_with = Some((cpu + cpu / halves, self.passes));
    }
}

impl DamonSource {
    /// Listens to `damon`; looks under `root` whether processes are alive.
    pub fn new(damon: Damon, root: Root, page: PageSize) -> DamonSource {
        DamonSource {
            damon,
            root,
            page,
            look: None,
            glance: None,
            ending: [None, None],
            ended_cpu: Duration::ZERO,
            lost: 0,
            piece: None,
            turn: 0,
        }
    }

    /// Begins a view of `subjects`; how many of their pages it takes in.
    fn begin(
        &mut self,
        view: View,
        subjects: &[Subject],
        interval: Duration,
        tries: u32,
    ) -> Result<u64, SourceError> {
        self.end(view)?;
        let mut subjects: Vec<Subject> = subjects.to_vec();
        subjects.retain(|subject| !subject.spans.is_empty());
        if !subjects.is_empty() {
            self.settle(view)?;
        }
        let mut tried = 0;
        while !subjects.is_empty() {
            let targets: Vec<Target> = subjects.iter().map(|s| self.target(s)).collect();
            let session = match view {
                View::Look => self.damon.look(&targets, interval),
                View::Glance => self.watch(&targets, interval),
            };
            match session {
                Ok(session) => {
                    let owners = subjects.iter().map(|subject| subject.owner).collect();
                    let pages = subjects.iter().map(Subject::pages).sum();
                    *self.slot(view) = Some(Running {
                        session,
                        subjects,
                        interval,
                        owners,
                        passes: 0,
                        tries,
                        known: Duration::ZERO,
                        ends_with: None,
                    });
                    return Ok(pages);
                }
                // The rest has its turn in a later look. The caller begins with
                // another process each time.
                Err(error) if error.is_too_much() && subjects.len() > 1 => {
                    subjects.truncate(subjects.len() / 2);
                }
                // It ended meanwhile; the others are still there.
                Err(error) if error.process_gone().is_some() => {
                    let gone = error.process_gone();
                    subjects.retain(|subject| Some(subject.process.pid) != gone);
                }
                Err(DamonError::Plan(PlanError::TooMany { limit, .. })) => {
                    self.turn = take_turn(&mut subjects[0].spans, self.turn, limit);
                }
                // One of them ended while the kernel was being told, or all did and
                // the kdamond with them.
                Err(_) if self.drop_ended(&mut subjects) => {}
                Err(_) if tried < TRIES => tried += 1,
                Err(error) => return Err(SourceError::Failed(format!("DAMON: {error}"))),
            }
        }
        Ok(0)
    }

    /// Watches `targets` as they are, or in pieces. A kernel that turned out not to
    /// cut is told each piece.
    fn watch(&self, targets: &[Target], interval: Duration) -> Result<Session, DamonError> {
        let Some(piece) = self.piece else {
            return self.damon.watch(targets, interval, interval);
        };
        if self.damon.cuts_pieces()? {
            return self.damon.watch_pieces(targets, piece, interval);
        }
        let bytes = piece << self.page.shift();
        let mut targets = targets.to_vec();
        for target in &mut targets {
            let pieces = |range: &Range<u64>| {
                let end = range.end;
                let starts = range.clone().step_by(bytes as usize);
                starts.map(move |start| start..(start + bytes).min(end))
            };
            target.ranges = target.ranges.iter().flat_map(pieces).collect();
        }
        self.damon.watch(&targets, interval, interval)
    }

    /// Forgets the processes that have ended; whether there were any.
    fn drop_ended(&self, subjects: &mut Vec<Subject>) -> bool {
        let before = subjects.len();
        subjects.retain(|subject| {
            let process = Process {
                pid: subject.process.pid,
                start_ticks: subject.process.start_ticks,
            };
            match process.stat(&self.root) {
                Ok(stat) => stat.has_address_space(),
                Err(error) => !matches!(error, FsError::Gone { .. }),
            }
        });
        subjects.len() < before
    }

    /// Turns a view's kdamond off, which takes as long as its present sample; a
    /// thread waits for that, and [`DamonSource::settle`] for the thread.
    fn end(&mut self, view: View) -> Result<(), SourceError> {
        let ending = self.slot(view).take_if(|one| one.ends_with.is_some());
        if let Some(mut running) = ending {
            // A thread waits for it as it is.
            self.ended_cpu += running.cpu_time();
            return Ok(());
        }
        self.settle(view)?;
        if let Some(running) = self.slot(view).take() {
            let session = running.session;
            let ending = std::thread::spawn(move || {
                let cpu = session.cpu_time().unwrap_or_default();
                session.stop().map(|()| cpu)
            });
            self.ending[view as usize] = Some(ending);
        }
        Ok(())
    }

    fn settle(&mut self, view: View) -> Result<(), SourceError> {
        if let Some(ending) = self.ending[view as usize].take() {
            let ended = ending.join().expect("ending a session does not panic");
            self.ended_cpu +=
                ended.map_err(|error| SourceError::Failed(format!("DAMON: {error}")))?;
        }
        Ok(())
    }

    fn slot(&mut self, view: View) -> &mut Option<Running> {
        match view {
            View::Look => &mut self.look,
            View::Glance => &mut self.glance,
        }
    }

    fn target(&self, subject: &Subject) -> Target {
        let shift = self.page.shift();
        let range = |span: &Span| span.first.0 << shift..(span.first.0 + span.pages) << shift;
        Target {
            pid: subject.process.pid,
            ranges: subject.spans.iter().map(range).collect(),
        }
    }

    fn read(&mut self, view: View, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let shift = self.page.shift();
        let Some(running) = self.slot(view) else {
            return Ok(());
        };
        let Running {
            session,
            owners,
            passes,
            ..
        } = running;
        let polled = session
            .poll(&mut |event| {
                while *passes < event.pass {
                    sink.pass_complete(view);
                    *passes += 1;
                }
                let first = VirtualPage(event.start >> shift);
                sink.touched(
                    view,
                    owners[event.target],
                    first,
                    (event.end - event.start) >> shift,
                );
            })
            .map_err(|error| SourceError::Failed(format!("DAMON: {error}")))?;
        while *passes < polled.passes_completed {
            // Silence means nothing where reports were lost, and a glance is
            // about silence; a look loses only what it will see again.
            if polled.lost == 0 || view == View::Look {
                sink.pass_complete(view);
            }
            *passes += 1;
        }
        self.lost += polled.lost;
        let told = |one: &Running| one.ends_with.is_some_and(|(_, at)| one.passes > at);
        match polled.ended {
            None => Ok(()),
            Some(_) if self.slot(view).as_ref().is_some_and(told) => self.end(view),
            // Also of one that was to end, if nothing came of its last pass.
            Some(ended) => self.go_on(view, ended),
        }
    }

    /// A session ended by itself. If all its processes are gone there is nothing
    /// to do; otherwise it is begun anew.
    fn go_on(&mut self, view: View, ended: Ended) -> Result<(), SourceError> {
        self.settle(view)?;
        let Some(mut running) = self.slot(view).take() else {
            return Ok(());
        };
        let gone: Vec<usize> = running.session.targets_gone().collect();
        self.ended_cpu += running.cpu_time();
        let Running {
            session,
            mut subjects,
            interval,
            tries,
            ..
        } = running;
        drop(session);
        let mut index = 0;
        subjects.retain(|_| {
            index += 1;
            !gone.contains(&(index - 1))
        });
        if subjects.is_empty() {
            return Ok(());
        }
        if tries >= TRIES {
            return Err(SourceError::Failed(match ended {
                Ended::KdamondGone => "DAMON: another program keeps turning it off".into(),
                Ended::RegionsDiffer { planned, found } => format!(
                    "DAMON: the kernel watches {found} regions where {planned} were asked for"
                ),
            }));
        }
        self.begin(view, &subjects, interval, tries + 1).map(drop)
    }
}

/// Cuts `spans` to `limit` of their pages, from the `turn`th on and round;
/// returns where the next turn begins.
fn take_turn(spans: &mut Vec<Span>, turn: u64, limit: u64) -> u64 {
    let all: u64 = spans.iter().map(|span| span.pages).sum();
    if all <= limit {
        return 0;
    }
    let start = turn % all;
    let end = start + limit;
    // The window, and what of it lies beyond the end, from the beginning again.
    let windows = [0..end.saturating_sub(all), start..end.min(all)];
    let mut at = 0;
    let mut taken = Vec::new();
    for span in spans.iter() {
        for window in &windows {
            let from = window.start.clamp(at, at + span.pages);
            let to = window.end.clamp(at, at + span.pages);
            if from < to {
                taken.push(Span {
                    first: VirtualPage(span.first.0 + from - at),
                    pages: to - from,
                });
            }
        }
        at += span.pages;
    }
    *spans = taken;
    end % all
}

impl Source for DamonSource {
    fn kind(&self) -> access::Source {
        access::Source::Damon
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            passes: true,
            glances: true,
            samples: false,
            keeps: Some(kept_records()),
        }
    }

    fn look(&mut self, subjects: &[Subject], interval: Duration) -> Result<u64, SourceError> {
        self.begin(View::Look, subjects, interval, 0)
    }

    fn finish(&mut self, view: View) -> Result<(), SourceError> {
        let open = |one: &&mut Running| one.ends_with.is_none();
        let Some(running) = self.slot(view).as_mut().filter(open) else {
            return Ok(());
        };
        running.will_end();
        let stop = running.session.stopping();
        let ending = std::thread::spawn(move || stop().map(|()| Duration::ZERO));
        self.ending[view as usize] = Some(ending);
        Ok(())
    }

    fn cuts(&mut self) -> bool {
        self.damon.cuts_pieces().unwrap_or(false)
    }

    fn glance_in_pieces(
        &mut self,
        subjects: &[Subject],
        piece: u64,
        interval: Duration,
    ) -> Result<(), SourceError> {
        self.piece = Some(piece);
        self.begin(View::Glance, subjects, interval, 0).map(drop)
    }

    fn glance(&mut self, subjects: &[Subject], interval: Duration) -> Result<(), SourceError> {
        self.piece = None;
        self.begin(View::Glance, subjects, interval, 0).map(drop)
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), SourceError> {
        // A look's end is worth waking up for; glances can wait for the caller.
        let look = self.look.iter();
        event::wait(look.map(|running| running.session.as_fd()), timeout)
            .map_err(|error| SourceError::Failed(format!("waiting for DAMON: {error}")))?;
        self.read(View::Glance, sink)?;
        self.read(View::Look, sink)
    }

    fn close(&mut self) -> Result<(), SourceError> {
        for view in [View::Look, View::Glance] {
            self.end(view)?;
        }
        for view in [View::Look, View::Glance] {
            self.settle(view)?;
        }
        self.damon
            .restore()
            .map_err(|error| SourceError::Failed(format!("DAMON: {error}")))
    }

    fn kernel_time(&mut self) -> Duration {
        let running = self.look.iter_mut().chain(&mut self.glance);
        let cpu: Duration = running.map(Running::cpu_time).sum();
        self.ended_cpu + cpu
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for DamonSource {
    fn drop(&mut self) {
        // Nobody is left to tell; what could not be put back stays noted in
        // the state file.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(spans: &[(u64, u64)]) -> Vec<Span> {
        let span = |&(first, pages): &(u64, u64)| Span {
            first: VirtualPage(first),
            pages,
        };
        spans.iter().map(span).collect()
    }

    #[test]
    fn turns_go_round_until_every_page_had_one() {
        let all = spans(&[(100, 10), (200, 20)]);
        let take = |turn| {
            let mut spans = all.clone();
            let next = take_turn(&mut spans, turn, 12);
            (spans, next)
        };
        // 30 pages, 12 a turn: 0..12, 12..24, 24..30 and 0..6.
        assert_eq!(take(0), (spans(&[(100, 10), (200, 2)]), 12));
        assert_eq!(take(12), (spans(&[(202, 12)]), 24));
        assert_eq!(take(24), (spans(&[(100, 6), (214, 6)]), 6));
        // What fits is left whole.
        let mut few = spans(&[(7, 12)]);
        assert_eq!(take_turn(&mut few, 5, 12), 0);
        assert_eq!(few, spans(&[(7, 12)]));
    }
}
