//! The child that makes the calls: no allocation but for a fork, no output, nothing between two calls.
//!
//! It answers into shared words: for every call `ret`, how many words follow, and those: for
//! get_mempolicy(2) whether a mode was written, the mode, and the mask's words; for pages the runs, a
//! node and a count each. Calls that its parent makes for it are a turn of two event counters: the
//! child says that it has come to such a call, the parent says that it is done.
//!
//! A child that forks goes on as several processes. Each goes through the calls; who has the next one
//! is woken by an event counter of its own, and the others sleep. The number of the next call, the end
//! of the answers and everybody's process id stand before the answers.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, WaitOptions, wait, waitpid};

use super::calls::{Answer, Call, Mask, NamedMask, Place, Sequence, Word};
use super::cast::{Cast, Role};
use super::sys::{self, MaskBuffer, MaskPointer, SharedWords};
use crate::guest::sys::{die_with_parent, fork};

const PAGE: u64 = 4096;
/// What stands in the buffers before get_mempolicy(2) writes; neither a mode nor a mask.
const UNTOUCHED_MODE: i32 = 0x5a5a_5a5a;
const UNTOUCHED_WORD: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Words that an answer takes at most beside its runs: two, the mode, and a mask.
const WORDS_OF_ANY: usize = 4 + sys::MASK_WORDS;

/// Shared words: the number of the next call, where the next answer goes, and the processes' ids.
const NUMBER: usize = 0;
const AT: usize = 1;
const PIDS: usize = 2;
/// How long a process waits while no call is made by any; one has died by then.
const PATIENCE: Timespec = Timespec {
    tv_sec: 300,
    tv_nsec: 0,
};

/// Where the first answer goes.
pub fn first_answer(cast: &Cast) -> usize {
    PIDS + cast.processes
}

/// Notes the process id of process `who`.
pub fn set_pid(words: &SharedWords, who: usize, pid: i32) {
    words.set(PIDS + who, u64::from(pid.cast_unsigned()));
}

/// The process id of process `who`, once it is there.
pub fn pid(words: &SharedWords, who: usize) -> i32 {
    (words.get(PIDS + who) as u32).cast_signed()
}

/// Whether the parent makes this call.
pub fn is_for_parent(call: &Call) -> bool {
    matches!(
        call,
        Call::RunOn { .. } | Call::Cpuset { .. } | Call::Weight { .. } | Call::Auto { .. }
    )
}

/// How many pages a place names.
fn pages_of(place: &Place) -> u64 {
    place
        .length
        .map_or(place.pages, |bytes| bytes.div_ceil(PAGE))
}

/// How many words the answers may take.
pub fn words_needed(sequence: &Sequence, cast: &Cast) -> usize {
    let words = |call: &Call| match call {
        Call::GetMempolicy { .. } => WORDS_OF_ANY,
        Call::Touch { place } | Call::Where { place } => 2 + 2 * pages_of(place) as usize,
        _ => 2,
    };
    let calls = sequence.calls.iter().map(|line| &line.call);
    first_answer(cast) + calls.map(words).sum::<usize>() + 16
}

/// What the child works with, made before the fork.
#[derive(Debug)]
pub struct Child<'a> {
    sequence: &'a Sequence,
    cast: &'a Cast,
    /// Which process this is.
    me: usize,
    /// What wakes each process.
    turns: Vec<OwnedFd>,
    /// Address of each call's place.
    addresses: Vec<u64>,
    answers: &'a SharedWords,
    wants_parent: OwnedFd,
    parent_is_done: OwnedFd,
    zeros: OwnedFd,
    mask: MaskBuffer,
    asked: Vec<u64>,
    nodes: Vec<i32>,
}

impl<'a> Child<'a> {
    /// Prepares everything. The first event counter is the child's word, the second its parent's.
    ///
    /// # Errors
    /// When a call names a region that no call before it maps, or the program runs out of files.
    pub fn new(
        sequence: &'a Sequence,
        cast: &'a Cast,
        answers: &'a SharedWords,
        events: (OwnedFd, OwnedFd),
    ) -> anyhow::Result<Self> {
        let mut addresses = Vec::new();
        let calls = || sequence.calls.iter().map(|line| &line.call);
        for (number, call) in calls().enumerate() {
            let address = match (call, place_of(call)) {
                (Call::Mmap { address, .. }, _) => Some(address.0),
                (_, Some(place)) => sequence.address_of(number, place),
                (_, None) => Some(0),
            };
            let missing = || anyhow::anyhow!("line {}: no such region", number + 2);
            addresses.push(address.ok_or_else(missing)?);
        }
        let most = calls().filter_map(place_of).map(pages_of);
        // A length may be nonsense where no pages are asked for; those calls take no buffer.
        let most = most.filter(|&pages| pages < 1 << 20).max().unwrap_or(0) as usize;
        answers.set(AT, first_answer(cast) as u64);
        let turns = (0..cast.processes).map(|_| eventfd(0, EventfdFlags::empty()));
        Ok(Self {
            sequence,
            cast,
            me: 0,
            turns: turns.collect::<Result<_, _>>()?,
            addresses,
            answers,
            wants_parent: events.0,
            parent_is_done: events.1,
            zeros: std::fs::File::open("/dev/zero")?.into(),
            mask: MaskBuffer::new(),
            asked: vec![0; most],
            nodes: vec![0; most],
        })
    }

    /// Makes the calls, without CAP_SYS_NICE if the machine says so. Returns in every process that the
    /// calls have made and not ended, and tells whether all went well.
    pub fn run(&mut self) -> bool {
        if !self.sequence.machine.capable && sys::drop_nice().is_err() {
            return false;
        }
        let sequence = self.sequence;
        loop {
            let number = self.answers.get(NUMBER) as usize;
            let Some(line) = sequence.calls.get(number) else {
                break;
            };
            let role = self.cast.roles[number];
            if line.call == Call::Exit && role.other == self.me {
                return true;
            }
            if role.actor != self.me {
                if !self.wait_for_turn() {
                    return false;
                }
                continue;
            }
            if is_for_parent(&line.call) {
                let _ = rustix::io::write(&self.wants_parent, &1_u64.to_ne_bytes());
                let _ = rustix::io::read(&self.parent_is_done, &mut [0_u8; 8]);
            } else {
                self.make(&line.call, self.addresses[number], role);
            }
            if role.actor == self.me {
                self.answers.set(NUMBER, number as u64 + 1);
                let next = self.cast.roles.get(number + 1);
                if let Some(next) = next.filter(|next| next.actor != self.me) {
                    self.wake(next.actor);
                }
            }
        }
        (0..self.cast.processes).for_each(|who| self.wake(who));
        let mut well = true;
        while let Ok(Some((_, status))) = wait(WaitOptions::empty()) {
            well &= status.exit_status() == Some(0);
        }
        well
    }

    fn wake(&self, who: usize) {
        let _ = rustix::io::write(&self.turns[who], &1_u64.to_ne_bytes());
    }

    /// Sleeps until another process says that it is this one's turn; false if nothing goes on.
    fn wait_for_turn(&self) -> bool {
        let turn = &self.turns[self.me];
        loop {
            let before = self.answers.get(NUMBER);
            let mut woken = [PollFd::new(turn, PollFlags::IN)];
            match poll(&mut woken, Some(&PATIENCE)) {
                Ok(0) if self.answers.get(NUMBER) == before => return false,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return rustix::io::read(turn, &mut [0_u8; 8]).is_ok(),
                Err(_) => return false,
            }
        }
    }

    fn put(&mut self, word: u64) {
        let at = self.answers.get(AT);
        self.answers.set(at as usize, word);
        self.answers.set(AT, at + 1);
    }

    fn put_plain(&mut self, ret: i64) {
        self.put(ret.cast_unsigned());
        self.put(0);
    }

    fn make(&mut self, call: &'a Call, address: u64, role: Role) {
        match call {
            Call::Fork { .. } => self.fork(role.other),
            Call::Exit => {
                self.wake(role.other);
                let pid = Pid::from_raw(pid(self.answers, role.other));
                let wait = |pid| waitpid(Some(pid), WaitOptions::empty()).ok().flatten();
                let ended = pid.and_then(wait);
                let well = ended.is_some_and(|(_, status)| status.exit_status() == Some(0));
                self.put_plain(if well { 0 } else { -1 });
            }
            Call::SetMempolicy {
                mode,
                mask,
                maxnode,
            } => {
                let ret = sys::set_mempolicy(*mode, given(&mut self.mask, mask), *maxnode);
                self.put_plain(ret);
            }
            Call::Mbind {
                place,
                mode,
                mask,
                maxnode,
                flags,
            } => {
                let range = (address, bytes_of(place));
                let ret = sys::mbind(range, *mode, given(&mut self.mask, mask), *maxnode, *flags);
                self.put_plain(ret);
            }
            Call::SetMempolicyHomeNode { place, node, flags } => {
                let range = (address, bytes_of(place));
                self.put_plain(sys::set_mempolicy_home_node(range, *node, *flags));
            }
            Call::GetMempolicy {
                mode,
                mask,
                maxnode,
                flags,
                ..
            } => self.get_mempolicy((*mode, *mask), *maxnode, address, *flags),
            Call::Mmap { pages, .. } => self.put_plain(sys::map(address, pages * PAGE)),
            Call::Munmap { place } => self.put_plain(sys::unmap(address, bytes_of(place))),
            Call::Touch { place } => self.touch(address, pages_of(place)),
            Call::Where { place } => self.put_nodes(0, address, pages_of(place) as usize),
            Call::RunOn { .. } | Call::Cpuset { .. } | Call::Weight { .. } | Call::Auto { .. } => {}
        }
    }

    /// The child becomes process `child`, and goes on like its parent.
    fn fork(&mut self, child: usize) {
        match fork() {
            Ok(Some(pid)) => {
                set_pid(self.answers, child, pid);
                self.put_plain(0);
            }
            Ok(None) => {
                self.me = child;
                if die_with_parent().is_err() {
                    std::process::exit(1);
                }
            }
            Err(error) => self.put_plain(-i64::from(error.raw_os_error().unwrap_or(1))),
        }
    }

    fn get_mempolicy(&mut self, wanted: (bool, bool), maxnode: u64, address: u64, flags: u64) {
        let mut mode = UNTOUCHED_MODE;
        self.mask.fill(std::iter::empty(), UNTOUCHED_WORD);
        let ret = sys::get_mempolicy(
            wanted.0.then_some(&mut mode),
            wanted.1.then_some(&mut self.mask),
            maxnode,
            address,
            flags,
        );
        let words = self.mask.words();
        let written = words.iter().rposition(|&word| word != UNTOUCHED_WORD);
        let written = written.map_or(0, |last| last + 1);
        self.put(ret.cast_unsigned());
        self.put(2 + written as u64);
        self.put((mode != UNTOUCHED_MODE).into());
        self.put(mode.cast_unsigned().into());
        for index in 0..written {
            self.put(self.mask.words()[index]);
        }
    }

    fn touch(&mut self, address: u64, pages: u64) {
        // A page that waits to be put on its list has one more user, so that who is alone with it
        // would copy it.
        if self.cast.processes > 1 && sys::put_pages_on_lists() < 0 {
            std::process::exit(1);
        }
        for page in 0..pages {
            let ret = sys::touch(self.zeros.as_fd(), address.wrapping_add(page * PAGE));
            if ret < 0 {
                return self.put_nodes(ret, address, page as usize);
            }
        }
        self.put_nodes(0, address, pages as usize);
    }

    fn put_nodes(&mut self, ret: i64, address: u64, pages: usize) {
        for (page, asked) in self.asked[..pages].iter_mut().enumerate() {
            *asked = address.wrapping_add(page as u64 * PAGE);
        }
        let asked = sys::nodes_of(&self.asked[..pages], &mut self.nodes[..pages]);
        let ret = if asked < 0 { asked } else { ret };
        self.put(ret.cast_unsigned());
        let length = self.answers.get(AT) as usize;
        self.put(0);
        let mut at = 0;
        while at < pages {
            let node = self.nodes[at].max(-1);
            let run = self.nodes[at..pages].iter();
            let run = run.take_while(|&&next| next.max(-1) == node).count();
            self.put(i64::from(node).cast_unsigned());
            self.put(run as u64);
            at += run;
        }
        let end = self.answers.get(AT);
        self.answers.set(length, end - length as u64 - 1);
    }
}

fn bytes_of(place: &Place) -> u64 {
    place.length.unwrap_or(place.pages.wrapping_mul(PAGE))
}

/// The pointer to a call's mask, its words in the buffer.
fn given<'a>(buffer: &'a mut MaskBuffer, mask: &Mask) -> MaskPointer<'a> {
    match mask {
        Mask::Null => MaskPointer::Null,
        Mask::Named(NamedMask::Unreadable) => MaskPointer::Unreadable,
        Mask::Words(words) => {
            buffer.fill(words.iter().map(|word| word.0), 0);
            MaskPointer::To(buffer)
        }
    }
}

fn place_of(call: &Call) -> Option<&Place> {
    match call {
        Call::Mbind { place, .. }
        | Call::SetMempolicyHomeNode { place, .. }
        | Call::GetMempolicy { place, .. }
        | Call::Munmap { place }
        | Call::Touch { place }
        | Call::Where { place } => Some(place),
        _ => None,
    }
}

/// Reads the child's answer to `call` at word `at`, and moves on.
pub fn decode(answers: &SharedWords, at: &mut usize, call: &Call) -> Answer {
    let ret = answers.get(*at).cast_signed();
    let length = answers.get(*at + 1) as usize;
    let words: Vec<u64> = (0..length).map(|i| answers.get(*at + 2 + i)).collect();
    *at += 2 + length;
    let mut answer = Answer {
        ret,
        ..Answer::default()
    };
    match call {
        Call::GetMempolicy { .. } => {
            answer.mode = (words[0] == 1).then_some((words[1] as u32).cast_signed());
            answer.mask = (length > 2).then(|| words[2..].iter().copied().map(Word).collect());
        }
        Call::Touch { .. } | Call::Where { .. } => {
            let runs = words.chunks(2);
            answer.nodes = Some(
                runs.map(|run| (run[0].cast_signed() as i32, run[1]))
                    .collect(),
            );
        }
        _ => {}
    }
    answer
}
