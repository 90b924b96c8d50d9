//! Scenarios that come with memtide, and what is said of those that are wrong.

use super::*;

pub(super) const GOOD: &str = r#"title = "t"
shows = "s"
machine = "machines/small-cxl.toml"
scale = 64

[workload.random]
threads = 4
node = 0
memory = "1 GiB"
on = 1
stores_percent = 50
accesses = 1_000_000
ops_per_access = 10
think = "0 ns"

[[configuration]]
name = "off"

[[configuration]]
name = "two to one"
interleave = { nodes = [0, 1], weights = [2, 1] }

[[published]]
configuration = "off"
seconds = 10.0
"#;

pub(super) fn read(text: &str) -> Result<Scenario, String> {
    let machine = include_str!("../../scenarios/machines/small-cxl.toml");
    Scenario::read(text, "scenarios/x.toml", &mut |path| match path {
        "machines/small-cxl.toml" => Ok(machine.to_owned()),
        _ => Err(format!("{path}: no such file")),
    })
    .map_err(|error| error.to_string())
}

fn wrong(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    read(&GOOD.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn every_shipped_scenario_can_be_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files += 1;
            let name = path.file_stem().unwrap().to_string_lossy();
            assert!(shipped(&name).is_some(), "{name} is not in SHIPPED");
        }
    }
    assert_eq!(files, SHIPPED.len());
    for shipped in SHIPPED {
        let scenario = shipped.read().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name, shipped.name);
        for case in &scenario.cases {
            for configuration in scenario.configurations_of(case) {
                let workload = scenario.workload(case, &configuration, scenario.scale);
                let plan = workload.plan();
                assert!(!plan.threads.is_empty() && !plan.regions.is_empty());
            }
        }
    }
}

#[test]
fn what_is_wrong_comes_with_file_line_and_key() {
    assert!(read(GOOD).is_ok());
    let cases = [
        (
            "threads = 4",
            "threds = 4",
            "scenarios/x.toml:7: unknown key or word `threds`; did you mean `threads`?",
        ),
        (
            "[workload.random]",
            "[workload.randon]",
            "scenarios/x.toml:6: unknown key or word `randon`; did you mean `random`?",
        ),
        (
            "\"1 GiB\"",
            "1",
            "scenarios/x.toml:9: memory: \"1\" has no unit",
        ),
        (
            "\"1 GiB\"",
            "\"100 GiB\"",
            "scenarios/x.toml:9: memory: 100 GiB are more than the machine's 40 GiB",
        ),
        (
            "on = 1",
            "on = 7",
            "scenarios/x.toml:10: on: node 7 has no memory; choose one of 0-1",
        ),
        (
            "node = 0",
            "node = 1",
            "scenarios/x.toml:8: node: node 1 has no CPUs; choose one of 0",
        ),
        (
            "scale = 64",
            "scale = 3",
            "scenarios/x.toml:4: scale: 3 is no power of two",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "balance = { tusks = \"set\" }",
            "scenarios/x.toml:21: unknown key or word `tusks`; did you mean `tasks`?",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "balance = { cpu_limit = \"200\" }",
            "scenarios/x.toml:21: cpu_limit: not a percentage from 0.1 to 100",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "balance = { source = \"faults\" }",
            "scenarios/x.toml:21: balance: there are no hint faults between sockets where the kernel",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "tier = { source = \"damon,hint-faults\" }",
            "scenarios/x.toml:21: tier: there are no hint faults where the kernel does not scan",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "tier = { source = [\"ibs\", \"pebs\"] }",
            "scenarios/x.toml:21: tier: ibs and pebs are of different makers' processors",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "numa_balancing = 1\nsamples = { act = \"each\" }\ntier = { source = \"damon,ibs\" }",
            "scenarios/x.toml:23: tier: the hardware samples for one only",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "tier = { tiers = \"0/7\" }",
            "scenarios/x.toml:21: tier: tiers 0/7: node 7 is in a tier, but this machine has no memory there",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "tier = { tiers = \"0\" }",
            "scenarios/x.toml:21: tiers: one tier only",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "tier = {}\nbalance = {}",
            "scenarios/x.toml:22: balance: one loop runs beside the workload; give tier or balance",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "numa_balancing = 1\nsamples = { act = \"each\" }\nbalance = {}",
            "scenarios/x.toml:23: balance: the hardware samples for one only",
        ),
        (
            "interleave = { nodes = [0, 1], weights = [2, 1] }",
            "balance = {}",
            "scenarios/x.toml:21: balance: fewer than two nodes of this machine have both CPUs and memory",
        ),
        (
            "[2, 1]",
            "[256, 1]",
            "scenarios/x.toml:21: interleave: weight 256: weights are 1 to 255",
        ),
        (
            "[2, 1]",
            "[2]",
            "scenarios/x.toml:21: interleave: 1 weights for 2 nodes",
        ),
        (
            "nodes = [0, 1]",
            "nodes = [0, 3]",
            "scenarios/x.toml:21: interleave: node 3 has no memory; choose from 0-1",
        ),
        (
            "small-cxl.toml",
            "smal-cxl.toml",
            "scenarios/x.toml:3: machine: machines/smal-cxl.toml: no such file",
        ),
        (
            "configuration = \"off\"",
            "configuration = \"of\"",
            "scenarios/x.toml:24: configuration: there is no configuration \"of\"; did you mean `off`?",
        ),
        (
            "seconds = 10.0",
            "gb_per_s = 10.0",
            "scenarios/x.toml:23: published: give one figure",
        ),
        (
            "name = \"two to one\"",
            "name = \"off\"",
            "scenarios/x.toml:19: name: \"off\" is taken",
        ),
        (
            "name = \"off\"",
            "name = \"off\"\nnuma_balancing = 4",
            "scenarios/x.toml:18: numa_balancing: give 0 (off)",
        ),
        (
            "name = \"off\"",
            "name = \"off\"\npghot = { sources = [\"hint-faults\"] }",
            "scenarios/x.toml:18: unknown key or word `hint-faults`; did you mean `hint-fault`?",
        ),
        (
            "name = \"off\"",
            "name = \"off\"\npghot = { sources = [], threshold = 9 }",
            "scenarios/x.toml:18: pghot: threshold 9",
        ),
        (
            "\"1 GiB\"",
            "\"0 GiB\"",
            "scenarios/x.toml:9: memory: 0 bytes are nothing to access",
        ),
        (
            "threads = 4",
            "threads = 4_294_967_295",
            "scenarios/x.toml:7: threads: 4294967295 threads are more than 65536",
        ),
        (
            "1_000_000",
            "1_000_000_000_000_000_000",
            "scenarios/x.toml:12: accesses: 4000000000000000000 accesses of all threads are more than",
        ),
        (
            "think = \"0 ns\"",
            "think = \"1000000 min\"",
            "scenarios/x.toml:14: think: 60000000 s between two accesses; give 1 s at most",
        ),
        (
            "name = \"off\"",
            "name = \"off\"\nscan_period_min = \"90 s\"",
            "scenarios/x.toml:18: scan_period_min: 90000 ms are more than scan_period_max, 60000 ms",
        ),
        (
            "name = \"off\"",
            "name = \"off\"\npghot = { sources = [\"hint-fault\"] }",
            "scenarios/x.toml:18: pghot: hint-fault: without balancing there are none",
        ),
        (
            "nodes = [0, 1]",
            "nodes = [0, 0]",
            "scenarios/x.toml:21: interleave: node 0 is named twice",
        ),
        (
            "seconds = 10.0",
            "seconds = nan",
            "scenarios/x.toml:25: seconds: NaN is no measurement",
        ),
        (
            "seconds = 10.0",
            "seconds = -1.0",
            "scenarios/x.toml:25: seconds: -1 is no measurement",
        ),
    ];
    for (from, to, expected) in cases {
        let found = wrong(from, to);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
}

#[test]
fn a_case_names_configurations_that_there_are() {
    let cases = GOOD.replacen(
        "[workload.random]",
        "[[case]]\nname = \"a\"\nonly = [\"of\"]\n[case.workload.random]",
        1,
    );
    let cases = cases.replace(
        "configuration = \"off\"",
        "configuration = \"off\"\ncase = \"a\"",
    );
    assert_eq!(
        read(&cases).unwrap_err(),
        "scenarios/x.toml:8: only: there is no configuration \"of\"; did you mean `off`?"
    );
    assert!(read(&cases.replace("[\"of\"]", "[\"off\"]")).is_ok());
}

/// What is the same for two cases would be told of one of them only.
#[test]
fn cases_have_names_of_their_own_and_one_recording() {
    let (head, rest) = GOOD.split_once("[workload.random]").unwrap();
    let (random, rows) = rest.split_once("\n\n").unwrap();
    let rows = rows.split("[[published]]").next().unwrap();
    let random =
        |name: &str| format!("[[case]]\nname = \"{name}\"\n[case.workload.random]{random}\n");
    let trace = |name: &str, file: &str| {
        format!(
            "[[case]]\nname = \"{name}\"\n[case.workload.trace]\nfile = \"{file}\"\nnode = 0\non = 1\n\
             ops_per_access = 10\nthink = \"1 ns\"\n"
        )
    };
    let of = |cases: [String; 2]| read(&format!("{head}{}{rows}", cases.concat()));
    assert!(of([random("a"), random("b")]).is_ok());
    let error = of([random("a"), random("a")]).unwrap_err();
    assert!(
        error.ends_with(": name: \"a\" is taken; give each case its own"),
        "{error}"
    );
    assert!(of([trace("a", "x.csv"), trace("b", "x.csv")]).is_ok());
    let error = of([trace("a", "x.csv"), trace("b", "y.csv")]).unwrap_err();
    assert!(
        error.contains(": file: another case replays \"x.csv\""),
        "{error}"
    );
}

#[test]
fn an_interleave_takes_the_place_of_the_workloads_policy() {
    let scenario = shipped("stream-interleave").unwrap().read().unwrap();
    let modes = |name: &str| {
        let configuration = scenario
            .configurations
            .iter()
            .find(|c| c.name == name)
            .unwrap();
        let workload = scenario.workload(&scenario.cases[0], configuration, 64);
        let regions = workload.plan().regions.iter();
        regions
            .map(|region| region.policy.mode.to_string())
            .collect::<Vec<_>>()
    };
    let weighted = "weighted interleave";
    assert_eq!(modes("DRAM only"), ["bind"; 4]);
    assert_eq!(modes("1:1"), ["interleave"; 4]);
    assert_eq!(modes("weighted 9:1"), [weighted; 4]);
    assert_eq!(
        modes("targeted 9:1"),
        [weighted, weighted, weighted, "local"]
    );
}

#[test]
fn only_the_flag_makes_a_binding_balance() {
    let scenario = shipped("numab-bind-pmbench").unwrap().read().unwrap();
    let flags = |n: usize| {
        let workload = scenario.workload(&scenario.cases[0], &scenario.configurations[n], 64);
        let regions = workload.plan().regions.iter();
        regions
            .map(|region| region.policy.to_accessor)
            .collect::<Vec<_>>()
    };
    assert_eq!(flags(0), [false; 65]);
    // The eater is bound to one node: it has nowhere to go.
    assert_eq!(flags(1)[..2], [false, true]);
}

#[test]
fn names_and_scales_that_cannot_be_are_refused() {
    let scenario = read(GOOD).unwrap();
    let refused = |options: Options| run(&scenario, &options, &Quiet).unwrap_err().to_string();
    let only = |name: &str| Options {
        only: vec![name.to_owned()],
        ..Options::default()
    };
    assert_eq!(
        refused(only("orcale")),
        "there is no configuration \"orcale\" in x; did you mean `oracle`?; there are off, two to one, static, oracle"
    );
    let scale = |scale| Options {
        scale: Some(scale),
        ..Options::default()
    };
    assert!(refused(scale(3)).contains("power of two"));
}
