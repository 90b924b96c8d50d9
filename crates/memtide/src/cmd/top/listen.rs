//! The thread that listens to the service, and comes again where the service has gone: it may have been
//! started again, or a reload moved its socket.

use crate::shared::control::client::Client;
use crate::shared::control::standing::Standing;
use crate::shared::outside::causes;
use memtide_linux::fs::Root;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// From one try to the next.
const AGAIN: Duration = Duration::from_secs(1);

/// What it has to tell.
pub enum Heard {
    /// The latest status.
    Status(Box<Standing>),
    /// Nothing comes at present, and why.
    Trouble(String),
}

/// Listens until nobody takes what it tells. `client` has been asked for the stream.
pub fn begin(client: Client, root: Root) -> std::io::Result<Receiver<Heard>> {
    let (tell, heard) = mpsc::channel();
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
    thread::Builder::new()
        .name("listen".to_owned())
        .spawn(work)?;
    Ok(heard)
}
