//! What `memtide balance` shows: lines of text with a status line below them on
//! a terminal, or one JSON object a line.

use crate::lines::{Line, Lines, Named};
use crate::outside::outside;
use memtide_core::units::{Millis, PageSize};
use memtide_linux::fs::list;
use memtide_linux::live::balance::report::{
    Event, MovedPages, Range, Reporter, Spent, Status, TaskMove, TaskState,
};
use serde::Serialize;

/// Prints events, status and summary.
pub struct Printer {
    lines: Lines,
    page: PageSize,
    /// Moves since the last status: one line a second for each kind.
    moved: Vec<MovedPages>,
}

#[derive(Serialize)]
struct Summary<'a> {
    why: &'a str,
    freed_tasks: usize,
    #[serde(flatten)]
    status: &'a Status,
}

impl Printer {
    /// A printer to standard output; the status line goes to standard error,
    /// if that is a terminal.
    pub fn new(json: bool, page: PageSize) -> Printer {
        Printer {
            lines: Lines::new(json),
            page,
            moved: Vec::new(),
        }
    }

    /// Something to know before the start.
    pub fn notice(&mut self, text: &str) {
        let text = text.to_owned();
        self.event(Millis(0), Event::Notice { text });
    }

    /// Where things stand, once a second.
    pub fn status(&mut self, status: &Status) {
        for moved in std::mem::take(&mut self.moved) {
            self.tell(Millis(status.at_ms), &Event::MovedPages(moved));
        }
        match self.lines.json() {
            true => self.lines.json_line(&Named {
                event: "status",
                content: status,
            }),
            false => self.lines.status_line(self.sentence(status)),
        }
    }

    /// The end.
    pub fn summary(&mut self, status: &Status, why: &str, freed_tasks: usize) {
        self.status(status);
        if self.lines.json() {
            let content = &Summary {
                why,
                freed_tasks,
                status,
            };
            let event = "summary";
            return self.lines.json_line(&Named { event, content });
        }
        self.lines.clear_status();
        let local = (status.local_samples * 100)
            .checked_div(status.samples)
            .map_or("none seen".to_owned(), |share| format!("{share} % local"));
        let price = status.ns_per_moved_page.map_or(String::new(), |ns| {
            format!("; {:.1} us a moved page", ns as f64 / 1000.0)
        });
        let threads = match status.placed_tasks + freed_tasks {
            0 => String::new(),
            _ => format!("; {freed_tasks} threads may run anywhere again"),
        };
        self.lines.write(&format!(
            "{why} after {:.1} s: moved {} ({} pages), not movable {}, forbidden {}, without room {}{threads}\n\
             {}: {} accesses seen ({local}), {} lost, {} moments dropped\n\
             CPU time: {:.2} s, {:.2} % of one CPU (limit {} %), rested {:.1} s; {}{price}",
            status.at_ms as f64 / 1000.0,
            self.size(status.moved_pages),
            status.moved_pages,
            self.size(status.failed_pages),
            self.size(status.forbidden_pages),
            self.size(status.no_room_pages),
            status.source,
            status.samples,
            status.lost,
            status.invalid_windows,
            status.cpu.as_secs_f64(),
            status.cpu_percent,
            status.cpu_limit_percent,
            status.rested_ms as f64 / 1000.0,
            causes(&status.spent),
        ));
    }

    fn sentence(&self, status: &Status) -> String {
        let local = status
            .local_permille
            .map_or("no accesses".to_owned(), |local| {
                format!("{:.1} % local", local as f64 / 10.0)
            });
        format!(
            "{:.0} s  {} processes  {} threads  {local}  moved {}  cpu {:.2} s ({:.2} %)",
            status.at_ms as f64 / 1000.0,
            status.processes,
            status.tasks,
            self.size(status.moved_pages),
            status.cpu.as_secs_f64(),
            status.cpu_percent,
        )
    }

    fn tell(&mut self, at: Millis, event: &Event) {
        if self.lines.json() {
            return self.lines.json_line(&Line {
                at_ms: at.0,
                content: event,
            });
        }
        let text = self.text(event);
        self.lines.text_line(at, &text);
    }

    fn text(&self, event: &Event) -> String {
        match event {
            Event::Process { pid, name } => format!("process {pid} ({})", outside(name)),
            Event::ProcessGone { pid } => format!("process {pid} has ended"),
            Event::MovedPages(moved) => {
                let MovedPages {
                    pid,
                    from,
                    to,
                    pages,
                } = moved;
                let size = self.size(*pages);
                format!("{size} moved, node {from} to {to}, process {pid}")
            }
            Event::Moved {
                dry_run,
                range,
                from,
                to,
                why,
            } => {
                let what = if *dry_run { "to move" } else { "moved" };
                format!("{} {what}, node {from} to {to}: {why}", self.range(range))
            }
            Event::Stayed {
                range, node, why, ..
            } => format!("{} stays on node {node}: {why}", self.range(range)),
            Event::Task(task) => task_text(task),
            Event::WindowInvalid { lost, throttled } => {
                format!("samples of this moment dropped: {lost} lost, throttled {throttled} times")
            }
            Event::Notice { text } => text.clone(),
        }
    }

    fn range(&self, range: &Range) -> String {
        let size = self.size(range.pages);
        format!("process {} {:#x} {size}", range.pid, range.address)
    }

    fn size(&self, pages: u64) -> String {
        crate::lines::size(pages * self.page.bytes())
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
    let cpus = list::format(cpus.iter().copied());
    let what = match state {
        TaskState::Proposed => format!("should run on CPUs {cpus} of node {node}"),
        TaskState::Set => format!("runs on CPUs {cpus} of node {node}"),
        TaskState::Kept => "stays where it may run".to_owned(),
    };
    format!("thread {tid} of process {pid} {what}: {why}")
}

/// Where the time went, without what is next to nothing.
fn causes(spent: &Spent) -> String {
    let Spent {
        refresh_ns,
        protect_ns,
        samples_ns,
        locate_ns,
        decide_ns,
        move_ns,
    } = *spent;
    let all = [
        ("processes", refresh_ns),
        ("provoking", protect_ns),
        ("samples", samples_ns),
        ("locating", locate_ns),
        ("deciding", decide_ns),
        ("moving", move_ns),
    ];
    let told = all.iter().filter(|(_, ns)| *ns >= 5_000_000);
    let told: Vec<String> = told
        .map(|(what, ns)| format!("{what} {:.2}", *ns as f64 / 1e9))
        .collect();
    match told.is_empty() {
        true => "nothing took long".to_owned(),
        false => told.join(", "),
    }
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
        self.tell(at, &event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::{documented, printed};
    use memtide_core::units::NodeId;
    use std::collections::BTreeSet;

    /// Every kind of event. A new one does not compile until it is listed here.
    fn events() -> Vec<Event> {
        let range = Range {
            pid: 7,
            address: 0x1000,
            pages: 3,
        };
        let (from, to) = (NodeId(1), NodeId(0));
        let all = vec![
            Event::Process {
                pid: 7,
                name: "x".into(),
            },
            Event::ProcessGone { pid: 7 },
            Event::MovedPages(MovedPages {
                pid: 7,
                from,
                to,
                pages: 3,
            }),
            Event::Moved {
                dry_run: false,
                range,
                from,
                to,
                why: "x".into(),
            },
            Event::Stayed {
                range,
                node: from,
                to,
                why: "x".into(),
            },
            Event::Task(TaskMove {
                pid: 7,
                tid: 8,
                node: to,
                state: TaskState::Set,
                cpus: BTreeSet::from([0, 1]),
                why: "x".into(),
            }),
            Event::WindowInvalid {
                lost: 1,
                throttled: 0,
            },
            Event::Notice { text: "x".into() },
        ];
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

    #[test]
    fn the_schema_is_documented() {
        let (section, documented) = documented("balance");
        let mut used = BTreeSet::from(["event".to_owned(), "at_ms".to_owned()]);
        let mut names = BTreeSet::new();
        for event in events() {
            let line = Line {
                at_ms: 1,
                content: &event,
            };
            names.insert(printed(&line, &mut used));
        }
        let status = Status::default();
        let line = Named {
            event: "status",
            content: &status,
        };
        names.insert(printed(&line, &mut used));
        assert_eq!(
            documented, used,
            "documented on the left, printed on the right"
        );
        names.extend(["summary", "why", "freed_tasks"].map(str::to_owned));
        for name in names {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn events_read_as_sentences() {
        let printer = Printer::new(false, PageSize::KIB_4);
        let texts: Vec<String> = events().iter().map(|event| printer.text(event)).collect();
        assert_eq!(texts[2], "12 KiB moved, node 1 to 0, process 7");
        assert_eq!(texts[3], "process 7 0x1000 12 KiB moved, node 1 to 0: x");
        assert_eq!(
            texts[5],
            "thread 8 of process 7 runs on CPUs 0-1 of node 0: x"
        );
    }
}
