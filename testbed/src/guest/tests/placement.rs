//! The victim tells the truth: with nobody moving pages, each is where the victim put it.
//!
//! Every other test believes the victim, so it is checked first, against the kernel's own answer.

use anyhow::{Result, ensure};

use super::{BootClass, Context, Needs, Test};
use crate::guest::procfs::anon_huge_kib;
use crate::guest::subject::{Census, Victim, census_cold, census_hot};
use crate::report::Verdict;

const SLOW: u32 = 2;

/// Name, words for the victim, number of processes that tell, whether a disk is needed.
const CASES: [(&str, &str, usize, bool); 7] = [
    ("contiguous", "", 1, false),
    ("scattered", "--scattered", 1, false),
    ("threads", "--threads 4 --busy 50", 1, false),
    ("processes", "--processes 2 --size 64 --hot 8", 2, false),
    ("huge", "--huge --scattered", 1, false),
    ("shared", "--shared", 1, false),
    ("file", "--map-file /mnt/victim", 1, true),
];

pub(super) fn tests() -> Vec<Test> {
    CASES
        .into_iter()
        .map(|(name, words, processes, disk)| Test {
            name: format!("victim/{name}"),
            topology: "cxl",
            class: BootClass::Quiet,
            needs: Needs {
                disk,
                ..Needs::default()
            },
            on_request: false,
            run: Box::new(move |context| check(context, words, processes)),
        })
        .collect()
}

fn check(context: &mut Context, words: &str, processes: usize) -> Result<Verdict> {
    let victim = Victim::start(words, processes)?;
    let known = victim.known_pages();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let hot = census_hot(&known, &[SLOW])?;
    let cold = census_cold(&known, &[SLOW])?;
    context.note(format!(
        "{} hot and {} cold pages on node {SLOW}",
        hot.there, cold.there
    ))?;
    if words.contains("--huge") {
        let truth = victim.truth();
        let (huge, all) = (
            anon_huge_kib(truth.pid, truth.start)?,
            4 * truth.pages as u64,
        );
        ensure!(huge == all, "{huge} of {all} KiB are huge pages");
    }
    let complete = |census: Census| census.asked > 0 && census.there == census.asked;
    // The kernel may make 2 MiB of a file huge by itself, and unmaps them for it. Until
    // somebody touches them again, which nobody does with cold ones, they are nowhere.
    let may_be_unmapped = words.contains("--map-file");
    let on_no_other = |census: Census| {
        census.there > census.asked / 2 && census.there + census.nowhere == census.asked
    };
    let cold_complete = complete(cold) || may_be_unmapped && on_no_other(cold);
    Ok(if complete(hot) && cold_complete {
        Verdict::Passed
    } else {
        Verdict::Failed(format!(
            "not all pages are on node {SLOW}: hot {hot:?}, cold {cold:?}"
        ))
    })
}
