//! Many processes within a bounded time, though any of them may keep who looks waiting.
//!
//! Some threads look, each at one process after the other, and end with the command. As long
//! as answers come, all is well. When none comes for a while, the looks under way are given up
//! and new threads take the next processes; an answer that comes late counts. One deadline is
//! for all: what no thread has taken by then is left out, and how many those are is told.

use super::find::{Answer, look};
use memtide_linux::fs::Root;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// How much of it there is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Threads that look, before any is given up.
    pub at_once: usize,
    /// How long no answer is waited through.
    pub silence: Duration,
    /// How long all is waited for.
    pub all: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            at_once: 32,
            silence: Duration::from_secs(2),
            all: Duration::from_secs(20),
        }
    }
}

/// What was learned.
#[derive(Debug, Default)]
pub struct Looked {
    /// By process id.
    pub answers: BTreeMap<u32, Answer>,
    /// Processes for which there was no time.
    pub left_out: u64,
    /// Processor time of the threads that looked.
    pub cpu: Duration,
}

/// The calling thread's processor time.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// The processes, and how many of them a thread has taken.
struct Queue {
    root: Root,
    pids: Vec<u32>,
    taken: AtomicUsize,
    cpu_ns: AtomicU64,
}

impl Queue {
    fn serve(&self, tell: &Sender<(u32, Answer)>) {
        while let Some(&pid) = self.pids.get(self.taken.fetch_add(1, Relaxed)) {
            let before = own_cpu();
            let answer = look(&self.root, pid);
            let spent = own_cpu().saturating_sub(before).as_nanos();
            self.cpu_ns.fetch_add(spent as u64, Relaxed);
            // Nobody may listen any more.
            let _ = tell.send((pid, answer));
        }
    }

    fn left(&self) -> usize {
        self.pids.len().saturating_sub(self.taken.load(Relaxed))
    }
}

/// Looks at processes, each of which stands in `pids` once.
///
/// # Errors
///
/// If no thread can be started.
pub fn look_at_all(root: &Root, pids: Vec<u32>, patience: Patience) -> io::Result<Looked> {
    let until = Instant::now() + patience.all;
    let queue = Arc::new(Queue {
        root: root.clone(),
        pids,
        taken: AtomicUsize::new(0),
        cpu_ns: AtomicU64::new(0),
    });
    let (tell, told) = channel();
    let mut looked = Looked::default();
    while queue.left() > 0 {
        for nth in 0..patience.at_once.min(queue.left()) {
            let (queue, tell) = (queue.clone(), tell.clone());
            let started = std::thread::Builder::new().spawn(move || queue.serve(&tell));
            match started {
                Err(why) if nth == 0 => return Err(why),
                // Those that run do it all.
                Err(_) => break,
                Ok(_) => {}
            }
        }
        while looked.answers.len() < queue.pids.len() {
            let left = until.saturating_duration_since(Instant::now());
            match told.recv_timeout(left.min(patience.silence)) {
                Ok((pid, answer)) => looked.answers.insert(pid, answer),
                Err(_) => break,
            };
        }
        if Instant::now() >= until {
            break;
        }
    }
    let taken = queue.taken.swap(queue.pids.len(), Relaxed);
    looked.answers.extend(told.try_iter());
    for (nth, &pid) in queue.pids.iter().enumerate() {
        if nth >= taken {
            looked.left_out += 1;
        } else {
            looked.answers.entry(pid).or_insert(Answer::Waits);
        }
    }
    looked.cpu = Duration::from_nanos(queue.cpu_ns.load(Relaxed));
    Ok(looked)
}

#[cfg(test)]
mod tests {
    use super::super::find::tests::machine;
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    /// Processes of which those below 100 have memory that nobody fills: a pipe into which
    /// nobody writes.
    fn machine_of(pids: impl Iterator<Item = u32>) -> (tempfile::TempDir, Root) {
        let named = "1000-5000 rw-p 00000000 00:01 9 /memfd:memtide-pager (deleted)\n";
        let (folder, root) = machine("", &[]);
        let proc = folder.path().join("proc");
        for pid in pids {
            let process = proc.join(pid.to_string());
            std::fs::create_dir(&process).unwrap();
            let stat = std::fs::read_to_string(proc.join("7/stat")).unwrap();
            std::fs::write(
                process.join("stat"),
                stat.replacen('7', &pid.to_string(), 1),
            )
            .unwrap();
            let stuck = pid < 100;
            std::fs::write(process.join("status"), "").unwrap();
            std::fs::write(process.join("maps"), if stuck { named } else { "" }).unwrap();
            if stuck {
                mknodat(CWD, process.join("mem"), FileType::Fifo, Mode::RWXU, 0).unwrap();
            }
        }
        (folder, root)
    }

    fn gave_up(looked: &Looked, pid: u32) -> bool {
        matches!(looked.answers[&pid], Answer::Waits)
    }

    /// Two threads get stuck at the first two, and the next two take the others.
    #[test]
    fn who_keeps_the_reader_waiting_keeps_nobody_else_from_being_seen() {
        let pids = [11, 12, 13, 100];
        let (_folder, root) = machine_of(pids.into_iter());
        let patience = Patience {
            at_once: 2,
            silence: Duration::from_secs(5),
            ..Patience::default()
        };
        let looked = look_at_all(&root, pids.to_vec(), patience).unwrap();
        assert_eq!((looked.answers.len(), looked.left_out), (4, 0));
        assert!(
            pids[..3].iter().all(|pid| gave_up(&looked, *pid)),
            "{looked:?}"
        );
        assert!(
            matches!(looked.answers[&100], Answer::NoPager),
            "{looked:?}"
        );
    }

    /// A second of silence for each would be a minute and a half.
    #[test]
    fn one_deadline_is_for_all_and_the_rest_is_counted() {
        let (_folder, root) = machine_of(10..100);
        let patience = Patience {
            at_once: 3,
            silence: Duration::from_secs(1),
            all: Duration::ZERO,
        };
        let looked = look_at_all(&root, (10..100).collect(), patience).unwrap();
        assert!(looked.answers.len() <= 3, "{looked:?}");
        assert_eq!(looked.answers.len() as u64 + looked.left_out, 90);
        assert!(looked.answers.keys().all(|pid| gave_up(&looked, *pid)));
    }
}
