//! What the service manager is told, as sd_notify(3) describes it.
//!
//! Without a manager nothing is sent. That a message does not arrive is no reason to stop managing
//! memory. The watchdog is fed by the loop and by nobody else: a loop that hangs must not look alive.

use sd_notify::NotifyState;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// From one status to the next.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// Pings in the time in which one must come.
const PINGS: u32 = 4;

/// How often it is told in the midst of a turn.
const STILL_EVERY: Duration = Duration::from_secs(1);

/// The service manager.
pub struct Manager {
    /// From one ping to the next.
    ping_every: Option<Duration>,
    pinged: Cell<Instant>,
    /// When it was told how things stand.
    told: Cell<Option<Instant>>,
}

impl Manager {
    /// The one that started this process, if one did.
    pub fn new() -> Manager {
        Manager {
            ping_every: sd_notify::watchdog_enabled().map(|limit| limit / PINGS),
            pinged: Cell::new(Instant::now()),
            told: Cell::new(None),
        }
    }

    /// The loop runs.
    pub fn ready(&self) {
        send(&[NotifyState::Ready]);
        self.alive();
    }

    /// A new configuration is looked at; `ready` comes after it in any case.
    pub fn reloading(&self) {
        let Ok(now) = NotifyState::monotonic_usec_now() else {
            return;
        };
        // One message: the manager compares the time with that of its signal.
        send(&[NotifyState::Reloading, now]);
        self.alive();
    }

    /// What was lent is put back, and then it ends.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping]);
        self.alive();
    }

    /// A sentence that is to be seen.
    pub fn says(&self, sentence: &str) {
        self.told.set(Some(Instant::now()));
        let line = crate::shared::outside::message(sentence);
        send(&[NotifyState::Status(&line)]);
    }

    /// A turn is over.
    pub fn turned(&self) {
        let due = |every| self.pinged.get().elapsed() >= every;
        if self.ping_every.is_some_and(due) {
            self.alive();
        }
    }

    /// Where things stand, about once a second; it is told more rarely.
    pub fn stands(&self, sentence: impl FnOnce() -> String) {
        let told = self.told.get();
        if told.is_none_or(|told| told.elapsed() >= STATUS_EVERY) {
            self.says(&sentence());
        }
    }

    fn alive(&self) {
        if self.ping_every.is_some() {
            self.pinged.set(Instant::now());
            send(&[NotifyState::Watchdog]);
        }
    }
}

thread_local! {
    /// When it was last told in the midst of a turn.
    static STILL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// In the midst of a turn: the loop goes on. Once a second is enough.
pub fn still_alive() {
    let due = STILL.get().is_none_or(|last| last.elapsed() >= STILL_EVERY);
    if due && sd_notify::watchdog_enabled().is_some() {
        STILL.set(Some(Instant::now()));
        send(&[NotifyState::Watchdog]);
    }
}

fn send(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    const SOCKET: &str = "NOTIFY_SOCKET";

    /// The environment is the protocol's, so the manager's side starts this test once more, with it.
    #[test]
    fn the_protocol_is_that_of_sd_notify() {
        if std::env::var_os(SOCKET).is_some_and(|path| !path.is_empty()) {
            let manager = Manager::new();
            manager.ready();
            manager.says("two\nlines");
            manager.turned();
            manager.reloading();
            manager.ready();
            manager.stopping();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let name = "the_protocol_is_that_of_sd_notify";
        let messages = |watchdog: Option<&str>| {
            let mut service = Command::new(std::env::current_exe().unwrap());
            service.arg(name).env(SOCKET, &path);
            service
                .env_remove("WATCHDOG_PID")
                .env_remove("WATCHDOG_USEC");
            if let Some(limit) = watchdog {
                service.env("WATCHDOG_USEC", limit);
            }
            assert!(service.output().unwrap().status.success());
            socket.set_nonblocking(true).unwrap();
            let mut messages = Vec::new();
            let mut bytes = [0; 1024];
            while let Ok(length) = socket.recv(&mut bytes) {
                messages.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            }
            messages
        };
        let sent = messages(None);
        let time = sent[2]
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .unwrap();
        assert!(time.trim_end().parse::<u64>().unwrap() > 0);
        assert_eq!(
            [&sent[..2], &sent[3..]].concat(),
            [
                "READY=1\n",
                "STATUS=two lines\n",
                "READY=1\n",
                "STOPPING=1\n"
            ]
        );
        // A limit of 4 us: the turn is late for its ping.
        let pings = |sent: &[String]| sent.iter().filter(|sent| *sent == "WATCHDOG=1\n").count();
        assert_eq!(pings(&messages(Some("4"))), 5);
        // And one of an hour: the turn need not ping yet.
        assert_eq!(pings(&messages(Some("3600000000"))), 4);
        assert_eq!(pings(&sent), 0);
    }
}
