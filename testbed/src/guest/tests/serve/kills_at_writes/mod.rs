//! The service killed before every single thing that it changes, on the real kernel.
//!
//! Kills at random moments ([`super::kills`]) hardly ever come between a note and what it speaks of. Here a
//! tracer ([`crate::guest::kill_at`]) kills right before the nth step, and n goes over all steps of:
//!
//! - *work*: a start on a machine where nothing is left, up to when all is done that there is to do;
//! - *end*: what SIGTERM asks for then;
//! - *repair*: a start after a service that was killed when it had lent all;
//! - *doctor*: `memtide doctor --restore` after such a service.
//!
//! A part is over when two runs of it in turn were not killed any more: of moves there are more or fewer. A
//! repair ends when the service is ready. After a kill `memtide doctor --restore` puts everything back, and in
//! the repair every other time the next start does.

mod subjects;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use self::subjects::{Balanced, Subject, Tiered};
use super::{FOLDER, MAIN, Manager, PATIENCE, SOCKET, put, serve, socket, start};
use crate::guest::kill_at::{KILLED, Told};
use crate::guest::late::{is_late, within};
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::random::SplitMix;
use crate::guest::tests::Context;
use crate::guest::tests::manners::settings::Settings;

/// How long an end may take that is asked for, under the tracer.
const END: Duration = Duration::from_secs(20);
/// So many runs in turn that were not killed are the end of a part.
const ENOUGH: u32 = 2;
/// A kill may come so far into a series of writes.
const INTO: u64 = 600;

/// Every so many steps of each part, from one that is drawn.
struct Strides {
    work: u64,
    end: u64,
    repair: u64,
    doctor: u64,
}

const EVERY: Strides = Strides {
    work: 1,
    end: 1,
    repair: 1,
    doctor: 1,
};
/// As many as fit into a run of everything.
const SOME: Strides = Strides {
    work: 8,
    end: 4,
    repair: 6,
    doctor: 4,
};

/// What tiering lends, and the table of weights.
pub(super) fn some(context: &mut Context) -> Result<()> {
    tiered(context, &SOME)
}

/// The same at every step.
pub(super) fn all(context: &mut Context) -> Result<()> {
    tiered(context, &EVERY)
}

fn tiered(context: &mut Context, strides: &Strides) -> Result<()> {
    let subject = Tiered::start(&context.dram)?;
    kills(context, strides, Box::new(subject))
}

/// What balancing lends, at every step.
pub(super) fn all_of_balancing(context: &mut Context) -> Result<()> {
    kills(context, &EVERY, Box::new(Balanced::start()?))
}

fn kills(context: &mut Context, strides: &Strides, subject: Box<dyn Subject>) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    put(MAIN, &subject.configuration())?;
    let mut rig = Rig {
        before: Settings::now(),
        subject,
        manager: Manager::listen()?,
        random: SplitMix::new(16),
        kills: 0,
        left: 0,
        late: 0,
        context,
    };
    let work = rig.each("work", strides.work, |rig, n| {
        rig.subject.undo()?;
        let told = rig.killed_at(n, false)?;
        rig.doctor(told.killed.as_deref())?;
        Ok(told)
    })?;
    let end = rig.each("end", strides.end, |rig, n| {
        rig.subject.undo()?;
        let told = rig.killed_at(n, true)?;
        rig.doctor(told.killed.as_deref())?;
        Ok(told)
    })?;
    let repair = rig.each("repair", strides.repair, |rig, n| {
        rig.leave_all()?;
        let told = rig.repair_killed_at(n)?;
        if rig.kills.is_multiple_of(2) || told.killed.is_none() {
            rig.doctor(told.killed.as_deref())?;
        }
        Ok(told)
    })?;
    let doctor = rig.each("doctor", strides.doctor, |rig, n| {
        rig.leave_all()?;
        let told = rig.doctor_killed_at(n)?;
        rig.doctor(told.killed.as_deref())?;
        Ok(told)
    })?;
    rig.subject.undo()?;
    let mut service = start()?;
    let seconds = rig.until_done(&mut service)?;
    service.end(Signal::TERM)?.clean()?;
    rig.before.check_unchanged()?;
    let Rig {
        kills,
        left,
        late,
        subject,
        ..
    } = rig;
    ensure!(left > 0, "none of {kills} left anything");
    subject.end()?;
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_file(SOCKET)?;
    context.note(format!(
        "steps: {work} of work, {end} of its end, {repair} of a repair, {doctor} of doctor; {kills} kills, {left} left something, {late} services had not done all by then; done {seconds:.1} s after the last start"
    ))
}

/// What the kills are about.
struct Rig<'a> {
    context: &'a mut Context,
    before: Settings,
    subject: Box<dyn Subject>,
    manager: Manager,
    random: SplitMix,
    kills: u64,
    /// Of the kills, those after which there was something to put back.
    left: u64,
    /// Services that had not done all in time, which threads that stay near their memory may cause.
    late: u64,
}

impl Rig<'_> {
    /// Does `once` for every `stride`th step until nothing is killed any more; how many steps there were.
    fn each(
        &mut self,
        part: &str,
        stride: u64,
        once: impl Fn(&mut Self, u64) -> Result<Told>,
    ) -> Result<u64> {
        let mut n = 1 + self.random.below(stride);
        let (mut survived, mut most) = (0, 0);
        while survived < ENOUGH {
            let told = once(self, n).with_context(|| format!("{part}, step {n}"))?;
            n += stride;
            let Some(what) = told.killed else {
                ensure!(told.steps > 0, "{part}: nothing was counted");
                survived += 1;
                most = most.max(told.steps);
                continue;
            };
            survived = 0;
            self.kills += 1;
            // A guest without a report is taken for one that hangs.
            if stride == 1 || self.kills.is_multiple_of(10) {
                self.context
                    .note(format!("{part} {}: {what}", told.steps))?;
            }
        }
        Ok(most)
    }

    /// Starts the service, which is killed before its nth step or ends when all is done. With `ending` the
    /// steps of its end are counted.
    fn killed_at(&mut self, n: u64, ending: bool) -> Result<Told> {
        let mut command = self.tracer(n);
        if ending {
            command.args(["--after", "STOPPING=1"]);
        }
        command.arg("memtide");
        let mut service = serve(command)?;
        let stretch = Stretch::begin();
        while !service.has_ended()? {
            let done = self.subject.is_done()?;
            if done || stretch.is_over(PATIENCE) {
                self.late += u64::from(!done);
                // It may have come to its end by now.
                let _ = service.signal(Signal::TERM);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.told(service)
    }

    /// Starts the service, which is killed before its nth step or ends when it is ready.
    fn repair_killed_at(&mut self, n: u64) -> Result<Told> {
        let ready = self.manager.count("READY=1");
        let mut command = self.tracer(n);
        command.arg("memtide");
        let mut service = serve(command)?;
        while !service.has_ended()? {
            if self.manager.count("READY=1") > ready {
                // What comes now is work, which has been.
                let _ = service.signal(Signal::TERM);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.told(service)
    }

    fn doctor_killed_at(&mut self, n: u64) -> Result<Told> {
        let mut command = self.tracer(n);
        command.args(["memtide", "doctor", "--restore"]);
        self.told(Memtide::spawn(command)?)
    }

    fn tracer(&mut self, n: u64) -> Command {
        let mut command = Command::new("/init");
        let into = 1 + self.random.below(INTO);
        command.args(["kill-at", &n.to_string(), "--into", &into.to_string()]);
        command
    }

    /// Waits for the end of what is traced: killed, or without complaint.
    fn told(&mut self, traced: Memtide) -> Result<Told> {
        let mut ended = traced.wait(END)?;
        let told = Told::take(&mut ended.errors)?;
        let status = ended.status.code();
        let right = match told.killed {
            Some(_) => status == Some(KILLED),
            None => status == Some(0),
        };
        let errors = ended.errors.join(" / ");
        ensure!(
            right && errors.is_empty(),
            "{told:?}, and it ended with {}: {errors}",
            ended.status
        );
        if told.killed.is_some() && Settings::now().has_notes() {
            self.left += 1;
        }
        Ok(told)
    }

    /// A service that was killed when it had lent all.
    fn leave_all(&mut self) -> Result<()> {
        self.subject.undo()?;
        let mut service = start()?;
        let done = self.until_done(&mut service);
        service.end(Signal::KILL)?;
        match done {
            Ok(_) => ensure!(Settings::now().has_notes(), "it left nothing"),
            Err(error) if is_late(&error) => self.late += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits until all is done; how many seconds that took.
    fn until_done(&self, service: &mut Memtide) -> Result<f64> {
        let stretch = Stretch::begin();
        while !self.subject.is_done()? {
            within(&stretch, PATIENCE, || {
                format!("not all was done; {}", socket::status())
            })?;
            service.check()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(stretch.elapsed().as_secs_f64())
    }

    /// Has doctor put everything back.
    fn doctor(&mut self, after: Option<&str>) -> Result<()> {
        let after = || format!("killed before: {}", after.unwrap_or("nothing"));
        let mut command = Command::new("memtide");
        command.args(["doctor", "--restore"]);
        let ended = Memtide::spawn(command)?.wait(END).with_context(after)?;
        ensure!(ended.status.success(), "{}: {ended:?}", after());
        self.before.check_unchanged().with_context(after)?;
        self.subject.check_unchanged().with_context(after)
    }
}
