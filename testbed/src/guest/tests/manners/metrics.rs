//! What those who watch machines are told is what happened.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::{PATIENCE, SMALL, until_home};
use crate::guest::late::within;
use crate::guest::memtide::{Line, Memtide};
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;
use crate::guest::sys::{PAGE_SIZE, loopback_up};
use crate::guest::tests::Context;

const FILE: &str = "/memtide.prom";
const SOCKET: &str = "/metrics.sock";
const PROMOTED: &str = "memtide_promoted_bytes_total{loop=\"tier\"}";
/// From one question to the next, until the figures are as old as the pages' being home.
const AGAIN: Duration = Duration::from_millis(200);

/// Over HTTP at both places while it runs, and in the file at the end, as the summary says it.
pub(super) fn metrics(context: &mut Context) -> Result<()> {
    loopback_up().context("the loopback interface")?;
    let dram = context.dram.clone();
    let victim = Victim::start(SMALL, 1)?;
    let known = victim.known_pages();
    let words = ["--metrics", "127.0.0.1:0", "--metrics-socket", SOCKET];
    let words = [&words[..], &["--metrics-file", FILE]].concat();
    let mut memtide = Memtide::start(&words, &victim.pids())?;
    let address = address(&mut memtide)?;
    until_home(&mut memtide, &known, &dram, PATIENCE)?;
    let hot: usize = known.iter().map(|known| known.hot.len()).sum();
    let home = (hot * PAGE_SIZE) as u64 * 99 / 100;
    let stretch = Stretch::begin();
    let (scraped, then) = loop {
        let scraped = scrape(address)?;
        let then = value(&scraped, PROMOTED)?;
        if then >= home {
            break (scraped, then);
        }
        within(&stretch, PATIENCE, || {
            format!("{then} bytes promoted by HTTP, when {home} were home")
        })?;
        std::thread::sleep(AGAIN);
    };
    let at_socket = get(UnixStream::connect(SOCKET).context(SOCKET)?)?;
    let promoted = value(&at_socket, PROMOTED)?;
    ensure!(
        promoted >= then,
        "{SOCKET} says {promoted} bytes promoted, the address {then} before"
    );
    let lines = memtide.end(Signal::TERM)?.clean()?;
    ensure!(!Path::new(SOCKET).exists(), "{SOCKET} is left behind");
    let summary = lines.iter().rev().find_map(|line| match line {
        Line::Summary(status) => Some(status.pgpromote_success * PAGE_SIZE as u64),
        _ => None,
    });
    let summary = summary.context("no summary")?;
    let written = std::fs::read_to_string(FILE).context(FILE)?;
    let at_end = value(&written, PROMOTED)?;
    context.note(format!("{} bytes answered, {then} promoted", scraped.len()))?;
    ensure!(
        at_end == summary,
        "{FILE} says {at_end} bytes promoted, the summary {summary}"
    );
    ensure!(
        then <= summary,
        "{then} bytes promoted by HTTP, and {summary} at the end"
    );
    ensure!(
        value(&scraped, "memtide_processes{loop=\"tier\"}")? == 1,
        "one process is managed: {scraped}"
    );
    std::fs::remove_file(Path::new(FILE)).context(FILE)
}

/// Where it says that it answers.
fn address(memtide: &mut Memtide) -> Result<SocketAddr> {
    let found = Cell::new(None);
    memtide.wait_for("where its metrics are", PATIENCE, |line| {
        let Line::Notice { text } = line else {
            return false;
        };
        let address = text.strip_prefix("metrics are at http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
        found.set(address.and_then(|address| address.parse().ok()));
        found.get().is_some()
    })?;
    found.get().context("no address")
}

fn scrape(address: SocketAddr) -> Result<String> {
    get(TcpStream::connect(address).with_context(|| address.to_string())?)
}

/// The body of what `GET /metrics` brings.
fn get(mut stream: impl Read + Write) -> Result<String> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    Ok(body.to_owned())
}

/// The value of a sample.
fn value(text: &str, sample: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    let value = line.with_context(|| format!("no {sample} in {text}"))?;
    value
        .trim()
        .parse()
        .with_context(|| format!("{sample}{value}"))
}
