//! The commands that ask the running service, against a service that this test plays at the place where
//! they look for it. That the real one answers so is tested with it (`shared/control/tests.rs`, and
//! `serve/reload` in the guests).

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;

const STATUS: &str = include_str!("data/status.json");

/// A service that answers one call with these messages, and says what it was asked.
fn service(root: &Path, messages: Vec<String>) -> JoinHandle<String> {
    let folder = root.join("run/memtide");
    std::fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("io.memtide")).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let call = call(&mut stream);
        for message in messages {
            stream.write_all(message.as_bytes()).unwrap();
            stream.write_all(b"\0").unwrap();
        }
        call
    })
}

fn call(stream: &mut UnixStream) -> String {
    let mut call = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != 0 {
        call.push(byte[0]);
    }
    String::from_utf8(call).unwrap()
}

fn status(standing: &str) -> String {
    format!("{{\"parameters\":{{\"status\":{standing}}}}}")
}

fn memtide(root: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.args(words).env("MEMTIDE_ROOT", root);
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of a failure.
fn complaint(output: Output) -> String {
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(output.stdout, b"", "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let line = line.strip_prefix("memtide: ").expect("the command's name");
    line.trim_end().to_owned()
}

#[test]
fn no_service_is_one_line() {
    let root = tempfile::tempdir().unwrap();
    for words in [&["status"][..], &["status", "--json"], &["reload"]] {
        let said = complaint(memtide(root.path(), words));
        assert!(said.starts_with("no memtide serve answers"), "{said}");
    }
    // Nor one that was killed.
    drop(service(root.path(), Vec::new()));
    let folder = root.path().join("run/memtide");
    std::fs::remove_file(folder.join("io.memtide")).unwrap();
    drop(UnixListener::bind(folder.join("io.memtide")).unwrap());
    let said = complaint(memtide(root.path(), &["status"]));
    assert!(said.starts_with("no memtide serve answers"), "{said}");
}

#[test]
fn a_status_is_a_text_or_the_document_that_came() {
    for words in [&["status"][..], &["status", "--json"]] {
        let root = tempfile::tempdir().unwrap();
        let asked = service(root.path(), vec![status(STATUS)]);
        let text = printed(&memtide(root.path(), words));
        assert_eq!(asked.join().unwrap(), r#"{"method":"io.memtide.Status"}"#);
        match words.len() {
            1 => assert!(
                text.contains("\nmanaged   3 processes with 3.0 GiB on"),
                "{text}"
            ),
            _ => assert_eq!(
                serde_json::from_str::<serde_json::Value>(&text).unwrap(),
                serde_json::from_str::<serde_json::Value>(STATUS).unwrap()
            ),
        }
    }
}

#[test]
fn a_reload_says_what_changed_or_why_nothing_did() {
    let asked = |message: &str, words: &[&str]| {
        let root = tempfile::tempdir().unwrap();
        let asked = service(root.path(), vec![message.to_owned()]);
        let output = memtide(root.path(), words);
        assert_eq!(asked.join().unwrap(), r#"{"method":"io.memtide.Reload"}"#);
        output
    };
    let changed = r#"{"parameters":{"changes":["tier.window was \"5s\", is \"6s\""]}}"#;
    let text = printed(&asked(changed, &["reload"]));
    assert_eq!(text, "tier.window was \"5s\", is \"6s\"\n");
    let json = printed(&asked(changed, &["reload", "--json"]));
    assert!(json.contains("\"changes\": ["), "{json}");
    let same = r#"{"parameters":{"changes":[]}}"#;
    assert_eq!(printed(&asked(same, &["reload"])), "nothing has changed\n");
    let refused =
        r#"{"error":"io.memtide.ConfigurationRefused","parameters":{"reason":"a.toml:1:1: x"}}"#;
    assert_eq!(
        complaint(asked(refused, &["reload"])),
        "reload refused, the old configuration is in force: a.toml:1:1: x"
    );
    let denied = r#"{"error":"org.varlink.service.PermissionDenied","parameters":{}}"#;
    assert_eq!(
        complaint(asked(denied, &["reload"])),
        "not permitted; run as root"
    );
}

#[test]
fn a_class_is_paused_and_a_page_explained() {
    let asked = |message: &str, words: &[&str]| {
        let root = tempfile::tempdir().unwrap();
        let asked = service(root.path(), vec![message.to_owned()]);
        let output = memtide(root.path(), words);
        (output, asked.join().unwrap())
    };
    let (output, call) = asked(r#"{"parameters":{"changed":true}}"#, &["pause", "db"]);
    assert_eq!(
        printed(&output),
        "class db: paused: its pages stay where they are\n"
    );
    assert_eq!(
        call,
        r#"{"method":"io.memtide.Pause","parameters":{"class":"db"}}"#
    );
    let words = ["resume", "db", "--json"];
    let (output, call) = asked(r#"{"parameters":{"changed":false}}"#, &words);
    assert!(printed(&output).contains("\"paused\": false"));
    assert!(call.starts_with(r#"{"method":"io.memtide.Resume""#));
    let unknown =
        r#"{"error":"io.memtide.NotKnown","parameters":{"reason":"process 7 is not managed"}}"#;
    let (output, call) = asked(unknown, &["explain", "7", "0x1000"]);
    assert_eq!(complaint(output), "process 7 is not managed");
    let called: serde_json::Value = serde_json::from_str(&call).unwrap();
    assert_eq!(called["parameters"]["address"], 4096);
    let (output, _) = asked(r#"{"parameters":{"page":{}}}"#, &["explain", "7", "1"]);
    assert_eq!(complaint(output).lines().count(), 1);
}

/// Who plays the service may be anybody's mistake: an error, and nothing on the terminal.
#[test]
fn an_answer_that_makes_no_sense_is_one_line() {
    for message in [
        "",
        "[]",
        "{}",
        "{\"parameters\":{\"status\":7}}",
        "{\"error\":\"\\u001b[2J\\n\"}",
        "\u{1b}[2J",
    ] {
        let root = tempfile::tempdir().unwrap();
        let _asked = service(root.path(), vec![message.to_owned()]);
        let said = complaint(memtide(root.path(), &["status"]));
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    let root = tempfile::tempdir().unwrap();
    let _asked = service(root.path(), Vec::new());
    let said = complaint(memtide(root.path(), &["status"]));
    assert!(said.contains("before it answered"), "{said}");
}
