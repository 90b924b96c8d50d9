//! `memtide policy replay`: calls in, answers out, a line each.
//!
//! The format is `docs/policy-replay.md`. A line that makes no sense ends the
//! replay with its number; what came before it has been answered. Answers are
//! written together, as long as there are lines to read without waiting.

use super::call::{Call, Line, Names, Range};
use super::machine::Description;
use crate::shared::context::{Context, unless_gone};
use anyhow::{Context as _, bail};
use memtide_core::mempolicy::process::{F_ADDR, F_NODE};
use memtide_core::mempolicy::{Errno, Family, Machine, Member, Process, Query, WeightFiles};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use memtide_linux::files::input;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Exit status for a file that cannot be used at all.
const UNUSABLE: u8 = 2;
/// Pages that one line may touch or ask for; bounds the work of a line.
const MOST_PAGES: u64 = 1 << 24;
/// Pages that page tables may have room for, all processes together: four bytes each.
const MOST_IN_TABLES: u64 = 1 << 27;
/// The same where there are several processes: bounds what each costs the others.
const MOST_SHARED: u64 = 1 << 24;
/// Mappings of all processes that a fork may lead to.
const MOST_MAPPINGS: usize = 1 << 20;
/// The longest first line: distances between 1,024 nodes take 4 MiB.
const LONGEST_FIRST: u64 = 16 << 20;
/// The longest line of a call; bounds what reading it takes.
const LONGEST_LINE: u64 = 64 << 10;
/// What is read and written at once.
const BUFFER: usize = 64 << 10;

/// Answer a file of calls as the kernel would, a JSON line each.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Lines as in docs/policy-replay.md; - is standard input
    pub file: PathBuf,
}

/// An answer.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Answer {
    ret: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask: Option<Vec<String>>,
    /// Runs: the node, -1 for no page, and how many pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<(i32, u64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<BTreeMap<NodeId, u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto: Option<bool>,
}

impl From<Result<(), Errno>> for Answer {
    fn from(result: Result<(), Errno>) -> Answer {
        Answer {
            ret: result.map_or_else(|errno| -errno.code(), |()| 0),
            ..Answer::default()
        }
    }
}

/// Runs the command.
pub fn run(args: Args, _: &Context) -> anyhow::Result<ExitCode> {
    let name = match args.file.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => crate::shared::outside::path(&args.file),
    };
    let mut lines = match open(&args.file) {
        Ok(file) => file,
        Err(error) => {
            crate::shared::context::complain(&format!(
                "{name}: {error}; give a file of calls or -"
            ));
            return Ok(ExitCode::from(UNUSABLE));
        }
    };
    let first = input::line(&mut lines, LONGEST_FIRST).with_context(|| format!("{name}:1"))?;
    let Some(first) = first else {
        crate::shared::context::complain(&format!(
            "{name}: empty; the first line describes the machine"
        ));
        return Ok(ExitCode::from(UNUSABLE));
    };
    let description = match Description::read(&first) {
        Ok(description) => description,
        Err(error) => bail!("{name}:1: {error}"),
    };
    let mut replay = Replay::new(&description);
    let mut out = BufWriter::with_capacity(BUFFER, std::io::stdout().lock());
    let answered = answer_all(&mut replay, &mut lines, &mut out, &name);
    // What was answered before an error has its place before it.
    unless_gone(out.flush())?;
    answered?;
    Ok(ExitCode::SUCCESS)
}

fn answer_all(
    replay: &mut Replay,
    lines: &mut BufReader<impl Read>,
    out: &mut impl Write,
    name: &str,
) -> anyhow::Result<()> {
    for number in 2.. {
        // Whoever writes a line and waits for its answer gets it.
        if lines.buffer().is_empty() && unless_there(out.flush())? {
            return Ok(());
        }
        let place = || format!("{name}:{number}");
        let Some(line) = input::line(lines, LONGEST_LINE).with_context(place)? else {
            break;
        };
        let answer = replay.answer(&line).with_context(place)?;
        serde_json::to_writer(&mut *out, &answer)
            .map_err(std::io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .or_else(|error| unless_there(Err(error)).map(drop))?;
    }
    Ok(())
}

/// A replay of any bytes, for the fuzz target: answered, or an error of one line.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let mut lines = BufReader::new(bytes);
    let Ok(Some(first)) = input::line(&mut lines, LONGEST_FIRST) else {
        return;
    };
    let answered = match Description::read(&first) {
        Ok(description) => {
            let mut replay = Replay::new(&description);
            answer_all(&mut replay, &mut lines, &mut std::io::sink(), "fuzz")
        }
        Err(error) => Err(anyhow::anyhow!("{error}")),
    };
    if let Err(error) = answered {
        let error = crate::shared::outside::causes(&error);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Whether the reader of the answers has gone.
fn unless_there(written: std::io::Result<()>) -> anyhow::Result<bool> {
    let gone = matches!(&written, Err(error) if error.kind() == ErrorKind::BrokenPipe);
    unless_gone(written)?;
    Ok(gone)
}

fn open(path: &Path) -> std::io::Result<BufReader<Box<dyn Read>>> {
    let from: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            Box::new(file)
        }
    };
    Ok(BufReader::with_capacity(BUFFER, from))
}

struct Replay {
    family: Family,
    names: Names,
    machine: Arc<Machine>,
    files: WeightFiles,
    page_size: u64,
}

impl Replay {
    fn new(description: &Description) -> Replay {
        let page_size = description.machine.page().bytes();
        Replay {
            family: Family::new(description.process()),
            names: Names::new(page_size),
            machine: Arc::clone(&description.machine),
            files: description.weights.clone(),
            page_size,
        }
    }

    fn answer(&mut self, line: &str) -> anyhow::Result<Answer> {
        let Line { process: who, call } = self.names.read(line)?;
        let family = &mut self.family;
        Ok(match call {
            Call::Fork { child } => self.fork(who, child)?,
            Call::Exit => {
                family.exit(who);
                Answer::default()
            }
            Call::RunOn { node } => self.process(who)?.run_on(node).into(),
            Call::Cpuset { nodes } => self.write_cpuset(nodes).into(),
            Call::Weight { node, text } => {
                let written = self.files.write_node(node, text.as_bytes());
                self.table(written)
            }
            Call::Auto { text } => {
                let written = self.files.write_auto(text.as_bytes());
                self.table(written)
            }
            Call::SetMempolicy {
                mode,
                mask,
                maxnode,
            } => self
                .process(who)?
                .set_mempolicy(mode, &mask, maxnode)
                .into(),
            Call::Mbind {
                range: Range { start, length },
                mode,
                mask,
                maxnode,
                flags,
            } => family
                .mbind(who, start, length, mode.into(), &mask, maxnode, flags)
                .into(),
            Call::SetMempolicyHomeNode {
                range: Range { start, length },
                node,
                flags,
            } => self
                .process(who)?
                .set_mempolicy_home_node(start, length, node, flags)
                .into(),
            Call::GetMempolicy(query) => self.ask(who, query)?,
            Call::Mmap { range } => self.process(who)?.mmap(range.start, range.length).into(),
            Call::Munmap { range } => self.process(who)?.munmap(range.start, range.length).into(),
            Call::Touch { range } => self.touch(who, range)?,
            Call::Where { range } => {
                let (first, pages) = self.pages(range)?;
                Answer {
                    nodes: Some(self.nodes(who, first, pages)?),
                    ..Answer::default()
                }
            }
        })
    }

    /// A process of which the names said that it has not ended.
    fn process(&mut self, who: Member) -> anyhow::Result<&mut Process> {
        self.family.get_mut(who).context("the process has ended")
    }

    fn fork(&mut self, parent: Member, child: String) -> anyhow::Result<Answer> {
        let process = self.process(parent)?;
        let (pages, mappings) = (process.table_pages(), process.mappings());
        let (tables, all) = self.sizes();
        if tables + pages > MOST_SHARED {
            bail!("more than {MOST_SHARED} pages in page tables of several processes");
        }
        if all + mappings > MOST_MAPPINGS {
            bail!("more than {MOST_MAPPINGS} mappings of all processes");
        }
        let member = self.family.fork(parent);
        let member = member.with_context(|| format!("more than {} forks", Family::MOST_FORKS))?;
        self.names.born(child, member);
        Ok(Answer::default())
    }

    /// Pages that the tables of all processes have room for, and mappings.
    fn sizes(&self) -> (u64, usize) {
        let of = |p: &Process| (p.table_pages(), p.mappings());
        let all = self.family.members().map(of);
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Whether there may be page tables for so many more pages.
    fn check_tables(&self, more: u64) -> anyhow::Result<()> {
        let most = match self.family.members().count() {
            1 => MOST_IN_TABLES,
            _ => MOST_SHARED,
        };
        match self.sizes().0 + more > most {
            true => bail!("more than {most} pages in page tables"),
            false => Ok(()),
        }
    }

    /// The root's cpuset has the nodes with memory, and no other takes more.
    fn write_cpuset(&mut self, nodes: NodeMask) -> Result<(), Errno> {
        let memory = self.machine.memory_nodes();
        if nodes.intersection(memory) != nodes {
            return Err(Errno::EINVAL);
        }
        self.family.set_cpuset(&nodes);
        Ok(())
    }

    /// The table as it is after a write to it.
    fn table(&self, written: Result<(), Errno>) -> Answer {
        let files = &self.files;
        let ids = (0..NodeId::LIMIT).map(NodeId);
        let weights = ids.filter_map(|node| Some((node, files.read_node(node)?)));
        Answer {
            weights: Some(weights.collect()),
            auto: files.read_auto(),
            ..Answer::from(written)
        }
    }

    fn ask(&mut self, who: Member, query: Query) -> anyhow::Result<Answer> {
        // It may read a page, which takes a table.
        if query.flags == F_NODE | F_ADDR {
            self.check_tables(1)?;
        }
        let reply = self.process(who)?.get_mempolicy(query);
        let words = reply.mask.iter().map(|word| format!("{word:#x}"));
        Ok(Answer {
            mode: reply.mode,
            mask: (!reply.mask.is_empty()).then(|| words.collect()),
            ..Answer::from(reply.result)
        })
    }

    /// Touches pages, and says where those are that could be touched.
    fn touch(&mut self, who: Member, range: Range) -> anyhow::Result<Answer> {
        let (first, pages) = self.pages(range)?;
        self.check_tables(pages)?;
        let touched = self.family.touch(who, first, pages);
        let process = self.process(who)?;
        let there = match touched {
            Ok(()) => pages,
            Err(_) => {
                let hole = |page: &u64| process.node_of(*page).is_none();
                (first..first + pages).find(hole).unwrap_or(first) - first
            }
        };
        Ok(Answer {
            nodes: Some(self.nodes(who, first, there)?),
            ..Answer::from(touched)
        })
    }

    fn pages(&self, range: Range) -> anyhow::Result<(u64, u64)> {
        let (first, pages) = range.pages(self.page_size);
        match pages > MOST_PAGES || first.checked_add(pages).is_none() {
            true => bail!("more than {MOST_PAGES} pages in one line"),
            false => Ok((first, pages)),
        }
    }

    fn nodes(&mut self, who: Member, first: u64, pages: u64) -> anyhow::Result<Vec<(i32, u64)>> {
        let process = self.process(who)?;
        let mut runs: Vec<(i32, u64)> = Vec::new();
        for page in first..first + pages {
            let node = process.node_of(page);
            let node = node.map_or(-1, |node| node.0.into());
            match runs.last_mut() {
                Some((last, count)) if *last == node => *count += 1,
                _ => runs.push((node, 1)),
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::{Value, json};

    const CALLS: [&str; 14] = [
        "fork",
        "exit",
        "run_on",
        "cpuset",
        "weight",
        "auto",
        "set_mempolicy",
        "mbind",
        "set_mempolicy_home_node",
        "get_mempolicy",
        "mmap",
        "munmap",
        "touch",
        "where",
    ];

    /// Numbers at which something ends, as numbers and as words.
    fn number() -> impl Strategy<Value = Value> {
        let ends = [0, 1, 3, 64, 4096, 32_769, 1 << 31, 1 << 47, 1 << 63];
        let near = (select(ends.to_vec()), 0u64..3);
        near.prop_map(|(end, more)| json!((end + more).wrapping_sub(1)))
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => number(),
            1 => any::<i64>().prop_map(|n| json!(n)),
            2 => number().prop_map(|n| json!(format!("{:#x}", n.as_u64().unwrap_or(0)))),
            2 => vec(number(), 0..3).prop_map(|words| {
                let word = |n: Value| json!(format!("{:#x}", n.as_u64().unwrap_or(0)));
                Value::Array(words.into_iter().map(word).collect())
            }),
            2 => select(vec!["0-2", "0,2", "", "1", "256\n", "unreadable", "true", "a", "é"])
                .prop_map(|text| json!(text)),
            1 => any::<bool>().prop_map(|truth| json!(truth)),
            1 => Just(Value::Null),
        ]
    }

    /// A call with most of its fields, each with any value.
    fn line() -> impl Strategy<Value = String> {
        let names = vec![
            "address", "first", "offset", "pages", "length", "node", "nodes", "text", "mode",
            "mask", "maxnode", "flags", "process", "child",
        ];
        let fields = vec((select(names), value()), 0..7);
        let region = proptest::bool::weighted(0.7);
        let process = select(vec!["", "", "", "b", "c"]);
        let of_processes = (select(vec!["fork", "exit"]), select(vec!["b", "c"]));
        let of_processes = (of_processes, process.clone()).prop_map(|((call, name), process)| {
            let key = if call == "fork" { "child" } else { "process" };
            let mut line = json!({"call": call, key: name});
            if call == "fork" && !process.is_empty() {
                line["process"] = json!(process);
            }
            line.to_string()
        });
        let any = (select(CALLS.to_vec()), region, process, fields);
        let any = any.prop_map(|(call, region, process, fields)| {
            let mut line = serde_json::Map::new();
            line.insert("call".into(), json!(call));
            if !process.is_empty() {
                line.insert("process".into(), json!(process));
            }
            if region {
                line.insert("region".into(), json!("a"));
            }
            line.extend(fields.into_iter().map(|(name, value)| (name.into(), value)));
            Value::Object(line).to_string()
        });
        prop_oneof![6 => any, 1 => of_processes]
    }

    fn replay_of(machine: &str) -> Replay {
        Replay::new(&Description::read(machine).unwrap())
    }

    /// Answers go out when the reader would have to wait, and at the end.
    #[test]
    fn answers_are_written_together() {
        struct Counting(Vec<u8>, usize);
        impl Write for Counting {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.1 += 1;
                self.0.extend(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut replay =
            replay_of(r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"7.2"}}"#);
        let calls = "{\"call\":\"run_on\",\"node\":0}\n".repeat(500);
        let mut lines = BufReader::with_capacity(BUFFER, calls.as_bytes());
        let mut out = BufWriter::with_capacity(BUFFER, Counting(Vec::new(), 0));
        answer_all(&mut replay, &mut lines, &mut out, "x").unwrap();
        let Counting(bytes, writes) = out.into_inner().map_err(|_| ()).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "{\"ret\":0}\n".repeat(500)
        );
        assert!(writes <= 2, "{writes}");
    }

    /// 10,000 policies of 1,024 nodes with the largest weights: what is kept of
    /// each must not be a table of its round.
    #[test]
    fn many_small_policies_take_little_memory() {
        // In a process of its own: other tests take memory meanwhile.
        const ALONE: &str = "MEMTIDE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "cmd::policy::replay::tests::many_small_policies_take_little_memory";
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let ended = alone.args(["--exact", name]).env(ALONE, "1").output();
            let ended = ended.unwrap();
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        let weights: BTreeMap<String, u8> = (0..1024).map(|n| (n.to_string(), 255)).collect();
        let machine = json!({"machine": {"memory_nodes": "0-1023", "cpu_nodes": "0",
            "kernel": "6.12", "weights": weights}});
        let mut replay = replay_of(&machine.to_string());
        let map = json!({"call": "mmap", "region": "a", "address": "0x200000000000",
            "pages": 20_000});
        replay.answer(&map.to_string()).unwrap();
        let before = resident_kib();
        let all: Vec<String> = vec!["0xffffffffffffffff".to_owned(); 16];
        for page in 0..10_000 {
            let bind = json!({"call": "mbind", "region": "a", "first": page * 2, "pages": 1,
                "mode": 6, "mask": all, "maxnode": 1025, "flags": 0});
            assert_eq!(replay.answer(&bind.to_string()).unwrap().ret, 0);
        }
        let touch = json!({"call": "touch", "region": "a", "first": 0, "pages": 64});
        assert_eq!(replay.answer(&touch.to_string()).unwrap().ret, 0);
        let taken = resident_kib() - before;
        assert!(taken < 256 << 10, "{taken} KiB");
    }

    fn resident_kib() -> i64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    #[test]
    fn page_tables_have_a_limit() {
        let machine = r#"{"machine":{"memory_nodes":"0","cpu_nodes":"0","kernel":"7.2",
            "page_size":65536}}"#;
        let mut replay = replay_of(&machine.replace('\n', ""));
        let map = json!({"call": "mmap", "region": "a", "address": "0x0",
            "pages": 1u64 << 30});
        assert_eq!(replay.answer(&map.to_string()).unwrap().ret, 0);
        let mut error = None;
        for table in 0..20_000u64 {
            let touch = json!({"call": "touch", "region": "a", "first": table << 13, "pages": 1});
            if let Err(why) = replay.answer(&touch.to_string()) {
                error = Some(why.to_string());
                break;
            }
        }
        assert_eq!(error.unwrap(), "more than 134217728 pages in page tables");
        let ask = json!({"call": "get_mempolicy", "mode": true, "mask": false, "maxnode": 0,
            "region": "a", "first": 1u64 << 29, "flags": 3});
        assert!(replay.answer(&ask.to_string()).is_err());
        let fork = json!({"call": "fork", "child": "b"});
        assert_eq!(
            replay.answer(&fork.to_string()).unwrap_err().to_string(),
            "more than 16777216 pages in page tables of several processes"
        );
    }

    /// What several processes may have takes a cpuset no long time.
    #[test]
    fn several_processes_have_less() {
        let machine = r#"{"machine":{"memory_nodes":"0-1","cpu_nodes":"0","kernel":"7.2"}}"#;
        let mut replay = replay_of(machine);
        let mut ok = |line: Value| replay.answer(&line.to_string()).map(|answer| answer.ret);
        let place = |call| json!({"call": call, "region": "a", "address": "0x0", "pages": 1 << 20});
        assert_eq!(ok(place("mmap")).unwrap(), 0);
        assert_eq!(
            ok(json!({"call": "touch", "region": "a", "pages": 1 << 20})).unwrap(),
            0
        );
        for child in 1..16 {
            assert_eq!(
                ok(json!({"call": "fork", "child": child.to_string()})).unwrap(),
                0
            );
        }
        for nodes in ["0", "1", "0-1", "0-1"] {
            assert_eq!(ok(json!({"call": "cpuset", "nodes": nodes})).unwrap(), 0);
        }
        let more = json!({"call": "touch", "region": "a", "pages": 1});
        let error = ok(more).unwrap_err().to_string();
        assert_eq!(error, "more than 16777216 pages in page tables");
    }

    proptest! {
        #[test]
        fn every_line_is_answered_or_refused(lines in vec(line(), 1..60), bytes in ".{0,40}") {
            let machine = r#"{"machine":{"memory_nodes":"0-2","cpu_nodes":"0-1","kernel":"7.2"}}"#;
            let mut replay = replay_of(machine);
            let map = r#"{"call":"mmap","region":"a","address":"0x200000000000","pages":64}"#;
            replay.answer(map).unwrap();
            for line in &lines {
                // What no call can mean is an error of one line; nothing panics.
                if let Err(error) = replay.answer(line) {
                    prop_assert!(!format!("{error:#}").contains('\n'), "{}", line);
                }
            }
            let _ = replay.answer(&bytes);
            let _ = Description::read(&bytes);
        }
    }
}
