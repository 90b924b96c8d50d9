//! Machines that are right, and what is said of those that are not.

use super::*;
use crate::text::Source;

const SMALL: &str = r#"name = "small"
about = "Two sockets and a memory expander."

[cpu]
l1_tlb_4k = 64
l1_tlb_2m = 32
l2_tlb = 2048
l2_tlb_ways = 8
l2_tlb_hit = "2 ns"
walk = "10 ns"
walk_huge = "8 ns"
llc_cpus = 2
llc = "1 MiB"
llc_hit = "15 ns"
cache_to_cache = "100 ns"
mlp_random = 2.0
mlp_sequential = 8.0

[costs]
fault = "600 ns"

[[node]]
id = 0
memory = "256 MiB"
cpus = 4
distances = [10, 20, 30]
seen_from = { 1 = "180 ns" }
read = "100 ns"
write = "100 ns"
read_bandwidth = "100 GB/s"
write_bandwidth = "80 GB/s"

[[node]]
id = 1
memory = "256 MiB"
cpus = 4
distances = [20, 10, 40]
read = "100 ns"
write = "100 ns"
read_bandwidth = "100 GB/s"
write_bandwidth = "80 GB/s"

[[node]]
id = 2
memory = "1 GiB"
distances = [30, 40, 10]
read = "250 ns"
write = "250 ns"
read_bandwidth = "25 GB/s"
write_bandwidth = "20 GB/s"
"#;

fn read(text: &str) -> Result<MachineSpec, String> {
    let source = Source {
        file: "m.toml",
        text,
    };
    let mut other = |path: &str| match path {
        "curve.json" => Ok(r#"{"nodes": []}"#.to_owned()),
        "two-keys.json" => Ok(r#"{"nodes": [], "nodes": []}"#.to_owned()),
        _ => Err(format!("{path}: no such file")),
    };
    MachineSpec::read(source, &mut other).map_err(|error| error.to_string())
}

/// Two nodes of 256 MiB with 4 CPUs each, and 1 GiB of expansion on node 2.
pub(crate) fn small_machine() -> MachineSpec {
    read(SMALL).unwrap()
}

fn wrong(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    read(&SMALL.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn a_machine_is_what_its_file_says() {
    let machine = small_machine();
    assert_eq!(machine.nodes[2].capacity_bytes, 1 << 30);
    assert_eq!(machine.costs.fault_ns, 600.0);
    assert_eq!(machine.costs.hint_fault_ns, Costs::default().hint_fault_ns);
    // Given: 180 / 100. By distance: 20 / 10. The expander from node 1: 40 / 30.
    assert_eq!(machine.nodes[0].seen_from[1], 1.8);
    assert_eq!(machine.nodes[1].seen_from[0], 2.0);
    assert_eq!(machine.nodes[2].seen_from[..2], [1.0, 40.0 / 30.0]);
    let node = |id| {
        machine
            .topology
            .node(memtide_core::units::NodeId(id))
            .unwrap()
    };
    assert_eq!(node(1).cpus, [4, 5, 6, 7]);
    assert!(!node(2).top_tier);
}

#[test]
fn errors_name_line_and_key() {
    assert_eq!(
        wrong("\"256 MiB\"", "256"),
        "m.toml:24: memory: \"256\" has no unit; write a number and one of B, KiB, MiB, GiB, TiB, \
         kB, MB, GB, TB, as in \"128 GiB\""
    );
    assert!(
        wrong("llc_hit", "llc_hits")
            .starts_with("m.toml:14: unknown key or word `llc_hits`; did you mean `llc_hit`?")
    );
    assert_eq!(
        wrong("[20, 10, 40]", "[20, 10]"),
        "m.toml:37: distances: 2 numbers for 3 nodes; give one for each node by ascending id"
    );
    assert_eq!(
        wrong("id = 1", "id = 16"),
        "m.toml:34: id: node 16 is not below 16; number nodes from 0"
    );
    assert!(wrong("id = 1", "id = 0").contains("node 0 is given twice"));
    assert!(
        wrong("1 = \"180 ns\"", "7 = \"180 ns\"").starts_with("m.toml:27: seen_from: there is")
    );
    assert_eq!(
        wrong("{ 1 = ", "{ 01 = \"9 ns\", 1 = "),
        "m.toml:27: seen_from: two values for node 1; give one"
    );
    assert!(
        wrong("{ 1 = ", "{ \"+1\" = ").starts_with("m.toml:27: seen_from: there is no node +1")
    );
    assert!(wrong("mlp_random = 2.0", "mlp_random = 0.5").starts_with("m.toml:16: mlp_random: "));
    assert!(
        wrong("read = \"100 ns\"", "read = \"0 ns\"").starts_with("m.toml:28: read: give more")
    );
}

#[test]
fn sizes_have_limits() {
    let starts = |from: &str, to: &str, expected: &str| {
        let found = wrong(from, to);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    };
    starts(
        "cpus = 4",
        "cpus = 4294967295",
        "m.toml:25: cpus: more than 512 CPUs in all",
    );
    starts("llc = \"", "llc = \"1000 TiB\" # \"", "m.toml:13: llc: ");
    starts(
        "l2_tlb = ",
        "l2_tlb = 4294967295 # ",
        "m.toml:7: l2_tlb: 4294967295 entries; give",
    );
    starts(
        "1 = \"180 ns\"",
        "1 = \"0 ns\"",
        "m.toml:27: seen_from: 0 ns from node 1; give more",
    );
    starts(
        "read = \"100 ns\"",
        "read = \"2 s\"",
        "m.toml:28: read: give 1 s at most",
    );
}

#[test]
fn no_node_and_too_many_are_no_machine() {
    let (head, _) = SMALL.split_once("[[node]]").unwrap();
    assert_eq!(
        read(head).unwrap_err(),
        "m.toml:1: a machine needs nodes; add a [[node]]"
    );
    let node = SMALL.rsplit_once("[[node]]").unwrap().1;
    let many = format!("{head}{}", format!("[[node]]{node}").repeat(17));
    assert!(read(&many).unwrap_err().contains("more than 16 nodes"));
    let without = SMALL.replace("cpus = 4", "cpus = 0");
    assert!(read(&without).unwrap_err().contains("no node has CPUs"));
}

#[test]
fn curves_come_from_files_beside_the_machine() {
    let with = |file: &str| {
        let line = format!("measured = \"{file}\"\nread = \"250 ns\"");
        wrong("read = \"250 ns\"", &line)
    };
    assert_eq!(with("x.json"), "m.toml:47: measured: x.json: no such file");
    assert_eq!(
        with("curve.json"),
        "m.toml:47: measured: curve.json: node 2 was not measured"
    );
    let twice = with("two-keys.json");
    let says =
        "m.toml:47: measured: two-keys.json: no JSON that can be used: two values for \"nodes\"";
    assert!(twice.starts_with(says), "{twice}");
}

const LINK: &str = r#"
[[link]]
sides = [[0, 2], [1]]
to_first = "30 GB/s"
to_second = "25 GB/s"
"#;

#[test]
fn links_and_duplex_memory_are_as_the_file_says() {
    let plain = read(SMALL).unwrap();
    assert!(plain.links.is_empty() && !plain.nodes.iter().any(|node| node.memory.duplex));
    let text = format!("{}duplex = true\n{LINK}", SMALL);
    let spec = read(&text).unwrap();
    let duplex: Vec<bool> = spec.nodes.iter().map(|node| node.memory.duplex).collect();
    assert_eq!(duplex, [false, false, true]);
    let link = &spec.links[0];
    assert_eq!(link.sides, [vec![0, 2], vec![1]]);
    assert_eq!((link.bytes_per_s, link.duplex), ([30e9, 25e9], true));
    let pipe = LINK.replace("to_first", "bandwidth");
    let pipe = pipe.replace("to_second = \"25 GB/s\"\n", "");
    let spec = read(&format!("{SMALL}{pipe}")).unwrap();
    assert_eq!(
        (spec.links[0].bytes_per_s, spec.links[0].duplex),
        ([30e9, 30e9], false)
    );
}

#[test]
fn links_that_cannot_be_are_refused() {
    for (from, to, what) in [
        ("[1]", "[7]", "there is no node 7"),
        ("[1]", "[]", "give each side a node"),
        ("[1]", "[2]", "node 2 is on both"),
        ("to_first", "bandwidth", "give `bandwidth` for one pipe"),
        ("30 GB/s", "0 GB/s", "give a bandwidth above 0"),
    ] {
        let text = format!("{SMALL}{}", LINK.replacen(from, to, 1));
        let error = read(&text).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    let error = read(&format!("{SMALL}{LINK}{LINK}")).unwrap_err();
    assert!(error.contains("carries nodes 0 and 1 already"), "{error}");
}
