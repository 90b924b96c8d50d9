//! What is shown: the latest status, the rates of the last minutes, and what keys have chosen.
//!
//! Below is one table: the classes, or the processes that have most of what they are ordered by. Without
//! classes it is the processes until a key says otherwise.
//!
//! No clock and no terminal are here. A rate is what two statuses differ in over the run's own time
//! between them. Where a new run began, or the service did, there is no rate, for its sums are new.

use crate::shared::control::standing::{Class, Process, Standing};
use memtide_loop::report::ProcessOrder;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Rates that are kept: a terminal is no wider.
const KEPT: usize = 512;

/// What a key wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The end.
    Quit,
    /// The row above.
    Up,
    /// The row below.
    Down,
    /// Another order.
    Sort,
    /// The other table.
    Table,
    /// The picture stays, or goes on.
    Pause,
    /// The keys, shown or not.
    Help,
}

impl Key {
    /// Which one it is, if it is one.
    pub fn of(event: &KeyEvent) -> Option<Key> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            // A terminal that hands over every key makes no signal of this one.
            KeyCode::Char('c') if control => Some(Key::Quit),
            _ if control => None,
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
            KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
            KeyCode::Char('s') => Some(Key::Sort),
            KeyCode::Char('t') | KeyCode::Tab => Some(Key::Table),
            KeyCode::Char('p') => Some(Key::Pause),
            KeyCode::Char('?' | 'h') => Some(Key::Help),
            _ => None,
        }
    }
}

/// The order of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By name.
    Name,
    /// Who uses most fast memory first.
    Uses,
    /// Of whom most was promoted first.
    Promoted,
    /// Of whom most was demoted first.
    Demoted,
    /// Of whom most was back soon first.
    Returned,
}

impl Order {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Order::Name => "name",
            Order::Uses => "uses",
            Order::Promoted => "promoted",
            Order::Demoted => "demoted",
            Order::Returned => "returned",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Name => Order::Uses,
            Order::Uses => Order::Promoted,
            Order::Promoted => Order::Demoted,
            Order::Demoted => Order::Returned,
            Order::Returned => Order::Name,
        }
    }
}

/// For people.
fn name_of(order: ProcessOrder) -> &'static str {
    match order {
        ProcessOrder::Fast => "fast",
        ProcessOrder::Slow => "slow",
        ProcessOrder::Promoted => "promoted",
        ProcessOrder::Demoted => "demoted",
        ProcessOrder::Returned => "returned",
    }
}

fn after(order: ProcessOrder) -> ProcessOrder {
    match order {
        ProcessOrder::Fast => ProcessOrder::Slow,
        ProcessOrder::Slow => ProcessOrder::Promoted,
        ProcessOrder::Promoted => ProcessOrder::Demoted,
        ProcessOrder::Demoted => ProcessOrder::Returned,
        ProcessOrder::Returned => ProcessOrder::Fast,
    }
}

/// What moved, in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Up.
    pub promoted: u64,
    /// Down.
    pub demoted: u64,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    /// The machine's name.
    pub host: String,
    /// Whether colours are wanted.
    pub styled: bool,
    /// Whether there are keys to press.
    pub keys: bool,
    /// The status that is shown.
    pub standing: Option<Standing>,
    /// The latest one, which a pause holds back.
    latest: Option<Standing>,
    /// Oldest first.
    pub rates: VecDeque<Rate>,
    /// Why nothing comes at present.
    pub trouble: Option<String>,
    /// The order of classes.
    order: Order,
    /// The name of the class that is chosen.
    chosen: Option<String>,
    /// The processes that came last, and those that a pause holds back.
    processes: Vec<Process>,
    latest_processes: Vec<Process>,
    /// Why none come at present.
    pub no_processes: Option<String>,
    /// The order of processes.
    process_order: ProcessOrder,
    /// The process that is chosen.
    chosen_pid: Option<u32>,
    /// Whether the processes are shown, if anybody said so.
    shows_processes: Option<bool>,
    /// Whether the picture stays.
    pub paused: bool,
    /// Whether the keys are shown.
    pub help: bool,
}

impl State {
    /// Nothing is known yet.
    pub fn new(host: String, styled: bool) -> State {
        State {
            host,
            styled,
            keys: true,
            standing: None,
            latest: None,
            rates: VecDeque::new(),
            trouble: None,
            order: Order::Name,
            chosen: None,
            processes: Vec::new(),
            latest_processes: Vec::new(),
            no_processes: None,
            process_order: ProcessOrder::default(),
            chosen_pid: None,
            shows_processes: None,
            paused: false,
            help: false,
        }
    }

    /// Nobody presses keys at a page, and it has no past.
    pub fn for_a_page(&mut self) {
        self.keys = false;
    }

    /// How many rows the table has.
    pub fn rows(&self) -> usize {
        match self.wanted() {
            Some(_) => self.processes.len(),
            None => self.classes().len(),
        }
    }

    /// The processes are to be shown, whether there are classes or not.
    pub fn show_processes(&mut self) {
        self.shows_processes = Some(true);
    }

    /// In which order processes are wanted, if they are.
    pub fn wanted(&self) -> Option<ProcessOrder> {
        let standing = self.standing.as_ref();
        let no_class = standing.is_some_and(|standing| standing.classes.is_empty());
        let shows = self.shows_processes.unwrap_or(no_class);
        shows.then_some(self.process_order)
    }

    /// The name of the order of what is shown.
    pub fn order(&self) -> &'static str {
        match self.wanted() {
            Some(order) => name_of(order),
            None => self.order.name(),
        }
    }

    /// Takes what is known of processes.
    pub fn hear_processes(&mut self, processes: Vec<Process>) {
        self.no_processes = None;
        self.latest_processes = processes;
        // A pause holds what is shown, and not what has not been shown yet.
        if !self.paused || self.processes.is_empty() {
            self.processes = self.latest_processes.clone();
        }
    }

    /// Takes a status.
    pub fn hear(&mut self, standing: Standing) {
        self.trouble = None;
        let before = self.latest.replace(standing.clone());
        if !self.paused {
            if let Some(rate) = before.and_then(|before| rate(&before, &standing)) {
                self.rates.push_back(rate);
                if self.rates.len() > KEPT {
                    self.rates.pop_front();
                }
            }
            self.standing = Some(standing);
        }
    }

    /// No processes come, for this reason.
    pub fn lose_processes(&mut self, why: String) {
        self.no_processes = Some(why);
    }

    /// Nothing comes, for this reason.
    pub fn lost(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Does what a key wants. Whether it goes on.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Quit => return false,
            Key::Up => self.step(false),
            Key::Down => self.step(true),
            Key::Sort if self.wanted().is_some() => {
                self.process_order = after(self.process_order);
            }
            Key::Sort => self.order = self.order.next(),
            Key::Table => self.shows_processes = Some(self.wanted().is_none()),
            Key::Pause => {
                self.paused = !self.paused;
                if !self.paused {
                    self.standing = self.latest.clone();
                    self.processes = self.latest_processes.clone();
                }
            }
            Key::Help => self.help = !self.help,
        }
        true
    }

    fn step(&mut self, down: bool) {
        let last = self.rows().saturating_sub(1);
        let next = match self.chosen() {
            None => 0,
            Some(row) if down => (row + 1).min(last),
            Some(row) => row.saturating_sub(1),
        };
        match self.wanted() {
            Some(_) => self.chosen_pid = self.processes().get(next).map(|process| process.pid),
            None => self.chosen = self.classes().get(next).map(|class| class.name.clone()),
        }
    }

    /// The processes in their order.
    pub fn processes(&self) -> Vec<&Process> {
        let mut processes: Vec<&Process> = self.processes.iter().collect();
        processes.sort_by_key(|process| {
            let most = match self.process_order {
                ProcessOrder::Fast => process.fast_bytes,
                ProcessOrder::Slow => process.slow_bytes,
                ProcessOrder::Promoted => process.promoted_bytes,
                ProcessOrder::Demoted => process.demoted_bytes,
                ProcessOrder::Returned => process.returned_bytes,
            };
            (Reverse(most), process.pid)
        });
        processes
    }

    /// The classes in their order.
    pub fn classes(&self) -> Vec<&Class> {
        let standing = self.standing.iter();
        let mut classes: Vec<&Class> = standing.flat_map(|standing| &standing.classes).collect();
        classes.sort_by_key(|class| {
            let most = match self.order {
                Order::Name => 0,
                Order::Uses => class.fast_bytes.unwrap_or(0),
                Order::Promoted => class.promoted_bytes,
                Order::Demoted => class.demoted_bytes,
                Order::Returned => class.returned_bytes,
            };
            (Reverse(most), class.name.clone())
        });
        classes
    }

    /// The row that is chosen, if it is still there.
    pub fn chosen(&self) -> Option<usize> {
        if self.wanted().is_some() {
            let processes = self.processes();
            let mut pids = processes.iter().map(|process| process.pid);
            return pids.position(|pid| Some(pid) == self.chosen_pid);
        }
        let chosen = self.chosen.as_ref()?;
        self.classes()
            .iter()
            .position(|class| class.name == *chosen)
    }
}

/// What moved between two statuses of one run.
fn rate(before: &Standing, now: &Standing) -> Option<Rate> {
    let ms = now.run_ms.checked_sub(before.run_ms).filter(|ms| *ms > 0)?;
    if now.pid != before.pid {
        return None;
    }
    let of = |before: u64, now: u64| {
        let bytes = u128::from(now.checked_sub(before)?) * 1000 / u128::from(ms);
        u64::try_from(bytes).ok()
    };
    Some(Rate {
        promoted: of(before.promoted_bytes, now.promoted_bytes)?,
        demoted: of(before.demoted_bytes, now.demoted_bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::control::standing::tests::standing;

    fn at(run_ms: u64, promoted: u64) -> Standing {
        Standing {
            run_ms,
            promoted_bytes: promoted,
            ..standing()
        }
    }

    fn names(state: &State) -> Vec<&str> {
        state.classes().iter().map(|class| &*class.name).collect()
    }

    /// 3000 bytes in 2 s are 1500 a second.
    #[test]
    fn rates_are_of_one_run() {
        let mut state = State::new("host".to_owned(), false);
        state.hear(at(1000, 0));
        assert!(state.rates.is_empty());
        state.hear(at(3000, 3000));
        assert_eq!(state.rates[0].promoted, 1500);
        // Another run, whose sums begin at zero; and another service, whose time has gone on.
        state.hear(at(500, 0));
        state.hear(Standing {
            pid: 1,
            ..at(2000, 9000)
        });
        state.hear(at(2000, 9000));
        assert_eq!(state.rates.len(), 1);
        for second in 0..2000 {
            state.hear(at(3000 + second * 1000, 9000));
        }
        assert_eq!(state.rates.len(), KEPT);
    }

    #[test]
    fn a_pause_shows_what_was_and_then_what_is() {
        let mut state = State::new(String::new(), false);
        state.hear(at(1000, 0));
        assert!(state.press(Key::Pause));
        state.hear(at(2000, 0));
        assert_eq!(state.standing.as_ref().unwrap().run_ms, 1000);
        assert!(state.press(Key::Pause));
        assert_eq!(state.standing.as_ref().unwrap().run_ms, 2000);
        state.lost("gone".to_owned());
        assert!(state.trouble.is_some());
        state.hear(at(3000, 0));
        assert!(state.trouble.is_none());
        assert!(!state.press(Key::Quit));
    }

    #[test]
    fn the_chosen_class_stays_chosen_in_any_order() {
        let mut state = State::new(String::new(), false);
        assert!(state.press(Key::Down) && state.chosen().is_none());
        state.hear(standing());
        assert_eq!(names(&state), ["batch", "db"]);
        state.press(Key::Down);
        assert_eq!(state.chosen(), Some(0));
        state.press(Key::Sort);
        assert_eq!(
            (names(&state), state.chosen()),
            (vec!["db", "batch"], Some(1))
        );
        state.press(Key::Down);
        assert_eq!(state.chosen(), Some(1));
        state.press(Key::Up);
        state.press(Key::Up);
        assert_eq!(state.chosen(), Some(0));
        let mut without = standing();
        without.classes.clear();
        state.hear(without);
        assert_eq!(state.chosen(), None);
    }

    #[test]
    fn processes_have_their_own_order_and_choice() {
        let mut state = State::new(String::new(), false);
        assert_eq!(state.wanted(), None);
        state.hear(standing());
        assert_eq!((state.wanted(), state.order()), (None, "name"));
        state.press(Key::Table);
        assert_eq!(state.wanted(), Some(ProcessOrder::Fast));
        let process = |pid, fast_bytes, slow_bytes| Process {
            pid,
            fast_bytes,
            slow_bytes,
            ..Process::default()
        };
        state.hear_processes(vec![process(3, 10, 1), process(2, 10, 7), process(1, 5, 4)]);
        let pids = |state: &State| -> Vec<u32> {
            let processes = state.processes();
            processes.iter().map(|process| process.pid).collect()
        };
        assert_eq!(pids(&state), [2, 3, 1]);
        state.press(Key::Down);
        state.press(Key::Down);
        state.press(Key::Sort);
        assert_eq!((pids(&state), state.order()), (vec![2, 1, 3], "slow"));
        assert_eq!(state.chosen(), Some(2));
        state.press(Key::Pause);
        state.hear_processes(Vec::new());
        assert_eq!(state.rows(), 3);
        state.press(Key::Pause);
        assert_eq!((state.rows(), state.chosen()), (0, None));
        state.press(Key::Table);
        assert_eq!((state.rows(), state.order()), (2, "name"));
        // Without classes they are shown until somebody says otherwise.
        let mut without = standing();
        without.classes.clear();
        let mut state = State::new(String::new(), false);
        state.hear(without);
        assert_eq!(state.wanted(), Some(ProcessOrder::Fast));
        state.press(Key::Table);
        assert_eq!(state.wanted(), None);
    }

    #[test]
    fn keys_are_few() {
        let key = |code, modifiers| Key::of(&KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), none), Some(Key::Quit));
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Key::Quit)
        );
        assert_eq!(key(KeyCode::Char('c'), none), None);
        assert_eq!(key(KeyCode::Char('s'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char('j'), none), key(KeyCode::Down, none));
        assert_eq!(
            key(KeyCode::Char('?'), KeyModifiers::SHIFT),
            Some(Key::Help)
        );
    }
}
