//! The control socket: who asks a running service, and who answers.
//!
//! [`varlink`] is the protocol, [`interface`] says what can be asked, [`standing`] is what is told,
//! [`socket`] is where, [`server`] answers on a thread of its own, and [`client`] asks. The service has a
//! [`Control`]: it leaves its status there about once a second, and what came of each reload.
//!
//! # Who may what
//!
//! Who can open the socket may read the status, and which processes are managed: root, and a group where
//! one is configured. The rest is for root and for the user that the service runs as, whatever the mode of
//! the socket: the kernel says who connected. What is known of single pages is no matter for a group: it
//! tells of a program's addresses. A reload over the socket is the one of SIGHUP; a call can choose the
//! moment and nothing else.

pub mod client;
pub mod interface;
mod server;
mod socket;
pub mod standing;
pub mod varlink;

use super::control_args::ControlArgs;
use super::unix_socket::Bound;
use interface::{Granted, Wish};
use memtide_linux::fs::Root;
pub use server::Outcome;
use server::{Order, PATIENCE, Shared};
use socket::Turn;
pub use socket::check;
use standing::{Reload, Standing};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// The service's side of the socket.
///
/// Its name goes first when this is dropped: nobody finds a socket at which nobody listens.
pub struct Control {
    root: Root,
    reload: Arc<AtomicBool>,
    /// What it follows.
    args: ControlArgs,
    bound: Option<Bound>,
    /// Stays when there is no socket any more: who waits for what comes of a reload is told.
    answering: Option<Answering>,
    /// While there is a socket.
    turn: Option<Turn>,
    /// The last reload, and why it was refused.
    last: Option<(Reload, Option<String>)>,
    /// What came of a reload, and for whom, until the next status is told.
    due: Cell<Option<(u64, Outcome)>>,
}

/// The thread that answers.
struct Answering {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    why_it_ends: String,
}

/// The reloads that were asked for before one began.
#[must_use]
pub struct Asked(u64);

/// No socket.
const NONE: ControlArgs = ControlArgs {
    enabled: false,
    group: None,
};

impl Control {
    /// Listens, if `args` want it. Who wants a reload raises `reload`.
    ///
    /// # Errors
    /// Another service listens, or this one cannot.
    pub fn begin(
        args: &ControlArgs,
        root: &Root,
        reload: Arc<AtomicBool>,
    ) -> anyhow::Result<Control> {
        let mut control = Control {
            root: root.clone(),
            reload,
            args: NONE,
            bound: None,
            answering: None,
            turn: None,
            last: None,
            due: Cell::new(None),
        };
        control.follow(args)?;
        Ok(control)
    }

    /// Listens where `args` want it from now on. If that is elsewhere, or for others, who is connected
    /// has to come again; who waits for what comes of a reload is told before.
    ///
    /// # Errors
    /// As of [`begin`](Self::begin). Then all stays as it was.
    pub fn follow(&mut self, args: &ControlArgs) -> anyhow::Result<()> {
        let lost = self.bound.as_ref().is_some_and(|bound| !bound.is_there());
        if lost {
            // The folder with the lock may be gone, too.
            self.turn = None;
        } else if *args == self.args {
            if args.enabled && args.group.is_some() {
                // The service manager may have closed it.
                let _ = socket::let_look(&self.root);
            }
            return Ok(());
        }
        if !args.enabled {
            self.leave();
            self.args = args.clone();
            return Ok(());
        }
        let answering = match &mut self.answering {
            Some(answering) => answering,
            none => none.insert(Answering::begin(Arc::clone(&self.reload))?),
        };
        let turn = match self.turn.take() {
            Some(turn) => turn,
            None => Turn::take(&self.root)?,
        };
        // Before the old place is left, which stays if this one cannot be had.
        let listened = turn.listen(args);
        if listened.is_ok() || self.bound.is_some() {
            self.turn = Some(turn);
        }
        let (listener, bound) = listened?;
        // The old name goes, unless it is the new one's.
        self.bound = Some(bound);
        answering.shared.order(Order::Listen(Some(listener)));
        self.args = args.clone();
        Ok(())
    }

    /// Listens nowhere from now on. Another service may.
    pub fn leave(&mut self) {
        self.bound = None;
        if let Some(answering) = &self.answering {
            answering.shared.order(Order::Listen(None));
        }
        self.turn = None;
        self.args = NONE;
    }

    /// Leaves where things stand, at the beginning and then about once a second. Who waits for what came
    /// of a reload hears it after that, so that the status knows of it when he asks.
    pub fn tell(&self, standing: impl FnOnce() -> Standing) {
        let Some(Answering { shared, .. }) = &self.answering else {
            return;
        };
        shared.tell(Standing {
            reload: self.last.as_ref().map(|(reload, _)| *reload),
            refused: self.last.as_ref().and_then(|(_, why)| why.clone()),
            ..standing()
        });
        self.answer_reloads();
    }

    fn answer_reloads(&self) {
        if let (Some(Answering { shared, .. }), Some((upto, outcome))) =
            (&self.answering, self.due.take())
        {
            shared.order(Order::Outcome(upto, outcome));
        }
    }

    /// Has `grant` do what clients wish.
    pub fn grant(&self, mut grant: impl FnMut(Wish) -> Granted) {
        let Some(Answering { shared, .. }) = &self.answering else {
            return;
        };
        for (ticket, wish) in shared.wishes() {
            shared.order(Order::Granted(ticket, grant(wish)));
        }
    }

    /// A reload begins. What comes of it is for those who asked before.
    pub fn reloading(&self) -> Asked {
        let shared = self.answering.as_ref().map(|answering| &answering.shared);
        Asked(shared.map_or(0, |shared| shared.tickets.load(Ordering::SeqCst)))
    }

    /// What came of the reload, `at` that time; the next status is told before it.
    pub fn reloaded(&mut self, asked: Asked, outcome: Outcome, at: SystemTime) {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let reload = Reload {
            unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            taken: outcome.is_ok(),
        };
        self.last = Some((reload, outcome.as_ref().err().cloned()));
        self.due.set(Some((asked.0, outcome)));
    }

    /// The service ends, for it failed. Who waits for an answer is told why.
    pub fn fails(&mut self, why: &str) {
        if let Some(answering) = &mut self.answering {
            answering.why_it_ends = format!("the service ends: {why}");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // No status comes any more that could be told before.
        self.answer_reloads();
    }
}

impl Answering {
    fn begin(reload: Arc<AtomicBool>) -> anyhow::Result<Answering> {
        let shared = Arc::new(Shared::new(reload)?);
        let thread = server::begin(Arc::clone(&shared), PATIENCE)?;
        Ok(Answering {
            shared,
            thread: Some(thread),
            why_it_ends: "the service ends".to_owned(),
        })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let why = std::mem::take(&mut self.why_it_ends);
        self.shared.order(Order::End(why));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
