//! A Prometheus that runs, and what it answers.

use super::Programs;
use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to begin, on a machine that does much else.
const BEGIN: Duration = Duration::from_secs(120);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A server on a port of this machine. It ends with this value, and its data goes.
pub struct Server {
    process: Process,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A series of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Names and values of its labels.
    pub labels: Vec<(String, String)>,
    /// When, in seconds since 1970, and what; in order of time.
    pub points: Vec<(i64, f64)>,
}

impl Line {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Server {
    /// A server over these figures: OpenMetrics with times.
    ///
    /// # Panics
    /// Prometheus does not take them, or does not begin.
    pub fn over(programs: &Programs, figures: &str) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| {
            let path = folder.path().join(name);
            path.into_os_string().into_string().expect("a plain path")
        };
        let (text, data, config) = (place("figures"), place("data"), place("prometheus.yml"));
        std::fs::write(&text, figures).expect("a file");
        std::fs::write(&config, "scrape_configs: []\n").expect("a file");
        let words = ["tsdb", "create-blocks-from", "openmetrics", &text, &data];
        programs.promtool(&words, "");
        let begin = |address: SocketAddr| {
            let mut command = Command::new(&programs.prometheus);
            command
                .arg(format!("--config.file={config}"))
                .arg(format!("--storage.tsdb.path={data}"))
                // The figures may be older than what is kept by default.
                .arg("--storage.tsdb.retention.time=100y")
                .arg(format!("--web.listen-address={address}"))
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(place("log")).expect("a file"));
            let mut process = Process(command.spawn().expect("prometheus"));
            is_ready(&mut process.0, address).then_some((process, address))
        };
        // Somebody else may take the port first. Then it ends, and another one is tried.
        let begun = (0..5).find_map(|_| begin(free_address()));
        let Some((process, address)) = begun else {
            let log = std::fs::read_to_string(place("log")).unwrap_or_default();
            panic!("prometheus does not begin: {log}");
        };
        Server {
            process,
            address,
            _folder: folder,
        }
    }

    /// What a query comes to every `step_s` seconds, from `from_s` to `to_s`.
    ///
    /// # Panics
    /// Prometheus refuses it.
    pub fn range(&self, query: &str, (from_s, to_s, step_s): (i64, i64, i64)) -> Vec<Line> {
        let query = encoded(query);
        let path =
            format!("/api/v1/query_range?query={query}&start={from_s}&end={to_s}&step={step_s}");
        let result = self.data(&path)["result"].take();
        let Value::Array(all) = result else {
            panic!("{path}: {result}");
        };
        all.iter().map(line).collect()
    }

    /// The values of a label of the series that `series` selects.
    pub fn label_values(&self, label: &str, series: &str) -> Vec<String> {
        let series = encoded(series);
        // Without times all of the data is meant, whatever the clock of this machine says.
        let path = format!("/api/v1/label/{label}/values?match[]={series}");
        serde_json::from_value(self.data(&path)).expect("words")
    }

    fn data(&self, path: &str) -> Value {
        let pid = self.process.0.id();
        let (status, body) = get(self.address, path, ANSWER)
            .unwrap_or_else(|error| panic!("prometheus, process {pid}: {error}"));
        let mut answer: Value = serde_json::from_str(&body).expect("JSON");
        assert!(status == 200 && answer["status"] == "success", "{body}");
        assert!(answer["warnings"].is_null(), "{body}");
        answer["data"].take()
    }
}

fn line(series: &Value) -> Line {
    let labels = series["metric"].as_object().expect("labels");
    let point = |pair: &Value| {
        let when = pair[0].as_f64().expect("a time");
        let value = pair[1].as_str().expect("a value in quotes");
        (when as i64, value.parse().expect("a number"))
    };
    Line {
        labels: labels
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().expect("words").to_owned()))
            .collect(),
        points: series["values"]
            .as_array()
            .expect("points")
            .iter()
            .map(point)
            .collect(),
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}

/// Waits until it answers, or has ended.
fn is_ready(child: &mut Child, address: SocketAddr) -> bool {
    let began = Instant::now();
    while began.elapsed() < BEGIN {
        if child.try_wait().expect("a child of ours").is_some() {
            return false;
        }
        if get(address, "/-/ready", ANSWER).is_ok_and(|(status, _)| status == 200) {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Status and body. HTTP 1.0, so that the answer comes in one piece and the connection ends with it.
fn get(address: SocketAddr, path: &str, patience: Duration) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let parts = || {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    parts().ok_or_else(|| std::io::Error::other(format!("no HTTP: {answer}")))
}

/// As part of a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[test]
fn queries_pass_as_they_are() {
    assert_eq!(encoded("a{b=~\".*\"}"), "a%7Bb%3D%7E%22.%2A%22%7D");
}
