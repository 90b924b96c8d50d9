//! What `memtide policy` says, and that its documents say the same.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn fixture(machine: &str) -> PathBuf {
    here("../memtide-linux/tests/fixtures").join(machine)
}

/// Exit status, standard output and standard error of `memtide policy WORDS`.
fn policy(words: &str, root: &Path, input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("policy")
        .args(words.split(' '))
        .env("MEMTIDE_ROOT", root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was just built");
    // A command that does not read its input has ended before it is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).expect("the command prints text");
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// On a machine that the words describe: nothing is read.
fn described(words: &str) -> (i32, String, String) {
    policy(words, Path::new("/nonexistent"), "")
}

const MACHINE: &str = "--nodes 0-2 --cpu-nodes 0-1";

#[test]
fn a_policy_is_accepted_with_its_nodes_in_force() {
    for (words, expected) in [
        (
            "weighted-interleave 0,2",
            "set_mempolicy accepts weighted-interleave: pages go to the nodes in force in turn, by \
             address, each as often as its weight says\n\
             nodes asked for 0,2, allowed 0-2, in force 0,2\n",
        ),
        (
            "bind+static 0,5 --mbind --flags move,strict",
            "mbind accepts bind+static: pages go to the nearest node in force, and to no other\n\
             nodes asked for 0,5, allowed 0-2, in force 0\n",
        ),
        (
            "bind+relative 0-3 --cpuset 1-2",
            "set_mempolicy accepts bind+relative: pages go to the nearest node in force, and to no \
             other\nnodes asked for 0-3, allowed 1-2, in force 1-2\n",
        ),
        (
            "preferred",
            "set_mempolicy accepts local: pages go to the node of the CPU that touches them, then \
             by distance\n",
        ),
    ] {
        let answer = described(&format!("validate {words} {MACHINE}"));
        assert_eq!(answer, (0, expected.to_owned(), String::new()), "{words}");
    }
}

#[test]
fn a_policy_is_refused_with_the_errno_and_a_reason() {
    for (words, expected) in [
        (
            "bind",
            "EINVAL (-22): bind needs at least one node; name some",
        ),
        (
            "bind 3",
            "EINVAL (-22): none of the nodes 3 is left: allowed are 0-2, the cpuset's nodes that \
             have memory; name one of those",
        ),
        (
            "default 1",
            "EINVAL (-22): default takes no nodes; leave 1 out",
        ),
        (
            "interleave+balancing 0",
            "EINVAL (-22): balancing goes with bind and preferred-many, not with interleave",
        ),
        (
            "bind+static+relative 0",
            "EINVAL (-22): static and relative exclude each other; take one",
        ),
        (
            "local+static",
            "EINVAL (-22): local+static without nodes takes neither static nor relative",
        ),
        (
            "-1",
            "EINVAL (-22): mode word 0xffffffff has no known mode; modes are 0 to 6",
        ),
        (
            "0x2002 --mask 0x5 --maxnode 0",
            "EINVAL (-22): maxnode 0 with a mask wraps around; give one more than the mask has bits",
        ),
        (
            "bind --mask 0x1 --maxnode 40000",
            "EINVAL (-22): maxnode 40000 is more than a page of bits; the most is 32769",
        ),
        (
            "bind --mask unreadable --maxnode 64",
            "EFAULT (-14): the mask cannot be read",
        ),
    ] {
        let answer = described(&format!("validate {words} {MACHINE}"));
        let expected = format!("set_mempolicy fails with {expected}\n");
        assert_eq!(answer, (1, expected, String::new()), "{words}");
    }
}

/// Page 0 of the mapping is number 0x200000000, which is 2 modulo 6.
#[test]
fn every_page_has_a_node_and_a_reason() {
    for (words, expected) in [
        (
            "weighted-interleave 0,2 --weights 0=5,2=1 --pages 0-8",
            "weighted-interleave on 0,2, mapped at 0x200000000000, touched from node 0\n\
             pages 0-2: node 0: page 3 of a round of 6, of which node 0 has 5\n\
             page 3: node 2: page 6 of a round of 6, of which node 2 has 1\n\
             pages 4-8: node 0: page 1 of a round of 6, of which node 0 has 5\n\
             in all: 8 on node 0, 1 on node 2\n",
        ),
        (
            "bind 0,2 --run-on 1 --home 2",
            "bind on 0,2, mapped at 0x200000000000, touched from node 1\n\
             pages 0-15: node 2: the nearest of 0,2 to its home, node 2\n\
             in all: 16 on node 2\n",
        ),
        (
            "local --cpuset 2 --pages 7",
            "local, mapped at 0x200000000000, touched from node 0\n\
             page 7: node 2: the node of the CPU, 0; no memory or not allowed there, 2 is the \
             nearest that is\n\
             in all: 1 on node 2\n",
        ),
        (
            "interleave 1 --pages 3-4 --address 0x1000",
            "interleave on 1, mapped at 0x1000, touched from node 0\n\
             pages 3-4: node 1: page 1 of a round of 1, of which node 1 has 1\n\
             in all: 2 on node 1\n",
        ),
    ] {
        let answer = described(&format!("place {words} {MACHINE}"));
        assert_eq!(answer, (0, expected.to_owned(), String::new()), "{words}");
    }
}

#[test]
fn the_running_machine_is_asked_about_unless_words_say_otherwise() {
    let (status, text, error) = policy("validate bind 0-7", &fixture("holes"), "");
    assert_eq!((status, error.as_str()), (0, ""));
    assert!(text.contains("allowed 0,2,5, in force 0,2,5"), "{text}");
    let (status, text, error) = policy(
        "place weighted-interleave 0-3 --pages 0-999",
        &fixture("hbm"),
        "",
    );
    assert_eq!((status, error.as_str()), (0, ""));
    assert!(text.starts_with("weighted-interleave on 0-3"), "{text}");
}

#[test]
fn bad_words_are_named() {
    for (words, status, expected) in [
        (
            "validate bound 0",
            2,
            "no policy \"bound\"; there are default, ",
        ),
        (
            "validate bind+fast 0",
            2,
            "no flag \"fast\"; there are static, ",
        ),
        ("validate bind 0,x", 2, "'0,x'"),
        ("validate bind 0 --flags move", 2, "--mbind"),
        (
            "validate bind 0 --mbind --flags lazy",
            2,
            "no flag \"lazy\"",
        ),
        ("validate bind 0 --mask 0x1", 2, "'--mask"),
        (
            "validate bind --mask 5",
            2,
            "\"5\" is not a word such as 0x5",
        ),
        ("validate", 2, "<POLICY>"),
        ("place bind 0 --pages 3-1", 2, "1 is before 3"),
        (
            "place bind 0 --pages 0-99999999",
            2,
            "more than 16777216 pages",
        ),
        (
            "place bind 0 --weights 0=0",
            2,
            "\"0\" in \"0=0\" is no weight from 1 to 255",
        ),
        (
            "place bind 0 --weights 0=256",
            2,
            "\"256\" in \"0=256\" is no weight",
        ),
        (
            "place bind 0 --weights 0=-1",
            2,
            "\"-1\" in \"0=-1\" is no weight",
        ),
        ("place bind 0 --weights 3x", 2, "\"3x\" is not NODE=WEIGHT"),
        ("place bind 0 --weights 0=1,0=2", 2, "node 0 is there twice"),
        (
            "place bind 0 --weights 7=1",
            1,
            "--weights: node 7 has no memory",
        ),
        (
            "place bind 0 --kernel 6.6",
            2,
            "kernel 6.6 has no weighted interleave",
        ),
        (
            "place bind 0 --kernel new",
            2,
            "not a kernel version such as 6.12",
        ),
        (
            "place bind 0 --run-on 2",
            1,
            "cannot run on node 2, which has no CPU; 0-1 have",
        ),
        (
            "place bind 0 --cpuset 3",
            1,
            "cpuset: none of the nodes 3 has memory; 0-2 have",
        ),
        (
            "place bind 0 --address 0x123",
            1,
            "0x123 is not a multiple of the page size",
        ),
        (
            "place bind 3",
            1,
            "the kernel refuses this policy, EINVAL: none of the nodes 3",
        ),
        (
            "place bind 0 --home 9",
            1,
            "--home 9: EINVAL: no such node is online",
        ),
        (
            "place interleave 0 --home 1",
            1,
            "only bind and preferred-many have a home",
        ),
        ("replay", 2, "<FILE>"),
    ] {
        let machine = if words.contains(' ') { MACHINE } else { "" };
        let (got, text, error) = described(format!("{words} {machine}").trim());
        assert_eq!(text, "", "{words}");
        assert_eq!(error.lines().count(), 1, "{words}: {error}");
        assert!(error.starts_with("memtide: "), "{words}: {error}");
        assert!(error.contains(expected), "{words}: {error}");
        assert_eq!(got, status, "{words}: {error}");
    }
}

/// The blocks of docs/policy-replay.md: calls, and answers to them.
#[test]
fn the_documented_replay_is_what_happens() {
    let guide = std::fs::read_to_string(here("../../docs/policy-replay.md")).unwrap();
    let blocks: Vec<&str> = guide
        .split("```jsonl\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect();
    let [calls, answers] = blocks[..] else {
        panic!("{} blocks", blocks.len());
    };
    let answer = policy("replay -", Path::new("/nonexistent"), calls);
    assert_eq!(answer, (0, answers.to_owned(), String::new()));
}

#[test]
fn a_bad_line_ends_a_replay_with_its_number() {
    let machine = r#"{"machine":{"memory_nodes":"0-2","cpu_nodes":"0-1","kernel":"7.2"}}"#;
    let good = r#"{"call":"run_on","node":1}"#;
    for (line, expected) in [
        ("", "not JSON: EOF while parsing a value"),
        ("7", "not a JSON object"),
        (machine, "line: \"call\": missing; give a text"),
        (
            r#"{"call":"touch","region":"a","pages":1}"#,
            "touch: \"region\": no line above maps \"a\"",
        ),
        (
            r#"{"call":"where","address":"0x0","length":18446744073709551615}"#,
            "more than 16777216 pages in one line",
        ),
        (
            r#"{"call":"set_mempolicy","mode":0,"mask":null,"maxnode":0,"flags":1}"#,
            "set_mempolicy: \"flags\": unknown",
        ),
    ] {
        let input = format!("{machine}\n{good}\n{line}\n{good}\n");
        let (status, text, error) = policy("replay -", Path::new("/nonexistent"), &input);
        assert_eq!(text, "{\"ret\":0}\n", "{line}");
        assert_eq!(error, format!("memtide: standard input:3: {expected}\n"));
        assert_eq!(status, 1);
    }
}

#[test]
fn a_machine_that_cannot_be_is_refused() {
    for (machine, expected) in [
        (r#"{"machine":7}"#, "line: \"machine\": 7 is not an object"),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0"}}"#,
            "machine: \"kernel\": missing; give a text",
        ),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.8"}}"#,
            "machine: \"kernel\": \"6.8\": kernel 6.8 has no weighted interleave, which came with \
             6.9, and is not modelled",
        ),
        (
            r#"{"machine":{"memory_nodes":"","cpu_nodes":"0","kernel":"6.12","cpuset":"0"}}"#,
            "machine: no node has memory; name at least one memory node",
        ),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.12","auto":true}}"#,
            "machine: auto: this kernel has none, it came with 6.16",
        ),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.12","weights":{"0":0}}}"#,
            "machine: \"weights\": {\"0\":0} is not weights by node, each once, such as {\"0\":5}",
        ),
        // Keys that are different to JSON and one node to us.
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.12","weights":{"0":1,"00":7,"1":1}}}"#,
            "machine: \"weights\": {\"0\":1,\"00\":7,\"1\":1} is not weights by node, each \
             once, such as {\"0\":5}",
        ),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.12","weights":{"+0":1}}}"#,
            "machine: \"weights\": {\"+0\":1} is not weights by node, each once, such as {\"0\":5}",
        ),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.12","cpuset":"0-+2"}}"#,
            "machine: \"cpuset\": \"0-+2\" is not a node list such as \"0-3\"",
        ),
        (
            r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"6.12","pages":1}}"#,
            "machine: \"pages\": unknown",
        ),
    ] {
        let answer = policy("replay -", Path::new("/nonexistent"), machine);
        let error = format!("memtide: standard input:1: {expected}\n");
        assert_eq!(answer, (1, String::new(), error));
    }
    for (file, input, expected) in [
        (
            "-",
            "",
            "standard input: empty; the first line describes the machine",
        ),
        ("/nonexistent/calls", "", "give a file of calls or -"),
        ("/", "", "/: is a directory; give a file of calls or -"),
    ] {
        let words = format!("replay {file}");
        let (status, text, error) = policy(&words, Path::new("/nonexistent"), input);
        assert_eq!((status, text.as_str()), (2, ""));
        assert!(error.contains(expected), "{error}");
    }
}

/// Every key that the documents hold stands in docs/json.md, and the other
/// way around.
#[test]
fn the_schemas_are_documented() {
    let guide = std::fs::read_to_string(here("../../docs/json.md")).unwrap();
    for (section, words) in [
        ("policy validate\n", "validate bind 0 --json"),
        ("policy place\n", "place interleave 0,2 --json"),
    ] {
        let part = guide.split("\n## ").find(|part| part.starts_with(section));
        let documented: BTreeSet<String> = part
            .unwrap_or_else(|| panic!("docs/json.md lacks {section}"))
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned()))
            .collect();
        let (status, text, error) = described(&format!("{words} {MACHINE}"));
        assert_eq!((status, error.as_str()), (0, ""));
        let mut used = BTreeSet::new();
        collect_keys(&serde_json::from_str(&text).unwrap(), "", &mut used);
        // Its keys are nodes.
        used.retain(|key| !key.starts_with("totals."));
        assert_eq!(
            documented, used,
            "documented on the left, printed on the right"
        );
    }
}

fn collect_keys(value: &serde_json::Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                collect_keys(value, &path, keys);
                keys.insert(path);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                collect_keys(item, &format!("{path}[]"), keys);
            }
        }
        _ => {}
    }
}
