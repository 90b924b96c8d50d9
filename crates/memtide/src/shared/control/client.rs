//! Who asks the service.
//!
//! A client believes nothing of what comes: a reply has a limit of length, and what it holds is a document
//! of the structs of [`standing`](super::standing) or an error. A call has to be answered within
//! [`PATIENCE`]. A reload may take longer, for it may put everything back and begin again; so may what
//! waits for the loop while one goes on.

use super::interface::{
    CLOSING, DENIED, EXPLAIN, NO_CLASS, NOT_READY, PAUSE, PROCESSES, REFUSED, RELOAD, RESUME,
    STATUS, UNKNOWN,
};
use super::socket::places;
use super::standing::{Page, Process, Standing};
use super::varlink::{Call, Incoming, Parameters, Reply};
use crate::shared::outside;
use anyhow::{Context as _, anyhow, bail};
use memtide_linux::fs::Root;
use memtide_loop::report::ProcessOrder;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// For an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a reload, and for what may wait for one.
const LONG: Duration = Duration::from_secs(120);
/// The longest reply, in bytes: thousands of classes.
const LARGEST: usize = 8 << 20;

/// A connection to the service.
pub struct Client {
    stream: UnixStream,
    incoming: Incoming,
}

impl Client {
    /// To the service of this machine.
    ///
    /// # Errors
    /// There is none, or it is not for us.
    pub fn connect(root: &Root) -> anyhow::Result<Client> {
        let mut refused: Option<(PathBuf, std::io::Error)> = None;
        for path in places(root) {
            match UnixStream::connect(&path) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(Client {
                        stream,
                        incoming: Incoming::default(),
                    });
                }
                Err(error) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused => {}
                    _ => refused = refused.or(Some((path, error))),
                },
            }
        }
        match refused {
            None => bail!(
                "no memtide serve answers on this machine; run systemctl start memtide, or see [control] in its configuration"
            ),
            Some((path, error)) if error.kind() == ErrorKind::PermissionDenied => bail!(
                "{}: not permitted; run as root, or as a member of the group in [control]",
                outside::path(&path)
            ),
            Some((path, error)) => Err(error).context(outside::path(&path)),
        }
    }

    /// Where things stand.
    ///
    /// # Errors
    /// The service's, or of the connection.
    pub fn status(&mut self) -> anyhow::Result<Standing> {
        self.call(&Call::of(STATUS, false), PATIENCE)?;
        heard(self.reply()?)
    }

    /// Asks for each status from now on; [`next`](Self::next) has them.
    ///
    /// # Errors
    /// Of the connection.
    pub fn watch(&mut self) -> anyhow::Result<()> {
        self.call(&Call::of(STATUS, true), PATIENCE)
    }

    /// The next status of those that were asked for.
    ///
    /// # Errors
    /// The service's, or of the connection.
    pub fn next(&mut self) -> anyhow::Result<Standing> {
        heard(self.reply()?)
    }

    /// Has the configuration read again; a line for each change.
    ///
    /// # Errors
    /// It was refused, and why.
    pub fn reload(&mut self) -> anyhow::Result<Vec<String>> {
        self.call(&Call::of(RELOAD, false), LONG)?;
        let mut parameters = self.reply()?;
        let changes = parameters.remove("changes").unwrap_or_default();
        serde_json::from_value(changes).context("an answer that makes no sense")
    }

    /// Has the pages of a class stay, or move again. Whether that is new.
    ///
    /// # Errors
    /// There is no such class.
    pub fn pause(&mut self, class: &str, paused: bool) -> anyhow::Result<bool> {
        let method = if paused { PAUSE } else { RESUME };
        let changed = self.ask(method, [("class", class.into())], "changed", LONG)?;
        serde_json::from_value(changed).context("an answer that makes no sense")
    }

    /// The first `most` processes in `order`.
    ///
    /// # Errors
    /// The service's, or of the connection.
    pub fn processes(&mut self, order: ProcessOrder, most: usize) -> anyhow::Result<Vec<Process>> {
        let parameters = [
            ("order", serde_json::to_value(order)?),
            ("most", most.into()),
        ];
        let processes = self.ask(PROCESSES, parameters, "processes", PATIENCE)?;
        serde_json::from_value(processes).context("an answer that makes no sense")
    }

    /// What is known of the page at an address of a process.
    ///
    /// # Errors
    /// Nothing is known, and why.
    pub fn explain(&mut self, pid: u32, address: u64) -> anyhow::Result<Page> {
        let parameters = [("pid", pid.into()), ("address", address.into())];
        let page = self.ask(EXPLAIN, parameters, "page", LONG)?;
        serde_json::from_value(page).context("an answer that makes no sense")
    }

    fn ask<const N: usize>(
        &mut self,
        method: &str,
        parameters: [(&str, Value); N],
        wanted: &str,
        patience: Duration,
    ) -> anyhow::Result<Value> {
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value));
        let call = Call {
            parameters: Parameters::from_iter(parameters),
            ..Call::of(method, false)
        };
        self.call(&call, patience)?;
        let mut parameters = self.reply()?;
        Ok(parameters.remove(wanted).unwrap_or_default())
    }

    fn call(&mut self, call: &Call, patience: Duration) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        let sent = self.stream.write_all(&call.message());
        sent.context("cannot ask the service")
    }

    fn reply(&mut self) -> anyhow::Result<Parameters> {
        let message = loop {
            let next = self.incoming.next(LARGEST);
            let too_long = |_| anyhow!("the service's answer is longer than {LARGEST} bytes");
            if let Some(message) = next.map_err(too_long)? {
                break message;
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the service ended the connection before it answered"),
                Ok(read) => self.incoming.push(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    bail!("the service does not answer; see systemctl status memtide")
                }
                Err(error) => return Err(error).context("cannot hear the service"),
            }
        };
        let reply: Reply =
            serde_json::from_slice(&message).context("an answer that makes no sense")?;
        let parameters = reply.parameters.unwrap_or_default();
        let Some(error) = reply.error else {
            return Ok(parameters);
        };
        let reason = parameters.get("reason").and_then(|reason| reason.as_str());
        let class = parameters.get("class").and_then(|class| class.as_str());
        match (error.as_str(), reason) {
            (REFUSED, Some(reason)) => {
                bail!("reload refused, the old configuration is in force: {reason}")
            }
            (CLOSING, Some(reason)) => bail!("the service closes the connection: {reason}"),
            (UNKNOWN, Some(reason)) => bail!("{}", outside::outside(reason)),
            (NO_CLASS, _) => bail!(
                "class {}: not in the service's configuration; memtide status shows its classes",
                outside::outside(class.unwrap_or_default())
            ),
            (DENIED, _) => bail!("not permitted; run as root"),
            (NOT_READY, _) => bail!("the service has not begun yet; try again"),
            _ => bail!("the service answers {}", outside::outside(&error)),
        }
    }
}

fn heard(parameters: Parameters) -> anyhow::Result<Standing> {
    let standing = Standing::heard(parameters);
    standing.context("the service's status makes no sense; it may be of another version")
}
