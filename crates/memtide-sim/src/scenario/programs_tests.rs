//! Scenarios of several programs: what may be said, what is said of what may not, and that one program is
//! what a workload is.

use super::super::tests::{GOOD, read};
use crate::scenario::{Options, Quiet, Scenario, run};

/// [`GOOD`] with its workload as a program, and what comes behind its name.
fn program(more: &str) -> String {
    let head = format!("[[program]]\nname = \"one\"\n{more}[program.workload.random]");
    GOOD.replacen("[workload.random]", &head, 1)
}

/// The same, with a class in the second configuration.
fn class(class: &str) -> String {
    let interleave = "interleave = { nodes = [0, 1], weights = [2, 1] }";
    let class = format!("tier = {{}}\n{class}");
    program("cgroup = \"/db\"\n").replacen(interleave, &class, 1)
}

/// Each program has files of its own, also those of which processes share one.
#[test]
fn programs_share_no_files() {
    let inference = |name: &str, processes: u32| {
        format!(
            "[[program]]\nname = \"{name}\"\n[program.workload.inference]\nnode = 0\nthreads = 1\n\
             processes = {processes}\nmodel = \"64 MiB\"\nlayers = 2\nmatrices = 2\ntokens = 2\n\
             vectors = \"1 MiB\"\nprogram = \"1 MiB\"\nthink = \"0 ns\"\n"
        )
    };
    let (head, rest) = GOOD.split_once("[workload.random]").unwrap();
    let (_, rows) = rest.split_once("\n\n").unwrap();
    let rows = rows.split("[[published]]").next().unwrap();
    let text = |of: [String; 2]| format!("{head}{}{rows}", of.concat());
    let scenario = read(&text([inference("a", 2), inference("b", 3)])).unwrap();
    let workload = scenario.workload(&scenario.cases[0], &scenario.configurations[0], 64);
    let files = |program: &str| {
        let regions = workload.plan().regions.iter();
        let mine = regions.filter(|region| region.name.starts_with(program));
        let files = mine.filter_map(|region| region.file);
        files.collect::<std::collections::BTreeSet<u16>>()
    };
    let (a, b) = (files("a: "), files("b: "));
    // A model for each process, and the text that all of them run.
    assert_eq!((a.len(), b.len()), (3, 4));
    assert!(a.is_disjoint(&b), "{a:?} {b:?}");
}

#[test]
fn what_is_wrong_with_programs_comes_with_line_and_key() {
    read(
        &program("cgroup = \"/a/b\"\nstart = \"1 s\"\nend = \"2 s\"\n").replace("seconds", "ratio"),
    )
    .unwrap();
    for (more, wanted) in [
        (
            "nam = 1\n",
            "scenarios/x.toml:8: unknown key or word `nam`; did you mean `name`?",
        ),
        (
            "cgroup = \"db\"\n",
            "scenarios/x.toml:8: cgroup: no path of one cgroup; write it as /db",
        ),
        (
            "cgroup = \"/db*\"\n",
            "scenarios/x.toml:8: cgroup: no path of one cgroup",
        ),
        (
            "cgroup = \"/a/../b\"\n",
            "scenarios/x.toml:8: cgroup: no path of one cgroup",
        ),
        (
            "start = \"2 s\"\nend = \"1 s\"\n",
            "scenarios/x.toml:9: end: it is before its start",
        ),
        (
            "start = \"101 min\"\nend = \"1 s\"\n",
            "scenarios/x.toml:9: end: it is before its start",
        ),
    ] {
        let error = read(&program(more)).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
    let both = GOOD.to_owned() + "[[program]]\nname = \"x\"\n[program.workload.random]\n";
    assert!(read(&both).is_err());
    let text = program("");
    let of_program = |from: &str, to: &str| read(&text.replacen(from, to, 1)).unwrap_err();
    let error = of_program("name = \"one\"", "name = \"o ne\"");
    assert!(
        error.starts_with("scenarios/x.toml:7: name: no name of a program"),
        "{error}"
    );
    let error = of_program("on = 1", "on = 7");
    assert!(
        error.starts_with("scenarios/x.toml:12: on: node 7 has no memory"),
        "{error}"
    );
    let own = &text[text.find("[[program]]").unwrap()..text.find("[[configuration]]").unwrap()];
    let twice = text.replacen("[[configuration]]", &format!("{own}[[configuration]]"), 1);
    let error = read(&twice).unwrap_err();
    assert!(error.contains("name: \"one\" is taken"), "{error}");
    let beside = GOOD.replacen("[[configuration]]", &format!("{own}[[configuration]]"), 1);
    let error = read(&beside).unwrap_err();
    assert!(
        error.contains("program: there is a workload or a case already"),
        "{error}"
    );
}

#[test]
fn what_is_wrong_with_classes_comes_with_line_and_key() {
    let good = "class.db = { cgroup = \"/db\", fast.low = \"1GiB\", fast.high = \"50%\" }";
    let scenario = read(&class(good).replace("seconds", "ratio")).unwrap();
    let about = &scenario.configurations[1].about;
    assert!(
        about.ends_with(
            "Class db: its hot pages are kept in fast memory up to 1GiB (fast.low), and it is held \
             to 50% of fast memory (fast.high)."
        ),
        "{about}"
    );
    for (text, wanted) in [
        (
            "class.db = { cgrup = \"/db\" }",
            "unknown key or word `cgrup`; did you mean `cgroup`?",
        ),
        (
            "class.db = { cgroup = \"/db\", fast.high = 50 }",
            "fast.high",
        ),
        (
            "class.db = { cgroup = \"/db\", fast.high = \"50\" }",
            "write it as 8GiB or \"50%\"",
        ),
        (
            "class.db = { user = \"redis\" }",
            "class db: simulated programs have no users",
        ),
        (
            "class.db = { cgroup = \"/db\", balance = true }",
            "class db: memtide balances beside tiering as a service only",
        ),
        (
            "class.db = { cgroup = \"/db\", tier = false, weights = \"0=3,1=1\" }",
            "class db: memtide spreads memory by weights as a service only",
        ),
        (
            "class.db = { fast.low = \"1GiB\" }",
            "class db: names no processes",
        ),
        (
            "class.db = { cgroup = \"/db\", fast.low = \"9GiB\" }",
            "class db: fast.low: all classes up to db together protect more",
        ),
        (
            "class.db = { cgroup = \"/db\", fast.low = \"2GiB\", fast.high = \"1GiB\" }",
            "class db: fast.low: 2GiB is more than fast.high, 1GiB",
        ),
        (
            "class.db = { cgroup = \"/dbs\" }",
            "class db: no program is in it; did you mean `/db`?; programs are in /db",
        ),
        (
            "class.\"d b\" = { cgroup = \"/db\" }",
            "class \"d b\": no name of a class",
        ),
    ] {
        let error = read(&class(text)).unwrap_err();
        assert!(
            error.starts_with("scenarios/x.toml:2") && error.contains(wanted),
            "{text}: {error}"
        );
    }
    let none = class(good).replacen("tier = {}\n", "", 1);
    let error = read(&none).unwrap_err();
    assert!(
        error.contains("class db: classes are memtide tier's; add tier = {}"),
        "{error}"
    );
    let workload = GOOD.replacen(
        "interleave = { nodes = [0, 1], weights = [2, 1] }",
        &format!("tier = {{}}\n{good}"),
        1,
    );
    let error = read(&workload).unwrap_err();
    assert!(error.contains("no program has a cgroup"), "{error}");
}

#[test]
fn one_program_is_what_a_workload_is() {
    let options = Options {
        scale: Some(1024),
        ..Options::default()
    };
    let ran = |scenario: Scenario| run(&scenario, &options, &Quiet).unwrap().rows;
    let (one, other) = (read(GOOD).unwrap(), program("").replace("seconds", "ratio"));
    let other = read(&other).unwrap();
    for (one, other) in ran(one).into_iter().zip(ran(other)) {
        assert_eq!(one.result.seconds, other.result.seconds);
        assert_eq!(one.result.accesses, other.result.accesses);
        assert_eq!(one.result.pages_by_node, other.result.pages_by_node);
        assert_eq!(one.result.counters, other.result.counters);
        assert_eq!(one.result.fairness, None);
        let alone = other.result.programs.first();
        assert_eq!(alone.is_none(), other.configuration == "oracle");
        if let Some(alone) = alone {
            assert_eq!(alone.fast_share, other.result.fast_share);
            assert_eq!(alone.seconds, other.result.seconds);
            assert_eq!(alone.pages_by_node, other.result.pages_by_node);
            assert_eq!(other.result.fairness, Some(1.0));
        }
    }
}

/// A case of two programs, the second as `second` says.
fn of_two(second: &str) -> String {
    let workload = GOOD.split("[workload.random]\n").nth(1).unwrap();
    let workload = workload.split("\n[[configuration]]").next().unwrap();
    let one = |name: &str, more: &str| {
        format!(
            "[[case.program]]\nname = \"{name}\"\n{more}[case.program.workload.random]\n{workload}"
        )
    };
    let case = format!(
        "[[case]]\nname = \"both\"\n{}{}",
        one("one", ""),
        one("other", second)
    );
    let whole = format!("[workload.random]\n{workload}");
    let text = GOOD.replacen(&whole, &case, 1);
    text.replace("seconds = 10.0", "ratio = 1.0\ncase = \"both\"")
}

#[test]
fn a_case_has_programs_or_a_workload() {
    let scenario = read(&of_two("")).unwrap();
    assert_eq!(scenario.cases[0].name, "both");
    let has = |scenario: &Scenario, name| {
        let all = scenario.configurations_of(&scenario.cases[0]);
        all.iter().any(|configuration| configuration.name == name)
    };
    assert!(has(&scenario, "static") && has(&scenario, "oracle"));
    let scenario = read(&of_two("background = true\n")).unwrap();
    assert!(has(&scenario, "static") && !has(&scenario, "oracle"));
    let bare = of_two("") + "[[case]]\nname = \"bare\"\n";
    let error = read(&bare).unwrap_err();
    assert!(error.contains("case: nothing runs; add"), "{error}");
    let both = of_two("").replacen(
        "[[configuration]]",
        "[case.workload.random]\n[[configuration]]",
        1,
    );
    assert!(read(&both).is_err());
    let only = program("background = true\n").replace("seconds", "ratio");
    let error = read(&only).unwrap_err();
    assert!(
        error.contains("background: all of them are background"),
        "{error}"
    );
}

#[test]
fn what_is_there_for_its_load_is_neither_placed_nor_counted() {
    let options = Options {
        scale: Some(1024),
        ..Options::default()
    };
    let rows = |second| {
        run(&read(&of_two(second)).unwrap(), &options, &Quiet)
            .unwrap()
            .rows
    };
    let (counted, load) = (rows(""), rows("background = true\n"));
    let row = |rows: &[crate::scenario::Row], name: &str| {
        rows.iter()
            .find(|row| row.configuration == name)
            .unwrap()
            .clone()
    };
    // Without an interleave both run as before, and one of two alike is half of the score.
    let (all, one) = (row(&counted, "off"), row(&load, "off"));
    assert_eq!(all.result.accesses, one.result.accesses);
    assert!((one.value / all.value - 0.5).abs() < 1e-9, "{}", one.value);
    // An interleave is for the first only: all of the other's memory begins where its workload says.
    let placed =
        |row: &crate::scenario::Row, nth: usize| row.result.programs[nth].pages_by_node.clone();
    let (all, one) = (row(&counted, "two to one"), row(&load, "two to one"));
    assert_eq!(placed(&all, 0), placed(&one, 0));
    let off = row(&load, "off");
    assert_eq!(placed(&one, 1), placed(&off, 1));
    assert_ne!(placed(&all, 1), placed(&off, 1));
}
