//! Interleave weights in the service: the kernel's table, which is the whole machine's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::shares::clear;
use super::{FOLDER, MAIN, Manager, PATIENCE, put, says, socket, start};
use crate::guest::tests::Context;
use crate::guest::tests::run::table;

/// The weights of the nodes that the table has files of.
fn weights() -> Result<BTreeMap<String, String>> {
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let named = table()?.into_iter();
    let named = named.filter_map(|(path, value)| Some((name(&path)?, value)));
    Ok(named.filter(|(name, _)| name.starts_with("node")).collect())
}

/// That these nodes have these weights.
fn reads(wanted: &[(u32, u8)]) -> Result<()> {
    let there = weights()?;
    for (node, weight) in wanted {
        ensure!(
            there.get(&format!("node{node}")) == Some(&weight.to_string()),
            "{there:?} instead of {wanted:?}"
        );
    }
    Ok(())
}

fn memtide(words: &[&str]) -> Result<Output> {
    let mut command = Command::new("memtide");
    let command = command.args(words);
    command.output().with_context(|| format!("{words:?}"))
}

/// The table reads as the service wants it while it runs, over reloads; it is put back at the end, and of
/// a service that was killed by the next start and by whoever is asked to.
pub(super) fn lent(context: &mut Context) -> Result<()> {
    // A try that failed leaves its own.
    let _ = std::fs::remove_dir_all(FOLDER);
    let before = table()?;
    put(MAIN, "[weights]\ntable = \"0=5,2=2\"\n")?;
    let manager = Manager::listen()?;
    let mut service = start()?;
    manager.wait_for("READY=1", 1)?;
    reads(&[(0, 5), (2, 2)])?;
    says(
        &mut service,
        "weights are 0=5,2=2 until the service ends",
        "",
    )?;
    socket::says(&["status"], "\nweights   the kernel's table reads 0=5,2=2 ")?;
    // Nobody else has it meanwhile.
    let other = memtide(&["weights", "--set", "0=9"])?;
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    ensure!(
        !other.status.success() && said.contains("when it ends"),
        "{said}"
    );
    put(MAIN, "[weights]\ntable = \"0=3\"\n")?;
    socket::takes("weights.table was \"0=5,2=2\", is \"0=3\"")?;
    let weight_of_2 = before.iter().find(|(path, _)| path.ends_with("node2"));
    let weight_of_2 = weight_of_2.context("no node 2")?.1.parse()?;
    reads(&[(0, 3), (2, weight_of_2)])?;
    put(MAIN, "[weights]\ntable = \"0=3,7=1\"\n")?;
    socket::refuses("table: node 7 does not exist")?;
    reads(&[(0, 3), (2, weight_of_2)])?;
    put(MAIN, "[weights]\ntable = \"compute\"\n")?;
    socket::takes("is \"compute\"")?;
    let computed = weights()?;
    service.end(Signal::TERM)?.clean()?;
    ensure!(table()? == before, "{:?} instead of {before:?}", table()?);

    let killed = || -> Result<()> {
        put(MAIN, "[weights]\ntable = \"0=5,2=2\"\n")?;
        let manager = Manager::listen()?;
        let service = start()?;
        manager.wait_for("READY=1", 1)?;
        service.signal(Signal::KILL)?;
        service.wait(PATIENCE)?;
        reads(&[(0, 5), (2, 2)])
    };
    // By the next start, also of a service that wants no table.
    for text in ["[weights]\ntable = \"2=4\"\n", ""] {
        killed()?;
        put(MAIN, text)?;
        let manager = Manager::listen()?;
        let mut service = start()?;
        manager.wait_for("READY=1", 1)?;
        says(
            &mut service,
            "put back the interleave weights that a killed",
            "",
        )?;
        if !text.is_empty() {
            reads(&[(2, 4)])?;
        }
        service.end(Signal::TERM)?.clean()?;
        ensure!(table()? == before, "{:?} instead of {before:?}", table()?);
    }
    killed()?;
    let restored = memtide(&["doctor", "--restore"])?;
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    ensure!(
        restored.status.success()
            && said.contains("memtide run or service left the interleave weights"),
        "{restored:?}"
    );
    ensure!(table()? == before, "{:?} instead of {before:?}", table()?);
    clear()?;
    context.note(format!("computed {computed:?}; put back {before:?}"))
}
