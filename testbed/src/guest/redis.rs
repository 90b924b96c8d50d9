//! A real program as the subject: redis-server under a skewed load.
//!
//! Which of a server's pages are hot is its allocator's secret, so the values carry their key's
//! number in every 64 bytes. Reading the server's memory once then says for each page whose value
//! lies there, and the load says which keys are read: pages of hot keys are the hot pages, pages of
//! the other keys the cold ones, and what is neither (tables, buffers) is not counted.
//!
//! A policy given to the server at its start could not be taken back from outside, and a bound or
//! preferred server is not movable by NUMA balancing. So it starts with the default policy, is
//! loaded, and then all its memory is moved to the slow node with move_pages(2) before the clock
//! starts. The client speaks just enough of RESP, the server's protocol, over a UNIX socket.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::random::SplitMix;
use super::subject::KnownPages;
use super::sys::{PAGE_SIZE, move_pages_to};

const SOCKET: &str = "/tmp/redis.sock";
const VALUE_BYTES: usize = 16 << 10;
const RECORD_BYTES: usize = 64;
const MARK: &[u8] = b"MEMTIDE-KEY:";
/// Requests on the way at a time.
const PIPELINE: usize = 16;

/// A loaded server; killed on drop.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    keys: usize,
}

impl Redis {
    /// Starts a server and stores `mib` MiB of values.
    ///
    /// # Errors
    /// When it does not start or refuses a value.
    pub fn start(mib: usize) -> Result<Self> {
        let child = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--unixsocket",
                SOCKET,
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?;
        let server = Self {
            child,
            keys: (mib << 20) / VALUE_BYTES,
        };
        let mut client = Client::connect()?;
        for first in (0..server.keys).step_by(PIPELINE) {
            let keys = first..(first + PIPELINE).min(server.keys);
            for key in keys.clone() {
                client.send(&[b"SET", key.to_string().as_bytes(), &value(key)])?;
            }
            for _ in keys {
                client.receive()?;
            }
        }
        Ok(server)
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `count` keys drawn with `seed`, in the order in which a load reads them.
    #[must_use]
    pub fn draw_keys(&self, count: usize, seed: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.keys).collect();
        let mut random = SplitMix::new(seed);
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        order.truncate(count);
        order
    }

    /// Moves all of the server's memory to `node` and tells hot pages from cold ones.
    ///
    /// # Errors
    /// When its memory cannot be read or moved.
    pub fn settle_on(&self, node: u32, hot_keys: &[usize]) -> Result<KnownPages> {
        let mut is_hot = vec![false; self.keys];
        for &key in hot_keys {
            is_hot[key] = true;
        }
        let pid = self.pid();
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let mut known = KnownPages {
            pid,
            hot: Vec::new(),
            cold: Vec::new(),
        };
        let mut chunk = vec![0; 256 * PAGE_SIZE];
        for (start, end) in anonymous_ranges(&std::fs::read_to_string(format!("/proc/{pid}/maps"))?)
        {
            for at in (start..end).step_by(chunk.len()) {
                let bytes = &mut chunk[..(end - at).min(256 * PAGE_SIZE)];
                memory
                    .read_exact_at(bytes, at as u64)
                    .context("cannot read the server's memory")?;
                let addresses: Vec<usize> = (at..at + bytes.len()).step_by(PAGE_SIZE).collect();
                move_pages_to(pid, &addresses, node).context("cannot move the server's memory")?;
                for (page, address) in bytes.chunks(PAGE_SIZE).zip(addresses) {
                    match keys_of(page).as_slice() {
                        [] => {}
                        keys if keys.iter().any(|&key| is_hot.get(key) == Some(&true)) => {
                            known.hot.push(address);
                        }
                        _ => known.cold.push(address),
                    }
                }
            }
        }
        ensure!(
            known.hot.len() >= hot_keys.len() * (VALUE_BYTES / PAGE_SIZE),
            "found only {} pages of {} hot values",
            known.hot.len(),
            hot_keys.len()
        );
        Ok(known)
    }

    /// Reads the hot keys round and round, and every twentieth time any key, until dropped.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn load(&self, hot_keys: Vec<usize>, seed: u64) -> Result<Load> {
        let mut client = Client::connect()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, keys) = (Arc::clone(&stop), self.keys as u64);
        let thread = std::thread::spawn(move || -> Result<u64> {
            let mut random = SplitMix::new(seed);
            let mut hot = hot_keys.iter().cycle();
            let mut requests = 0;
            while !seen.load(Ordering::Relaxed) {
                for _ in 0..PIPELINE {
                    let any = random.below(20) == 0;
                    let next = hot.next().copied().context("no hot keys")?;
                    let key = if any {
                        random.below(keys) as usize
                    } else {
                        next
                    };
                    client.send(&[b"GET", key.to_string().as_bytes()])?;
                }
                for _ in 0..PIPELINE {
                    client.receive()?;
                }
                requests += PIPELINE as u64;
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(requests)
        });
        Ok(Load {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(SOCKET);
    }
}

/// A load on the server.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl Load {
    /// Ends it; the number of requests answered.
    ///
    /// # Errors
    /// When a request failed.
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("a load ends once")?;
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))?
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A value that names its key in every record.
fn value(key: usize) -> Vec<u8> {
    let mut record = MARK.to_vec();
    record.extend_from_slice(format!("{key:08};").as_bytes());
    record.resize(RECORD_BYTES, b'.');
    record.repeat(VALUE_BYTES / RECORD_BYTES)
}

/// The keys whose values lie at a page's beginning and at its end.
fn keys_of(page: &[u8]) -> Vec<usize> {
    let reach = 2 * RECORD_BYTES;
    let at_start = &page[..reach.min(page.len())];
    let at_end = &page[page.len().saturating_sub(reach)..];
    let mut keys: Vec<usize> = [at_start, at_end].into_iter().filter_map(key_in).collect();
    keys.dedup();
    keys
}

fn key_in(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len() + 9).find_map(|window| {
        let digits = window.strip_prefix(MARK)?.strip_suffix(b";")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    })
}

/// Writable private ranges without a file in /proc/PID/maps, the stack left out.
fn anonymous_ranges(maps: &str) -> Vec<(usize, usize)> {
    maps.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (range, rights) = (words.next()?, words.next()?);
            let name = words.nth(3).unwrap_or_default();
            if !rights.starts_with("rw-p") || !(name.is_empty() || name == "[heap]") {
                return None;
            }
            let (start, end) = range.split_once('-')?;
            Some((
                usize::from_str_radix(start, 16).ok()?,
                usize::from_str_radix(end, 16).ok()?,
            ))
        })
        .collect()
}

struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn connect() -> Result<Self> {
        let began = Instant::now();
        loop {
            match UnixStream::connect(SOCKET) {
                Ok(stream) => {
                    return Ok(Self {
                        stream: BufReader::new(stream),
                    });
                }
                Err(error) if began.elapsed() > Duration::from_secs(20) => {
                    return Err(error).context("redis-server does not answer");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream
            .get_mut()
            .write_all(&request)
            .context("cannot ask redis-server")
    }

    /// Takes one answer: a status, or a value whose bytes are dropped.
    fn receive(&mut self) -> Result<()> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.split_at_checked(1) {
            Some(("+", _)) => Ok(()),
            Some(("$", length)) => {
                let length: u64 = length
                    .trim()
                    .parse()
                    .context("redis-server lacks a value")?;
                let want = length + 2;
                let got = std::io::copy(&mut (&mut self.stream).take(want), &mut std::io::sink())?;
                ensure!(got == want, "redis-server's answer is short");
                Ok(())
            }
            _ => bail!("redis-server says {line:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_its_keys() {
        let mut bytes = vec![0; 100];
        bytes.extend(value(7));
        bytes.extend(value(8));
        // Bytes 0..100 are no value; value 7 ends at 100 + 16384 = 16484, in page 4 (16384..20480).
        let pages: Vec<_> = bytes.chunks(PAGE_SIZE).map(keys_of).collect();
        assert_eq!(pages[1], [7]);
        assert_eq!(pages[4], [7, 8]);
        assert_eq!(pages[6], [8]);
        assert_eq!(keys_of(&[0; PAGE_SIZE]), Vec::<usize>::new());
    }

    #[test]
    fn only_private_writable_memory_without_a_file() {
        let maps = "1000-2000 rw-p 00000000 00:00 0 \n2000-3000 r--p 00000000 00:00 0 \n\
                    3000-4000 rw-p 00000000 08:01 5 /lib/x\n4000-5000 rw-p 00000000 00:00 0 [heap]\n\
                    5000-6000 rw-p 00000000 00:00 0 [stack]\n";
        assert_eq!(anonymous_ranges(maps), [(0x1000, 0x2000), (0x4000, 0x5000)]);
    }
}
