//! `GET /metrics`, and nothing else, at an address of this machine or at a UNIX socket.
//!
//! Who asks may be anybody on this machine, and what answers cost is the run's own processor time.
//! So a request has a limit of length and of time, there are a few connections at once at most, each
//! with one answer, and they are taken one after the other with a pause. A page in a browser that
//! gave its own name to this address is refused by the name.

use super::exposition::Exposition;
use crate::shared::unix_socket::{self, Bound};
use anyhow::bail;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest request, in bytes.
const LONGEST: usize = 8 << 10;
/// For a request to come, and for each write of its answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at once; more are closed as they come.
const MOST: usize = 4;
/// From one connection to the next: twenty a second.
const PAUSE: Duration = Duration::from_millis(50);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What answers, until it is dropped: then its place is free again.
pub struct Answering {
    ended: Arc<AtomicBool>,
    /// What the thread waits at.
    door: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // This wakes the one that waits for connections.
        let woken = rustix::net::shutdown(&self.door, rustix::net::Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

/// What answers at an address.
pub struct AtAddress {
    address: SocketAddr,
    _answering: Answering,
}

impl AtAddress {
    /// Where, with the port that the kernel chose if it was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers at `address`.
///
/// # Errors
/// The address is taken or not this machine's, or there can be no thread.
pub fn answer(
    address: SocketAddr,
    exposition: Arc<Exposition>,
    patience: Duration,
) -> io::Result<AtAddress> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let door = listener.try_clone()?.into();
    let accept = move || listener.accept().map(|(stream, _)| stream);
    let answering = begin(door, accept, exposition, patience)?;
    Ok(AtAddress {
        address,
        _answering: answering,
    })
}

/// What answers at a UNIX socket. Its name goes first when this is dropped.
pub struct AtSocket {
    _name: Bound,
    _answering: Answering,
}

/// Answers at a UNIX socket of this path. Everybody may ask who may look into its folder. A socket at which
/// nobody listens any more is replaced.
///
/// # Errors
/// Somebody listens there, or something else is there; there can be no socket, or no thread.
pub fn answer_at(
    path: &Path,
    exposition: Arc<Exposition>,
    patience: Duration,
) -> anyhow::Result<AtSocket> {
    if is_asked(path) {
        bail!("another program answers there; end it first, or give another path");
    }
    let (listener, beside) = unix_socket::bind(path, "remove it, or give another path")?;
    beside.open_to_all()?;
    listener.set_nonblocking(false)?;
    let name = beside.put(path.to_owned())?;
    let door = listener.try_clone()?.into();
    let accept = move || listener.accept().map(|(stream, _)| stream);
    let answering = begin(door, accept, exposition, patience)?;
    Ok(AtSocket {
        _name: name,
        _answering: answering,
    })
}

/// Whether somebody may listen at the socket of this path, of whatever kind it is.
fn is_asked(path: &Path) -> bool {
    let try_once = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    !matches!(try_once(), Err(Errno::NOENT | Errno::CONNREFUSED))
}

/// Answers each connection that `accept` has from `door`.
fn begin<C: Client>(
    door: OwnedFd,
    accept: impl Fn() -> io::Result<C> + Send + 'static,
    exposition: Arc<Exposition>,
    patience: Duration,
) -> io::Result<Answering> {
    let ended = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ended);
    let work = move || {
        let held = Arc::new(());
        loop {
            thread::sleep(PAUSE);
            let accepted = accept();
            if asked.load(Ordering::Relaxed) {
                return;
            }
            // As when there are no descriptors left.
            let Ok(mut stream) = accepted else {
                continue;
            };
            if Arc::strong_count(&held) > MOST {
                continue;
            }
            let (one, exposition) = (Arc::clone(&held), Arc::clone(&exposition));
            let client = move || {
                // One that went away needs no answer.
                let _ = serve(&mut stream, &exposition, patience);
                // Who sees the end has given the place up.
                drop(one);
                drop(stream);
            };
            // Where there can be no thread there is no answer.
            let _ = named().spawn(client);
        }
    };
    let thread = Some(named().spawn(work)?);
    Ok(Answering {
        ended,
        door,
        thread,
    })
}

/// Who asks.
trait Client: Read + Write + Send + 'static {
    /// Whether its `Host` says where it believes to be.
    const NAMES_HOST: bool;

    /// How long a read waits.
    fn read_within(&self, time: Duration) -> io::Result<()>;

    /// How long a write waits.
    fn write_within(&self, time: Duration) -> io::Result<()>;
}

impl Client for TcpStream {
    const NAMES_HOST: bool = true;

    fn read_within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_within(&self, time: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

/// No page in a browser comes to a UNIX socket, and programs that do put anything in place of a host.
impl Client for UnixStream {
    const NAMES_HOST: bool = false;

    fn read_within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_within(&self, time: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

fn named() -> thread::Builder {
    thread::Builder::new().name("metrics".to_owned())
}

fn serve<C: Client>(stream: &mut C, exposition: &Exposition, patience: Duration) -> io::Result<()> {
    stream.write_within(patience)?;
    let head = head(stream, patience)?;
    let response = respond(&head, C::NAMES_HOST, exposition);
    stream.write_all(response.as_bytes())
}

/// A request up to its empty line.
fn head(stream: &mut impl Client, patience: Duration) -> io::Result<String> {
    let until = Instant::now() + patience;
    let mut bytes: Vec<u8> = Vec::new();
    let (mut part, mut searched) = ([0; 1024], 0);
    while !bytes[searched..].windows(4).any(|end| end == b"\r\n\r\n") {
        searched = bytes.len().saturating_sub(3);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.read_within(left)?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&part[..read]),
        }
        if bytes.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn respond(head: &str, names_host: bool, exposition: &Exposition) -> String {
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else {
        return response("400 Bad Request", "", "not a request\n");
    };
    if !version.starts_with("HTTP/1.") {
        return response("400 Bad Request", "", "not HTTP/1\n");
    }
    if method != "GET" {
        return response("405 Method Not Allowed", "Allow: GET\r\n", "only GET\n");
    }
    let path = target.split('?').next().unwrap_or_default();
    if path != "/metrics" {
        return response("404 Not Found", "", "only /metrics\n");
    }
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    let of = |wanted: &'static str| {
        let named = headers.iter();
        named.filter(move |(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    if names_host && !of("host").all(|(_, host)| is_here(host.trim())) {
        return response("403 Forbidden", "", "ask by address, or as localhost\n");
    }
    let wants_open = of("accept").any(|(_, value)| value.contains("application/openmetrics-text"));
    match wants_open {
        true => typed("200 OK", OPEN_METRICS, "", &exposition.open_metrics()),
        false => typed("200 OK", PLAIN, "", &exposition.plain()),
    }
}

/// Whether a `Host` is an address or `localhost`, with a port or without.
fn is_here(host: &str) -> bool {
    let port = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, rest)) if port(rest) => name,
        _ => host,
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || bare.unwrap_or(name).parse::<IpAddr>().is_ok()
}

fn response(status: &str, more: &str, body: &str) -> String {
    typed(status, "text/plain; charset=utf-8", more, body)
}

fn typed(status: &str, kind: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{more}\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::exposition::tests::tiering;
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    fn first_line(request: &str) -> String {
        let response = respond(request, true, &tiering());
        response.split("\r\n").next().unwrap().to_owned()
    }

    #[test]
    fn metrics_are_got_and_nothing_else() {
        for (request, status) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9779\r\n\r\n",
                "200 OK",
            ),
            (
                "GET /metrics HTTP/1.1\r\nHost: [::1]:9779\r\n\r\n",
                "200 OK",
            ),
            ("GET /metrics HTTP/1.1\r\nhost:LOCALHOST\r\n\r\n", "200 OK"),
            (
                "GET /metrics HTTP/1.1\r\nHost: evil.example:9779\r\n\r\n",
                "403 Forbidden",
            ),
            ("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n", "403 Forbidden"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
        ] {
            assert_eq!(
                first_line(request),
                format!("HTTP/1.1 {status}"),
                "{request:?}"
            );
        }
    }

    #[test]
    fn the_format_is_the_one_that_is_accepted() {
        let get = |accept: &str| {
            respond(
                &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n"),
                true,
                &tiering(),
            )
        };
        let open = get("ACCEPT: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
        assert!(open.contains("application/openmetrics-text; version=1.0.0"));
        assert!(open.ends_with("# EOF\n"));
        for accept in [
            "",
            "Accept: */*\r\n",
            "Accept: text/plain;version=0.0.4\r\n",
        ] {
            let plain = get(accept);
            assert!(plain.contains("text/plain; version=0.0.4"), "{accept}");
            assert!(!plain.contains("# EOF"), "{accept}");
        }
    }

    /// Over a socket: the length is that of the body, and the connection ends with it.
    #[test]
    fn a_client_is_answered_and_one_too_many_is_not() {
        let any = "127.0.0.1:0".parse().unwrap();
        let answering = answer(any, Arc::new(tiering()), Duration::from_secs(600)).unwrap();
        let address = answering.address();
        let ask = |request: &[u8]| {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut answer = String::new();
            let _ = stream.write_all(request);
            let read = stream.read_to_string(&mut answer);
            read.map(|_| answer)
        };
        let answer = ask(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        assert_eq!(body, tiering().plain());
        // A request that never ends has no answer, and the next one has.
        let long = vec![b'x'; LONGEST + 1024];
        assert!(ask(&long).unwrap_or_default().is_empty());
        // Some that say nothing hold their places; another one is turned away at once.
        let silent: Vec<TcpStream> = (0..MOST)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let turned_away = |answer: io::Result<String>| answer.unwrap_or_default().is_empty();
        assert!(turned_away(ask(b"GET /metrics HTTP/1.1\r\n\r\n")));
        drop(silent);
        // Dropped, it leaves the address to the next one.
        drop(answering);
        let next = super::answer(address, Arc::new(tiering()), Duration::ZERO);
        assert_eq!(next.unwrap().address(), address);
    }

    /// With any host; and the place is one listener's, while it listens.
    #[test]
    fn a_socket_is_answered_at_and_goes_with_who_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.sock");
        let begin = || answer_at(&path, Arc::new(tiering()), Duration::from_secs(600));
        let ask = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            let request = b"GET /metrics HTTP/1.1\r\nHost: anything\r\n\r\n";
            stream.write_all(request).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let first = begin().unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        assert!(ask().ends_with(&tiering().plain()));
        let said = begin().err().unwrap().to_string();
        assert!(said.starts_with("another program answers there"), "{said}");
        assert!(ask().starts_with("HTTP/1.1 200 OK"));
        drop(first);
        assert!(!path.exists());
        // One that was left by who was killed.
        drop(UnixListener::bind(&path).unwrap());
        let second = begin().unwrap();
        assert!(ask().starts_with("HTTP/1.1 200 OK"));
        drop(second);
        // One of another kind, as system services have them.
        let datagrams = UnixDatagram::bind(&path).unwrap();
        let said = begin().err().unwrap().to_string();
        assert!(said.starts_with("another program answers there"), "{said}");
        drop(datagrams);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        let said = begin().err().unwrap().to_string();
        assert!(said.contains("no socket of memtide's"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    proptest! {
        /// Whatever comes has one answer that is whole.
        #[test]
        fn any_request_has_an_answer(head in "(GET |POST |)[ -~]{0,40}( HTTP/1.1|)(\r\n[ -~]{0,40}){0,4}") {
            let response = respond(&head, true, &tiering());
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            let length = format!("Content-Length: {}", body.len());
            prop_assert!(head.contains(&length));
        }
    }
}
