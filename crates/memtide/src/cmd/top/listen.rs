//! The threads that listen: two to the service, and one to the terminal.
//!
//! The first comes again where the service has gone: it may have been started again, or a reload moved its
//! socket. The second asks for processes as long as they are shown.
//! The third may wait for ever, and nobody waits for it.

use crate::shared::control::client::Client;
use crate::shared::control::standing::{Process, Standing};
use crate::shared::outside::causes;
use memtide_linux::fs::Root;
use memtide_loop::report::ProcessOrder;
use ratatui::crossterm::event::{self, Event};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

/// The most processes that are asked for: a terminal has fewer rows.
pub const PROCESSES: usize = 200;
/// From one try to the next.
const AGAIN: Duration = Duration::from_secs(1);

/// What they have to tell.
pub enum Heard {
    /// The latest status.
    Status(Box<Standing>),
    /// The first processes.
    Processes(Vec<Process>),
    /// There are none to show, and why.
    NoProcesses(String),
    /// Nothing comes at present, and why.
    Trouble(String),
    /// A key, or another size.
    Event(Event),
    /// No key is heard any more.
    Deaf(std::io::Error),
}

/// Listens until nobody takes what it tells. `client` has been asked for the stream.
///
/// # Errors
/// There can be no thread.
pub fn to_the_service(client: Client, root: Root, tell: SyncSender<Heard>) -> std::io::Result<()> {
    let mut client = Some(client);
    let work = move || {
        loop {
            let mut listen = || -> anyhow::Result<Standing> {
                if client.is_none() {
                    let mut again = Client::connect(&root)?;
                    again.watch()?;
                    client = Some(again);
                }
                let Some(client) = &mut client else {
                    unreachable!("there is one by now");
                };
                client.next()
            };
            let heard = match listen() {
                Ok(standing) => Heard::Status(Box::new(standing)),
                Err(error) => Heard::Trouble(causes(&error)),
            };
            let trouble = matches!(heard, Heard::Trouble(_));
            if tell.send(heard).is_err() {
                return;
            }
            if trouble {
                client = None;
                thread::sleep(AGAIN);
            }
        }
    };
    let named = thread::Builder::new().name("listen".to_owned());
    named.spawn(work).map(drop)
}

/// Asks for processes about once a second, in the order that `wanted` said last, until nobody takes what it
/// tells.
///
/// # Errors
/// There can be no thread.
pub fn to_the_processes(
    root: Root,
    wanted: Receiver<Option<ProcessOrder>>,
    tell: SyncSender<Heard>,
) -> std::io::Result<()> {
    let mut client = None;
    let mut order = None;
    let work = move || {
        loop {
            match wanted.recv_timeout(AGAIN) {
                Ok(next) => order = next,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // The last of several keys.
            order = wanted.try_iter().last().unwrap_or(order);
            let Some(order) = order else {
                client = None;
                continue;
            };
            let mut ask = || -> anyhow::Result<Vec<Process>> {
                let mut asking = match client.take() {
                    Some(client) => client,
                    None => Client::connect(&root)?,
                };
                let processes = asking.processes(order, PROCESSES)?;
                client = Some(asking);
                Ok(processes)
            };
            let heard = match ask() {
                Ok(processes) => Heard::Processes(processes),
                Err(error) => Heard::NoProcesses(causes(&error)),
            };
            if tell.send(heard).is_err() {
                return;
            }
        }
    };
    let named = thread::Builder::new().name("processes".to_owned());
    named.spawn(work).map(drop)
}

/// Listens to a terminal that hands over every key.
///
/// # Errors
/// There can be no thread.
pub fn to_the_keys(tell: SyncSender<Heard>) -> std::io::Result<()> {
    let work = move || {
        loop {
            let read = event::read();
            let deaf = read.is_err();
            let heard = read.map_or_else(Heard::Deaf, Heard::Event);
            if tell.send(heard).is_err() || deaf {
                return;
            }
        }
    };
    let named = thread::Builder::new().name("keys".to_owned());
    named.spawn(work).map(drop)
}
