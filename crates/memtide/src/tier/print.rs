//! What `memtide tier` shows: lines of text with a status line below them on a
//! terminal, or one JSON object a line.

use crate::lines::{Line, Lines, Named};
use crate::outside::outside;
use memtide_core::units::{Millis, PageSize};
use memtide_linux::live::report::{Direction, Event, MovedPages, Reporter, Status};
use serde::Serialize;
use std::time::Duration;

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
        self.event(
            Millis(0),
            Event::Notice {
                text: text.to_owned(),
            },
        );
    }

    /// Where things stand, once a second.
    pub fn status(&mut self, status: &Status) {
        for moved in std::mem::take(&mut self.moved) {
            self.moved_pages(Millis(status.at_ms), moved);
        }
        if self.lines.json() {
            self.lines.json_line(&Named {
                event: "status",
                content: status,
            });
            return;
        }
        self.lines.status_line(self.sentence(status));
    }

    /// The end.
    pub fn summary(&mut self, status: &Status, why: &str) {
        if self.lines.json() {
            self.status(status);
            self.lines.json_line(&Named {
                event: "summary",
                content: &Summary { why, status },
            });
            return;
        }
        self.status(status);
        self.lines.clear_status();
        let seconds = |time: Duration| time.as_secs_f64();
        let elapsed = status.at_ms as f64 / 1000.0;
        let share = |time: Duration| 100.0 * seconds(time) / elapsed.max(0.001);
        self.lines.write(&format!(
            "{why} after {elapsed:.1} s: promoted {} (pgpromote_success {}), demoted {} \
             (pgdemote_proactive {}), not movable {}\n\
             managed processes hold {} on fast nodes and {} on slow ones\n\
             CPU time: memtide {:.2} s ({:.1} %), the kernel observing for it {:.2} s ({:.1} %); \
             {} looks, {} reports lost",
            self.size(status.pgpromote_success),
            status.pgpromote_success,
            self.size(status.pgdemote_proactive),
            status.pgdemote_proactive,
            self.size(status.failed_pages),
            self.size(status.top_pages),
            self.size(status.lower_pages),
            seconds(status.cpu),
            share(status.cpu),
            seconds(status.kernel_cpu),
            share(status.kernel_cpu),
            status.passes,
            status.lost,
        ));
    }

    fn sentence(&self, status: &Status) -> String {
        let free: Vec<String> = status
            .free_pages
            .iter()
            .map(|(node, pages)| format!("n{node} {}", self.size(*pages)))
            .collect();
        format!(
            "{:.0} s  {} processes  fast {}  slow {}  promoted {}  demoted {}  free {}  {}  cpu {:.2} + {:.2} s",
            status.at_ms as f64 / 1000.0,
            status.processes,
            self.size(status.top_pages),
            self.size(status.lower_pages),
            self.size(status.pgpromote_success),
            self.size(status.pgdemote_proactive),
            free.join(" "),
            status.observing,
            status.cpu.as_secs_f64(),
            status.kernel_cpu.as_secs_f64(),
        )
    }

    fn text(&mut self, at: Millis, event: &Event) {
        let line = match event {
            Event::Process {
                pid,
                name,
                top_pages,
                lower_pages,
            } => format!(
                "process {pid} ({}): {} on fast nodes, {} on slow ones",
                outside(name),
                self.size(*top_pages),
                self.size(*lower_pages)
            ),
            Event::ProcessGone { pid } => format!("process {pid} has ended"),
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
                format!(
                    "{} {what}, node {from} to {to}: {why}",
                    self.range(range.pid, range.address, range.pages)
                )
            }
            Event::Stayed { range, node, why } => format!(
                "{} stays on node {node}: {why}",
                self.range(range.pid, range.address, range.pages)
            ),
            Event::MovedPages(moved) => return self.moved_pages(at, *moved),
            Event::Notice { text } => text.clone(),
        };
        self.lines.text_line(at, &line);
    }

    fn moved_pages(&self, at: Millis, moved: MovedPages) {
        if self.lines.json() {
            let content = Event::MovedPages(moved);
            return self.lines.json_line(&Line {
                at_ms: at.0,
                content: &content,
            });
        }
        let MovedPages {
            direction,
            pid,
            from,
            to,
            pages,
        } = moved;
        let (size, done) = (self.size(pages), done(direction));
        self.lines.text_line(
            at,
            &format!("{size} {done}, node {from} to {to}, process {pid}"),
        );
    }

    fn range(&self, pid: u32, address: u64, pages: u64) -> String {
        format!("process {pid} {address:#x} {}", self.size(pages))
    }

    fn size(&self, pages: u64) -> String {
        crate::lines::size(pages * self.page.bytes())
    }
}

fn done(direction: Direction) -> &'static str {
    match direction {
        Direction::Promotion => "promoted",
        Direction::Demotion => "demoted",
    }
}

fn planned(direction: Direction) -> &'static str {
    match direction {
        Direction::Promotion => "to promote",
        Direction::Demotion => "to demote",
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
        if self.lines.json() {
            self.lines.json_line(&Line {
                at_ms: at.0,
                content: &event,
            });
        } else {
            self.text(at, &event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::{documented, printed};
    use memtide_core::pages::Immovable;
    use memtide_core::units::NodeId;
    use memtide_linux::live::report::{Range, Stay};
    use std::collections::BTreeSet;

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
                | Stay::NotWorthIt => {}
            }
        }
        all
    }

    /// Every kind of event, with the same care.
    fn events() -> Vec<Event> {
        let range = Range {
            pid: 7,
            address: 0x1000,
            pages: 3,
        };
        let mut all = vec![
            Event::Process {
                pid: 7,
                name: "x".into(),
                top_pages: 1,
                lower_pages: 2,
            },
            Event::ProcessGone { pid: 7 },
            Event::Moved {
                direction: Direction::Promotion,
                dry_run: false,
                range,
                from: NodeId(2),
                to: NodeId(0),
                why: "hot".into(),
            },
            Event::MovedPages(MovedPages {
                direction: Direction::Demotion,
                pid: 7,
                from: NodeId(0),
                to: NodeId(2),
                pages: 3,
            }),
            Event::Notice { text: "x".into() },
        ];
        all.extend(stays().into_iter().map(|why| Event::Stayed {
            range,
            node: NodeId(2),
            why,
        }));
        for event in &all {
            match event {
                Event::Process { .. }
                | Event::ProcessGone { .. }
                | Event::MovedPages(_)
                | Event::Moved { .. }
                | Event::Stayed { .. }
                | Event::Notice { .. } => {}
            }
        }
        all
    }

    #[test]
    fn the_schema_is_documented() {
        let (section, documented) = documented("tier");
        let mut used = BTreeSet::from(["event".to_owned(), "at_ms".to_owned()]);
        let mut names = BTreeSet::from(["summary".to_owned()]);
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
        for why in stays() {
            let reason = serde_json::to_value(why).unwrap()["reason"].clone();
            names.insert(reason.as_str().unwrap().to_owned());
        }
        for name in names {
            assert!(section.contains(&format!("`{name}`")), "{name}");
        }
    }
}
