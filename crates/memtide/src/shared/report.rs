//! What the loop tells, shown: lines of text with a status line below them on a
//! terminal, or one JSON object a line. The same for tiering and balancing.

use crate::shared::lines::{Line, Lines, Named, lost_lines};
use crate::shared::outside::{self, outside};
use memtide_core::units::{Millis, PageSize};
use memtide_loop::report::{
    Direction, Event, MovedPages, Range, Reporter, Status, TaskMove, TaskState, cpu_list,
};
use serde::Serialize;

/// Prints events, status and summary.
pub struct Printer {
    lines: Lines,
    page: PageSize,
    /// Moves since the last status: one line a second for each kind.
    moved: Vec<MovedPages>,
    processes: ProcessLines,
    /// What another loop adds to the next status for people.
    beside: Option<String>,
}

/// So many lines of processes that came or ended are written for people between two statuses, which are
/// a second apart; before the first one, all. Anyone on the machine can start processes, and a log that
/// is full of them holds nothing else.
const PROCESS_LINES: u64 = 20;

/// Processes since the last status.
#[derive(Default)]
struct ProcessLines {
    /// Whether there was a status.
    begun: bool,
    told: u64,
    /// Those that were not told of.
    came: u64,
    ended: u64,
}

impl ProcessLines {
    /// Whether the event has a line of its own. If not, it is counted.
    fn admits(&mut self, event: &Event) -> bool {
        let more = match event {
            Event::Process { .. } => &mut self.came,
            Event::ProcessGone { .. } => &mut self.ended,
            _ => return true,
        };
        if self.begun && self.told == PROCESS_LINES {
            *more += 1;
            return false;
        }
        self.told += 1;
        true
    }

    /// The sentence for those that had no line, and all begins again.
    fn rest(&mut self) -> Option<String> {
        let next = ProcessLines {
            begun: true,
            ..ProcessLines::default()
        };
        let ProcessLines { came, ended, .. } = std::mem::replace(self, next);
        let text = format!("more processes: {came} came, {ended} ended");
        (came + ended > 0).then_some(text)
    }
}

impl Printer {
    /// A printer to standard output; the status line goes to standard error,
    /// if that is a terminal.
    pub fn new(json: bool, page: PageSize) -> Printer {
        Printer {
            lines: Lines::new(json),
            page,
            moved: Vec::new(),
            processes: ProcessLines::default(),
            beside: None,
        }
    }

    /// Something to know before the start.
    pub fn notice(&mut self, text: &str) {
        let text = text.to_owned();
        self.event(Millis(0), Event::Notice { text });
    }

    /// Where things stand, once a second; in a sentence for people.
    pub fn status(&mut self, status: &Status, sentence: impl FnOnce(&Printer) -> String) {
        for moved in std::mem::take(&mut self.moved) {
            self.tell(Millis(status.at_ms), &Event::MovedPages(moved));
        }
        if let Some(text) = self.processes.rest() {
            self.tell(Millis(status.at_ms), &Event::Notice { text });
        }
        if let lost @ 1.. = self.lines.lost() {
            let text = lost_lines(lost);
            self.tell(Millis(status.at_ms), &Event::Notice { text });
        }
        match self.lines.json() {
            true => self.lines.json_line(&Named {
                event: "status",
                content: status,
            }),
            false => {
                let mut sentence = sentence(self);
                if let Some(beside) = self.beside.take() {
                    sentence += &format!("  {beside}");
                }
                self.lines.status_line(&sentence);
            }
        }
    }

    /// Where another loop stands: a line of its own as JSON, of this `event`; for people a part of the
    /// next status.
    pub fn beside(
        &mut self,
        event: &'static str,
        status: &Status,
        sentence: impl FnOnce(&Printer) -> String,
    ) {
        match self.lines.json() {
            true => self.lines.json_line(&Named {
                event,
                content: status,
            }),
            false => self.beside = Some(sentence(self)),
        }
    }

    /// The end: `summary` as JSON, or in sentences.
    pub fn summary(
        &mut self,
        summary: &impl Serialize,
        sentences: impl FnOnce(&Printer) -> String,
    ) {
        self.summary_beside("summary", summary, sentences);
    }

    /// The same of another loop, of this `event`.
    pub fn summary_beside(
        &mut self,
        event: &'static str,
        summary: &impl Serialize,
        sentences: impl FnOnce(&Printer) -> String,
    ) {
        if self.lines.json() {
            return self.lines.json_line(&Named {
                event,
                content: summary,
            });
        }
        self.lines.clear_status();
        let sentences = sentences(self);
        self.lines.write(&sentences);
    }

    /// Pages as a size.
    pub fn size(&self, pages: u64) -> String {
        crate::shared::lines::size(pages * self.page.bytes())
    }

    fn tell(&mut self, at: Millis, event: &Event) {
        if self.lines.json() {
            return self.lines.json_line(&Line {
                at_ms: at.0,
                content: event,
            });
        }
        let text = self.text(event);
        self.lines.text_line(at, &text, event);
    }

    fn text(&self, event: &Event) -> String {
        match event {
            Event::Process {
                pid,
                name,
                top_pages,
                lower_pages,
            } => {
                let mut text = format!("process {pid} ({})", outside(name));
                if let (Some(top), Some(lower)) = (top_pages, lower_pages) {
                    let (top, lower) = (self.size(*top), self.size(*lower));
                    text += &format!(": {top} on fast nodes, {lower} on slow ones");
                }
                text
            }
            Event::ProcessGone { pid } => format!("process {pid} has ended"),
            Event::MovedPages(moved) => {
                let MovedPages {
                    direction,
                    pid,
                    from,
                    to,
                    pages,
                } = moved;
                let (size, what) = (self.size(*pages), done(*direction));
                format!("{size} {what}, node {from} to {to}, process {pid}")
            }
            Event::Moved {
                direction,
                dry_run,
                range,
                from,
                to,
                why,
            } => {
                let what = match dry_run {
                    false => done(*direction),
                    true => planned(*direction),
                };
                let (range, why) = (self.range(range), outside::line(why));
                format!("{range} {what}, node {from} to {to}: {why}")
            }
            Event::Stayed {
                range, node, why, ..
            } => {
                let (range, why) = (self.range(range), why.to_string());
                format!("{range} stays on node {node}: {}", outside::line(&why))
            }
            Event::Task(task) => task_text(task),
            Event::WindowInvalid { lost, throttled } => {
                format!("samples of this moment dropped: {lost} lost, throttled {throttled} times")
            }
            Event::Notice { text } => outside::line(text).into_owned(),
        }
    }

    fn range(&self, range: &Range) -> String {
        let size = self.size(range.pages);
        format!("process {} {:#x} {size}", range.pid, range.address)
    }
}

fn done(direction: Option<Direction>) -> &'static str {
    match direction {
        Some(Direction::Promotion) => "promoted",
        Some(Direction::Demotion) => "demoted",
        None => "moved",
    }
}

fn planned(direction: Option<Direction>) -> &'static str {
    match direction {
        Some(Direction::Promotion) => "to promote",
        Some(Direction::Demotion) => "to demote",
        None => "to move",
    }
}

fn task_text(task: &TaskMove) -> String {
    let TaskMove {
        pid,
        tid,
        node,
        state,
        cpus,
        why,
    } = task;
    let cpus = cpu_list(cpus);
    let what = match state {
        TaskState::Proposed => format!("should run on CPUs {cpus} of node {node}"),
        TaskState::Set => format!("runs on CPUs {cpus} of node {node}"),
        TaskState::Kept => "stays where it may run".to_owned(),
    };
    let why = outside::line(why);
    format!("thread {tid} of process {pid} {what}: {why}")
}

impl Reporter for Printer {
    fn event(&mut self, at: Millis, event: Event) {
        if let Event::MovedPages(moved) = event {
            let same = |known: &&mut MovedPages| {
                MovedPages {
                    pages: moved.pages,
                    ..**known
                } == moved
            };
            match self.moved.iter_mut().find(same) {
                Some(known) => known.pages += moved.pages,
                None => self.moved.push(moved),
            }
            return;
        }
        if self.lines.json() || self.processes.admits(&event) {
            self.tell(at, &event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::lines::tests::{documented, printed};
    use memtide_core::pages::Immovable;
    use memtide_core::units::NodeId;
    use memtide_loop::report::{
        AccountStatus, BalanceStatus, ClassStatus, PressureStatus, Stay, TierStatus, WhyStayed,
    };
    use std::collections::BTreeSet;

    /// Thirty processes at the beginning, and then a hundred that come and end at once.
    #[test]
    fn a_flood_of_processes_is_summed() {
        let came = |pid| Event::Process {
            pid,
            name: "x".into(),
            top_pages: None,
            lower_pages: None,
        };
        let mut lines = ProcessLines::default();
        assert!((0..30).all(|pid| lines.admits(&came(pid))));
        assert_eq!(lines.rest(), None);
        let of_one = |pid| [came(pid), Event::ProcessGone { pid }];
        let flood = (0..100).flat_map(of_one);
        let admitted = flood.filter(|event| lines.admits(event)).count() as u64;
        assert_eq!(admitted, PROCESS_LINES);
        let text = "more processes: 90 came, 90 ended";
        assert_eq!(lines.rest().as_deref(), Some(text));
        assert!(lines.admits(&came(1)));
        assert_eq!(lines.rest(), None);
        let notice = Event::Notice { text: "x".into() };
        lines.told = PROCESS_LINES;
        assert!(lines.admits(&notice));
    }

    /// Every reason. A new one does not compile until it is listed here.
    fn stays() -> Vec<Stay> {
        let all = vec![
            Stay::Untouched,
            Stay::TooRarely {
                touches: 1,
                threshold: 2,
            },
            Stay::TooLongAgo {
                ms: 9,
                threshold_ms: 5,
            },
            Stay::RateLimit,
            Stay::NoRoom { target: NodeId(0) },
            Stay::Forbidden {
                by: Immovable::Mempolicy,
            },
            Stay::Refused { why: "busy" },
            Stay::Colder,
            Stay::JustMoved { ms: 9 },
            Stay::NotWorthIt,
            Stay::Share,
            Stay::Rests {
                won_ns_per_s: 1,
                spent_ns_per_s: 2,
            },
            Stay::NoFaster {
                target: NodeId(0),
                fast_ns: 300,
                slow_ns: 250,
            },
            Stay::Pressure,
        ];
        for stay in &all {
            match stay {
                Stay::Untouched
                | Stay::TooRarely { .. }
                | Stay::TooLongAgo { .. }
                | Stay::RateLimit
                | Stay::NoRoom { .. }
                | Stay::Forbidden { .. }
                | Stay::Refused { .. }
                | Stay::Colder
                | Stay::JustMoved { .. }
                | Stay::NotWorthIt
                | Stay::Share
                | Stay::Rests { .. }
                | Stay::Pressure
                | Stay::NoFaster { .. } => {}
            }
        }
        all
    }

    const RANGE: Range = Range {
        pid: 7,
        address: 0x1000,
        pages: 3,
    };

    /// What both tell, and what only one of them does. A new event does not
    /// compile until it is listed here.
    fn events(tiering: bool) -> Vec<Event> {
        let (from, to) = (NodeId(1), NodeId(0));
        let pages = tiering.then_some(1);
        let direction = tiering.then_some(Direction::Promotion);
        let mut all = vec![
            Event::Process {
                pid: 7,
                name: "x".into(),
                top_pages: pages,
                lower_pages: pages,
            },
            Event::ProcessGone { pid: 7 },
            Event::MovedPages(MovedPages {
                direction,
                pid: 7,
                from,
                to,
                pages: 3,
            }),
            Event::Moved {
                direction,
                dry_run: false,
                range: RANGE,
                from,
                to,
                why: "x".into(),
            },
            Event::Notice { text: "x".into() },
        ];
        if tiering {
            all.extend(stays().into_iter().map(|why| Event::Stayed {
                range: RANGE,
                node: from,
                to: None,
                why: WhyStayed::Tier(why),
            }));
        } else {
            all.push(Event::Stayed {
                range: RANGE,
                node: from,
                to: Some(to),
                why: WhyStayed::Words("x".into()),
            });
            all.push(Event::Task(TaskMove {
                pid: 7,
                tid: 8,
                node: to,
                state: TaskState::Set,
                cpus: BTreeSet::from([0, 1]),
                why: "x".into(),
            }));
            all.push(Event::WindowInvalid {
                lost: 1,
                throttled: 0,
            });
        }
        for event in &all {
            match event {
                Event::Process { .. }
                | Event::ProcessGone { .. }
                | Event::MovedPages(_)
                | Event::Moved { .. }
                | Event::Stayed { .. }
                | Event::Task(_)
                | Event::WindowInvalid { .. }
                | Event::Notice { .. } => {}
            }
        }
        all
    }

    /// Compares docs/json.md's section of `command` with what is printed.
    fn is_documented(command: &str, tiering: bool, status: Status, others: &[&str]) {
        let (section, documented) = documented(command);
        let mut used = BTreeSet::from(["event".to_owned(), "at_ms".to_owned()]);
        let mut names: BTreeSet<String> = others.iter().map(|&name| name.to_owned()).collect();
        for event in events(tiering) {
            let line = Line {
                at_ms: 1,
                content: &event,
            };
            names.insert(printed(&line, &mut used));
        }
        let line = Named {
            event: "status",
            content: &status,
        };
        names.insert(printed(&line, &mut used));
        assert_eq!(
            documented, used,
            "documented on the left, printed on the right"
        );
        for name in names {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_schemas_are_documented() {
        let status = Status {
            tiering: Some(TierStatus {
                demoted_idle_pages: Some(0),
                classes: vec![ClassStatus {
                    pressure: Some(PressureStatus::default()),
                    ..ClassStatus::default()
                }],
                account: Some(AccountStatus::default()),
                pressure: Some(PressureStatus::default()),
                ..TierStatus::default()
            }),
            ..Status::default()
        };
        let reasons: Vec<String> = stays()
            .into_iter()
            .map(|why| serde_json::to_value(why).unwrap()["reason"].clone())
            .map(|reason| reason.as_str().unwrap().to_owned())
            .collect();
        let mut names: Vec<&str> = reasons.iter().map(String::as_str).collect();
        names.push("summary");
        is_documented("tier", true, status, &names);
        let status = Status {
            balancing: Some(BalanceStatus::default()),
            ..Status::default()
        };
        let names = ["summary", "why", "freed_tasks"];
        is_documented("balance", false, status, &names);
    }

    /// Names of processes, and sentences that have names of files in them.
    #[test]
    fn what_others_chose_is_written_out() {
        let printer = Printer::new(false, PageSize::KIB_4);
        let hostile = || outside::HOSTILE.to_owned();
        let mut shown = 0;
        for mut event in [events(true), events(false)].concat() {
            match &mut event {
                Event::Process { name, .. } => *name = hostile(),
                Event::Moved { why, .. } | Event::Notice { text: why } => *why = hostile(),
                Event::Stayed { why, .. } => *why = WhyStayed::Words(hostile()),
                Event::Task(task) => task.why = hostile(),
                Event::ProcessGone { .. } | Event::MovedPages(_) | Event::WindowInvalid { .. } => {
                    continue;
                }
            }
            let text = printer.text(&event);
            assert!(outside::shows_hostile(&text), "{text:?}");
            shown += 1;
        }
        // All but three kinds; of each command, and each of tiering's reasons.
        assert_eq!(shown, 2 * 3 + stays().len() + 2);
    }

    #[test]
    fn events_read_as_sentences() {
        let printer = Printer::new(false, PageSize::KIB_4);
        let texts = |tiering| -> Vec<String> {
            let events = events(tiering);
            events.iter().map(|event| printer.text(event)).collect()
        };
        let tiering = texts(true);
        assert_eq!(tiering[2], "12 KiB promoted, node 1 to 0, process 7");
        assert_eq!(
            tiering[5],
            "process 7 0x1000 12 KiB stays on node 1: not seen touched"
        );
        let balancing = texts(false);
        assert_eq!(balancing[2], "12 KiB moved, node 1 to 0, process 7");
        assert_eq!(
            balancing[3],
            "process 7 0x1000 12 KiB moved, node 1 to 0: x"
        );
        assert_eq!(
            balancing[6],
            "thread 8 of process 7 runs on CPUs 0-1 of node 0: x"
        );
    }
}
