//! The thread that listens, reads calls and sends replies.
//!
//! The loop and this thread share three things: the latest status, a list of orders, and a descriptor
//! that wakes this thread. The loop only leaves something behind; no client can make it wait. The thread
//! waits for all of its descriptors at once, and none of its reads and writes waits.
//!
//! # Bounds
//!
//! There are [`MOST`] connections; one more is closed as it comes. Who may only read gets no more than
//! [`MOST`] - [`KEPT`] of them, so that a group cannot lock out who may reload. A connection has one chunk more than
//! one call in memory, and one reply. The next call is read when the reply to the last one has gone. So
//! who does not read gets no further reply, and the statuses that come meanwhile are not kept for him.
//! Who neither sends a call nor reads a reply for [`PATIENCE`] is cut off. After what clients wanted
//! there is a short pause, so that they cannot take a whole processor.
//!
//! # When the socket closes
//!
//! Nothing more is taken from who is connected, and each call that was sent before is answered: with an
//! error, for it had no effect. So nobody has to guess what became of a call.

use super::interface::{self, Answer, Granted, Wish};
use super::standing::{self, Standing};
use super::varlink::{Call, Incoming, LONGEST, Parameters, Reply};
use memtide_linux::sys::peer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Connections at once.
pub const MOST: usize = 32;
/// Of these, for those who may reload.
pub const KEPT: usize = 8;
/// Lists of processes that the loop makes in one of its turns.
pub const LISTS: usize = 4;
/// For a call to come, and for a reply to go.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// What is read at once, in bytes.
const CHUNK: usize = 16 << 10;
/// More of these than a connection holds that nobody has read.
const CHUNKS: usize = 64;
/// After what clients wanted.
const PAUSE: Duration = Duration::from_millis(2);
/// After what the kernel refused, as when there are no descriptors left.
const REST: Duration = Duration::from_millis(100);

/// What came of a reload: a line for each change, or why it was refused.
pub type Outcome = Result<Vec<String>, String>;

/// What the service wants of the thread.
pub enum Order {
    /// Listens here from now on, or nowhere; who is connected has to come again.
    Listen(Option<UnixListener>),
    /// What came of the reloads up to this ticket.
    Outcome(u64, Outcome),
    /// What came of the wish with this ticket.
    Granted(u64, Granted),
    /// The end, and why it comes.
    End(String),
}

/// What both sides have.
pub struct Shared {
    latest: Mutex<Option<(Arc<Standing>, Instant)>>,
    orders: Mutex<Vec<Order>>,
    wake: OwnedFd,
    /// The ticket of the last reload that was asked for.
    pub tickets: AtomicU64,
    /// What clients wait for, with tickets of their own: one each at most.
    wishes: Mutex<Vec<(u64, Wish)>>,
    /// As if SIGHUP had come.
    reload: Arc<AtomicBool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Nothing is known yet; `reload` is raised for who wants one.
    pub fn new(reload: Arc<AtomicBool>) -> io::Result<Shared> {
        Ok(Shared {
            latest: Mutex::new(None),
            orders: Mutex::new(Vec::new()),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            tickets: AtomicU64::new(0),
            wishes: Mutex::new(Vec::new()),
            reload,
        })
    }

    /// Leaves where things stand.
    pub fn tell(&self, standing: Standing) {
        *locked(&self.latest) = Some((Arc::new(standing), Instant::now()));
        self.wake();
    }

    /// What clients wish since the last time. Lists of processes, which everybody may wish,
    /// wait for their turn if they are many, so that nobody keeps the loop from its work.
    pub fn wishes(&self) -> Vec<(u64, Wish)> {
        let mut wishes = locked(&self.wishes);
        let mut lists = 0;
        let (now, later) = std::mem::take(&mut *wishes)
            .into_iter()
            .partition(|(_, wish)| {
                let is_list = matches!(wish, Wish::Processes { .. });
                lists += usize::from(is_list);
                !is_list || lists <= LISTS
            });
        *wishes = later;
        now
    }

    /// How many wishes wait for the loop.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        locked(&self.wishes).len()
    }

    /// Who waited for a list of processes has gone. Other wishes hold all the same: who wants
    /// no reply need not wait for it.
    fn forget(&self, ticket: u64) {
        locked(&self.wishes)
            .retain(|(of, wish)| *of != ticket || !matches!(wish, Wish::Processes { .. }));
    }

    /// Leaves an order.
    pub fn order(&self, order: Order) {
        locked(&self.orders).push(order);
        self.wake();
    }

    fn wake(&self) {
        // A counter that is full wakes, too.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Begins to answer.
///
/// # Errors
/// There can be no thread.
pub fn begin(shared: Arc<Shared>, patience: Duration) -> io::Result<JoinHandle<()>> {
    let named = thread::Builder::new().name("control".to_owned());
    named.spawn(move || {
        let mut server = Server {
            shared,
            patience,
            listener: None,
            connections: Vec::new(),
            told: None,
            wished: 0,
        };
        while server.turn() {}
    })
}

struct Server {
    shared: Arc<Shared>,
    patience: Duration,
    listener: Option<UnixListener>,
    connections: Vec<Connection>,
    /// The latest status that was written down.
    told: Option<Told>,
    /// The ticket of the last wish.
    wished: u64,
}

/// A status as it is sent.
#[derive(Clone)]
struct Told {
    standing: Arc<Standing>,
    parameters: Parameters,
    at: Instant,
}

impl Told {
    /// With its age.
    fn now(&self) -> Parameters {
        let mut parameters = self.parameters.clone();
        standing::set_age(&mut parameters, self.at.elapsed());
        parameters
    }
}

/// What a connection is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// The next call is to come.
    Listening,
    /// Each status is sent.
    Streaming,
    /// For what comes of the reload with this ticket.
    Waiting { ticket: u64, oneway: bool },
    /// For what the loop says to the wish with this ticket.
    Wishing { ticket: u64, oneway: bool },
}

struct Connection {
    stream: UnixStream,
    may_change: bool,
    incoming: Incoming,
    /// What is left to send.
    outgoing: Vec<u8>,
    doing: Doing,
    /// What was sent last of a stream.
    seen: Option<Arc<Standing>>,
    until: Instant,
    /// The other side sends nothing any more; it may still read.
    silent: bool,
    /// Why no further call is taken, if none is.
    closing: Option<Arc<str>>,
}

impl Server {
    /// Waits for something to do, and does it. Whether it goes on.
    fn turn(&mut self) -> bool {
        let (listens, ready) = match self.wait() {
            Ok(ready) => ready,
            Err(_) => {
                thread::sleep(REST);
                (false, vec![PollFlags::empty(); self.connections.len()])
            }
        };
        let mut bytes = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut bytes);
        let orders = std::mem::take(&mut *locked(&self.shared.orders));
        for order in orders {
            match order {
                Order::Listen(listener) => {
                    self.close("the socket is another one now, for [control] has changed");
                    self.listener = listener;
                }
                Order::Outcome(upto, outcome) => self.outcome(upto, &outcome),
                Order::Granted(ticket, granted) => self.granted(ticket, granted),
                Order::End(why) => {
                    self.close(&why);
                    for connection in &mut self.connections {
                        let _ = connection.answer_the_rest(&self.shared, &mut self.wished);
                    }
                    return false;
                }
            }
        }
        let latest = self.latest();
        let now = Instant::now();
        let mut busy = false;
        let Server {
            connections,
            shared,
            patience,
            wished,
            ..
        } = self;
        let mut ready = ready.into_iter();
        connections.retain_mut(|connection| {
            let ready = ready.next().unwrap_or(PollFlags::empty());
            busy |= !ready.is_empty();
            let alive = connection.hear(ready).is_ok()
                && connection
                    .go_on(shared, wished, latest.as_ref(), now + *patience)
                    .is_ok();
            let stays = alive && (connection.is_patient() || now < connection.until);
            if !stays && let Doing::Wishing { ticket, .. } = connection.doing {
                shared.forget(ticket);
            }
            stays
        });
        if listens {
            let _ = self.accept(now);
        }
        if busy || listens {
            thread::sleep(PAUSE);
        }
        true
    }

    fn granted(&mut self, granted_ticket: u64, granted: Granted) {
        let until = Instant::now() + self.patience;
        let mut all = self.connections.iter_mut();
        let found = all.find_map(|connection| match connection.doing {
            Doing::Wishing { ticket, oneway } if ticket == granted_ticket => {
                Some((connection, oneway))
            }
            _ => None,
        });
        // Who has gone does not hear of it.
        if let Some((connection, oneway)) = found {
            connection.doing = Doing::Listening;
            connection.until = until;
            if !oneway {
                connection.reply(&granted.map_or_else(|wrong| wrong, Reply::done));
            }
        }
    }

    /// Whether somebody wants to connect, and what each connection is ready for.
    fn wait(&self) -> io::Result<(bool, Vec<PollFlags>)> {
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let connections = self.connections.iter();
        fds.extend(connections.map(|one| PollFd::new(&one.stream, one.wants())));
        if let Some(listener) = &self.listener {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        let impatient = self.connections.iter().filter(|one| !one.is_patient());
        let until = impatient.map(|one| one.until).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // A nanosecond more than is left, not a moment before.
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()).min(999_999_998) + 1,
        });
        poll(&mut fds, left.as_ref())?;
        let mut ready: Vec<_> = fds[1..].iter().map(PollFd::revents).collect();
        let listens = match self.listener {
            Some(_) => ready.pop().is_some_and(|ready| !ready.is_empty()),
            None => false,
        };
        Ok((listens, ready))
    }

    /// Takes no more from who is connected, or waits to be.
    fn close(&mut self, why: &str) {
        if let Some(listener) = &self.listener {
            // Who comes later is refused by the kernel.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Read);
            let now = Instant::now();
            while self.accept(now) {}
        }
        self.listener = None;
        let why: Arc<str> = why.into();
        for connection in &mut self.connections {
            connection.close(&why);
        }
    }

    /// Lets one in that wants to connect. Whether there was one.
    fn accept(&mut self, now: Instant) -> bool {
        let accepted = self.listener.as_ref().map(UnixListener::accept);
        let stream = match accepted {
            Some(Ok((stream, _))) => stream,
            // What is shut down and empty has this one.
            Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => return false,
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                thread::sleep(REST);
                return false;
            }
            _ => return false,
        };
        let Ok(user) = peer::user(&stream) else {
            return true;
        };
        let may_change = user == 0 || user == rustix::process::geteuid().as_raw();
        let readers = self.connections.iter().filter(|one| !one.may_change);
        if !has_room(self.connections.len(), readers.count(), may_change)
            || stream.set_nonblocking(true).is_err()
        {
            return true;
        }
        self.connections.push(Connection {
            stream,
            may_change,
            incoming: Incoming::default(),
            outgoing: Vec::new(),
            doing: Doing::Listening,
            seen: None,
            until: now + self.patience,
            silent: false,
            closing: None,
        });
        true
    }

    /// The latest status, as it is sent: written down once for all.
    fn latest(&mut self) -> Option<Told> {
        let (standing, at) = locked(&self.shared.latest).clone()?;
        let same = |told: &&Told| Arc::ptr_eq(&told.standing, &standing);
        if self.told.as_ref().filter(same).is_none() {
            let wanted = !self.connections.is_empty();
            self.told = wanted.then(|| Told {
                parameters: standing.parameters(),
                standing,
                at,
            });
        }
        self.told.clone()
    }

    fn outcome(&mut self, upto: u64, outcome: &Outcome) {
        let reply = match outcome {
            Ok(changes) => {
                let changes = serde_json::to_value(changes).expect("plain data");
                Reply::done(Parameters::from_iter([("changes".to_owned(), changes)]))
            }
            Err(reason) => Reply::wrong(interface::REFUSED, "reason", reason),
        };
        for connection in &mut self.connections {
            if let Doing::Waiting { ticket, oneway } = connection.doing
                && ticket <= upto
            {
                connection.doing = Doing::Listening;
                connection.until = Instant::now() + self.patience;
                if !oneway {
                    connection.outgoing = reply.message();
                }
            }
        }
    }
}

/// Whether one more may come, beside so many of whom `readers` may only read.
pub fn has_room(connections: usize, readers: usize, may_change: bool) -> bool {
    connections < MOST && (may_change || readers < MOST - KEPT)
}

fn gone() -> io::Error {
    ErrorKind::UnexpectedEof.into()
}

impl Connection {
    /// What it waits for. That the other side has gone is told anyway.
    fn wants(&self) -> PollFlags {
        match self.doing {
            _ if !self.outgoing.is_empty() => PollFlags::OUT,
            Doing::Listening => PollFlags::IN,
            Doing::Streaming | Doing::Waiting { .. } | Doing::Wishing { .. } => PollFlags::empty(),
        }
    }

    /// Whether nothing has to come or go in time.
    fn is_patient(&self) -> bool {
        self.outgoing.is_empty() && self.doing != Doing::Listening
    }

    /// Takes what came.
    fn hear(&mut self, ready: PollFlags) -> io::Result<()> {
        if ready.contains(PollFlags::IN) {
            let mut chunk = [0; CHUNK];
            match self.stream.read(&mut chunk) {
                // What it said before is answered.
                Ok(0) => self.silent = true,
                Ok(read) => self.incoming.push(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        } else if ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(gone());
        }
        Ok(())
    }

    /// Sends, and answers calls, as far as that goes without waiting.
    fn go_on(
        &mut self,
        shared: &Shared,
        wished: &mut u64,
        latest: Option<&Told>,
        until: Instant,
    ) -> io::Result<()> {
        loop {
            if !self.send()? {
                return Ok(());
            }
            match self.doing {
                Doing::Waiting { .. } | Doing::Wishing { .. } => return Ok(()),
                Doing::Streaming if self.closing.is_some() => self.refuse(),
                Doing::Streaming => match latest {
                    Some(told) if !self.has_seen(&told.standing) => {
                        self.seen = Some(Arc::clone(&told.standing));
                        self.reply(&Reply {
                            continues: true,
                            ..Reply::done(told.now())
                        });
                    }
                    _ => return Ok(()),
                },
                Doing::Listening => {
                    let next = self.incoming.next(LONGEST);
                    match next.map_err(|_| gone())? {
                        Some(message) => {
                            let call = Call::read(&message).ok_or_else(gone)?;
                            self.answer(&call, shared, wished, latest);
                        }
                        None if self.silent => return Err(gone()),
                        None => return Ok(()),
                    }
                }
            }
            self.until = until;
        }
    }

    fn has_seen(&self, standing: &Arc<Standing>) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| Arc::ptr_eq(seen, standing))
    }

    fn answer(&mut self, call: &Call, shared: &Shared, wished: &mut u64, latest: Option<&Told>) {
        if self.closing.is_some() {
            if !call.oneway {
                self.reply(&self.closed());
            }
            return;
        }
        let reply = match (interface::answer(call, self.may_change), latest) {
            (Answer::Reply(reply), _) => reply,
            (Answer::Status { .. } | Answer::Wish(Wish::Processes { .. }), None) => Reply {
                error: Some(interface::NOT_READY.to_owned()),
                parameters: Some(Parameters::new()),
                continues: false,
            },
            (Answer::Status { stream: true }, Some(_)) => {
                self.doing = Doing::Streaming;
                return;
            }
            (Answer::Status { stream: false }, Some(told)) => Reply::done(told.now()),
            (Answer::Wish(wish), _) => {
                *wished += 1;
                let (ticket, oneway) = (*wished, call.oneway);
                locked(&shared.wishes).push((ticket, wish));
                self.doing = Doing::Wishing { ticket, oneway };
                return;
            }
            (Answer::Reload, _) => {
                // The ticket first: a reload that begins after it has read what was there by then.
                let ticket = shared.tickets.fetch_add(1, Ordering::SeqCst) + 1;
                shared.reload.store(true, Ordering::SeqCst);
                let oneway = call.oneway;
                self.doing = Doing::Waiting { ticket, oneway };
                return;
            }
        };
        if !call.oneway {
            self.reply(&reply);
        }
    }

    /// Takes no more: what was sent by now is all.
    fn close(&mut self, why: &Arc<str>) {
        self.closing.get_or_insert_with(|| Arc::clone(why));
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Ends what goes on with an error.
    fn refuse(&mut self) {
        let silent = match self.doing {
            Doing::Waiting { oneway, .. } | Doing::Wishing { oneway, .. } => oneway,
            Doing::Listening | Doing::Streaming => false,
        };
        self.doing = Doing::Listening;
        if !silent {
            self.reply(&self.closed());
        }
    }

    fn closed(&self) -> Reply {
        let why = self.closing.as_deref().unwrap_or_default();
        Reply::wrong(interface::CLOSING, "reason", why)
    }

    /// Answers what was sent before the end, as far as that goes without waiting.
    fn answer_the_rest(&mut self, shared: &Shared, wished: &mut u64) -> io::Result<()> {
        for _ in 0..CHUNKS {
            if !self.send()? {
                break;
            }
            if self.doing != Doing::Listening {
                self.refuse();
            }
            self.go_on(shared, wished, None, self.until)?;
            self.hear(PollFlags::IN)?;
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) {
        self.outgoing = reply.message();
    }

    /// Whether nothing is left to send.
    fn send(&mut self) -> io::Result<bool> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
