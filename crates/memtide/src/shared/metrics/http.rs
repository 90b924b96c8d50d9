//! `GET /metrics`, and nothing else.
//!
//! Who asks may be anybody on this machine, and what answers cost is the run's own processor time.
//! So a request has a limit of length and of time, there are a few connections at once at most, each
//! with one answer, and they are taken one after the other with a pause. A page in a browser that
//! gave its own name to this address is refused by the name.

use super::exposition::Exposition;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
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

/// How long the end waits for its own connection.
const LEAVE: Duration = Duration::from_secs(1);

/// What answers, until it is dropped: then the address is free again.
pub struct Answering {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Answering {
    /// Where, with the port that the kernel chose if it was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // A connection wakes the one that waits for connections.
        let woken = TcpStream::connect_timeout(&self.address, LEAVE).is_ok();
        if let Some(listener) = self.listener.take()
            && woken
        {
            let _ = listener.join();
        }
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
) -> io::Result<Answering> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let ended = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ended);
    let work = move || {
        let held = Arc::new(());
        loop {
            thread::sleep(PAUSE);
            let accepted = listener.accept();
            if asked.load(Ordering::Relaxed) {
                return;
            }
            // As when there are no descriptors left.
            let Ok((mut stream, _)) = accepted else {
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
    let listener = Some(named().spawn(work)?);
    Ok(Answering {
        address,
        ended,
        listener,
    })
}

fn named() -> thread::Builder {
    thread::Builder::new().name("metrics".to_owned())
}

fn serve(stream: &mut TcpStream, exposition: &Exposition, patience: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    let head = head(stream, patience)?;
    let response = respond(&head, exposition);
    stream.write_all(response.as_bytes())
}

/// A request up to its empty line.
fn head(stream: &mut TcpStream, patience: Duration) -> io::Result<String> {
    let until = Instant::now() + patience;
    let mut bytes: Vec<u8> = Vec::new();
    let (mut part, mut searched) = ([0; 1024], 0);
    while !bytes[searched..].windows(4).any(|end| end == b"\r\n\r\n") {
        searched = bytes.len().saturating_sub(3);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
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

fn respond(head: &str, exposition: &Exposition) -> String {
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
    if !of("host").all(|(_, host)| is_here(host.trim())) {
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

    fn first_line(request: &str) -> String {
        let response = respond(request, &tiering());
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

    proptest! {
        /// Whatever comes has one answer that is whole.
        #[test]
        fn any_request_has_an_answer(head in "(GET |POST |)[ -~]{0,40}( HTTP/1.1|)(\r\n[ -~]{0,40}){0,4}") {
            let response = respond(&head, &tiering());
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            let length = format!("Content-Length: {}", body.len());
            prop_assert!(head.contains(&length));
        }
    }
}
