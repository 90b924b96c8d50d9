//! What the service tells of the pagers of running programs, by a real service and a real program.
//!
//! The service tiers and moves nothing: its work is a table of weights, of which it only says what it
//! would be. It answers at no control socket, because the machine may have a service.

mod held;

use held::{Held, holder, made, paged};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = "[select]
tier = false
[tier]
dry_run = true
[weights]
table = '0=9'
dry_run = true
[metrics]
socket = 'ROOT/metrics.sock'
[control]
enabled = false
";

/// A running service, which ends with this.
struct Service(Child);

impl Service {
    fn start(root: &Path) -> Service {
        let file = root.join("memtide.toml");
        let text = CONFIGURATION.replace("ROOT", root.to_str().unwrap());
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
        command.args(["serve", "--config"]).arg(file);
        command.env_remove("MEMTIDE_ROOT");
        let output = std::fs::File::create(root.join("output")).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Service(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the service answers, nothing as long as it has not begun.
fn metrics(root: &Path) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = UnixStream::connect(root.join("metrics.sock")) {
        let asked = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
    }
    answer
}

/// The value of a sample, 0 if it is not there.
fn value(metrics: &str, sample: &str) -> f64 {
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// The metrics once they are as wanted; none if the service does not run here.
fn wait_for(service: &mut Service, root: &Path, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let began = Instant::now();
    loop {
        let told = metrics(root);
        if wanted(&told) {
            return Some(told);
        }
        let output = || std::fs::read_to_string(root.join("output")).unwrap();
        if service.0.try_wait().unwrap().is_some() {
            let output = output();
            let lacks = ["not permitted: ", "no table of interleave weights"];
            assert!(lacks.iter().any(|why| output.contains(why)), "{output}");
            println!("skipped: no service runs here: {output}");
            return None;
        }
        assert!(began.elapsed().as_secs() < 120, "{told}{}", output());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_running_programs_pager_is_in_the_services_metrics() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let mut service = Service::start(root);
    // What it finds at its first look counts for nothing.
    let looking = "memtide_pager_looking_cpu_seconds_total{loop=\"pagers\"}";
    let first = wait_for(&mut service, root, |told| value(told, looking) > 0.0);
    if first.is_none() {
        return;
    }
    let (folder, path) = made();
    let program = holder(folder.path());
    let stats = folder.path().join("stats.json");
    let (held, told) = Held::start(&mut paged(&program, "alone", &path, &stats), 1);
    let of =
        |name: &str| format!("memtide_pager_file_{name}{{loop=\"pagers\",file=\"weights.bin\"}}");
    let evicted = of("evicted_bytes_total");
    let told_of = wait_for(&mut service, root, |told| value(told, &evicted) > 0.0).unwrap();
    assert_eq!(value(&told_of, &of("mapped_bytes")), f64::from(16 << 20));
    let resident = value(&told_of, &of("resident_bytes"));
    assert!(
        (1.0..=f64::from(16 << 20)).contains(&resident),
        "{resident}"
    );
    assert!(value(&told_of, "memtide_pager_flushes_total{loop=\"pagers\"}") > 0.0);
    let sum = |name: &str| {
        value(
            &told_of,
            &format!("memtide_pager_{name}{{loop=\"pagers\"}}"),
        )
    };
    // Other tests may have pagers, too.
    assert!(sum("processes") >= 1.0 && sum("budget_bytes") >= f64::from(4 << 20));
    let folders = folder.path().to_str().unwrap();
    let pid = told[0].1.to_string();
    assert!(!told_of.contains(folders), "no folder: {told_of}");
    assert!(!told_of.contains("pid=") && !told_of.contains(&format!("\"{pid}\"")));
    // It ends: its file maps nothing any more, and what was counted stays.
    held.end();
    let mapped = of("mapped_bytes");
    let told_of = wait_for(&mut service, root, |told| value(told, &mapped) == 0.0).unwrap();
    assert!(value(&told_of, &evicted) > 0.0, "{told_of}");
}
