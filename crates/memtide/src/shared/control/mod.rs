//! The control socket: who asks a running service, and who answers.
//!
//! [`varlink`] is the protocol, [`interface`] says what can be asked, [`standing`] is what is told,
//! [`socket`] is where, [`server`] answers on a thread of its own, and [`client`] asks. The service has a
//! [`Control`]: it leaves its status there about once a second, and what came of each reload.
//!
//! # Who may what
//!
//! Who can open the socket may read the status: root, and a group where one is configured. A reload is for
//! root and for the user that the service runs as, whatever the mode of the socket: the kernel says who
//! connected. A reload over the socket is the one of SIGHUP; a call can choose the moment and nothing else.

pub mod client;
mod interface;
mod server;
mod socket;
pub mod standing;
mod varlink;

use super::control_args::ControlArgs;
use memtide_linux::fs::Root;
use server::{Order, Outcome, PATIENCE, Shared};
use socket::{Bound, Turn};
use standing::Standing;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The service's side of the socket.
pub struct Control {
    root: Root,
    reload: Arc<AtomicBool>,
    on: Option<On>,
    /// Why the last reload was refused.
    refused: Option<String>,
}

/// While there is a socket.
struct On {
    turn: Turn,
    /// None while it moves.
    bound: Option<Bound>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The reloads that were asked for before one began.
#[must_use]
pub struct Asked(u64);

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
            on: None,
            refused: None,
        };
        control.follow(args)?;
        Ok(control)
    }

    /// Listens where `args` want it from now on. Who is connected has to come again; who waits for what
    /// comes of a reload is told before.
    ///
    /// # Errors
    /// As of [`begin`](Self::begin). Then nobody is listened to.
    pub fn follow(&mut self, args: &ControlArgs) -> anyhow::Result<()> {
        if !args.enabled {
            if let Some(on) = &mut self.on {
                on.bound = None;
                on.shared.order(Order::Listen(None));
            }
            return Ok(());
        }
        let on = match &mut self.on {
            Some(on) => on,
            none => none.insert(On::begin(&self.root, Arc::clone(&self.reload))?),
        };
        // The old place is left first: it may be the new one.
        on.bound = None;
        on.shared.order(Order::Listen(None));
        let (listener, bound) = on.turn.listen(args)?;
        on.bound = Some(bound);
        on.shared.order(Order::Listen(Some(listener)));
        Ok(())
    }

    /// Leaves where things stand, at the beginning and then about once a second.
    pub fn tell(&self, standing: impl FnOnce() -> Standing) {
        if let Some(on) = &self.on {
            let refused = self.refused.clone();
            on.shared.tell(Standing {
                refused,
                ..standing()
            });
        }
    }

    /// A reload begins. What comes of it is for those who asked before.
    pub fn reloading(&self) -> Asked {
        let shared = self.on.as_ref().map(|on| &on.shared);
        Asked(shared.map_or(0, |shared| shared.tickets.load(Ordering::SeqCst)))
    }

    /// What came of the reload.
    pub fn reloaded(&mut self, asked: Asked, outcome: Outcome) {
        self.refused = outcome.as_ref().err().cloned();
        if let Some(on) = &self.on {
            on.shared.order(Order::Outcome(asked.0, outcome));
        }
    }
}

impl On {
    fn begin(root: &Root, reload: Arc<AtomicBool>) -> anyhow::Result<On> {
        let turn = Turn::take(root)?;
        let shared = Arc::new(Shared::new(reload)?);
        let thread = server::begin(Arc::clone(&shared), PATIENCE)?;
        Ok(On {
            turn,
            bound: None,
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for On {
    fn drop(&mut self) {
        // Nobody finds a socket at which nobody listens.
        self.bound = None;
        self.shared.order(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
