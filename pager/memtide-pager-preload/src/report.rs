//! What is said at the end: what was kept, and what the pager did with it.

use crate::tally::TALLY;
use memtide_linux::fs::Root;
use memtide_linux::fs::interrupts::tlb_shootdowns;
use memtide_pager::board::Counts;
use memtide_pager::local::{LocalStatistics, Replicas};
use memtide_pager::{Pager, State, Statistics};
use serde::Serialize;
use std::sync::OnceLock;

/// The kernel's count of shootdown interrupts when the program began.
static BEFORE: OnceLock<Option<u64>> = OnceLock::new();

/// The document of `docs/json-pager.md`, pager run.
#[derive(Debug, Serialize)]
pub struct Report {
    pid: u32,
    program: String,
    /// Of the whole machine while the program ran.
    machine_shootdowns: Option<u64>,
    #[serde(flatten)]
    counts: Counts,
    left_out_because: Vec<&'static str>,
    pager: Option<Statistics>,
    state: Option<State>,
    local: Option<LocalStatistics>,
}

/// Notes where counters stand that are not ours.
pub fn begin() {
    BEFORE.get_or_init(shootdowns);
}

/// Where they stood; `None` where the kernel does not count.
pub fn shootdowns_before() -> Option<u64> {
    BEFORE.get().copied().flatten()
}

impl Report {
    /// As things stand; `None` if there is nothing to tell: nothing was kept,
    /// wanted or refused in this process.
    pub fn now(pager: Option<&Pager>, local: Option<&Replicas>) -> Option<Report> {
        let counts = TALLY.counts();
        if counts == Counts::default() && !is_first() {
            return None;
        }
        let program = std::env::current_exe().unwrap_or_default();
        Some(Report {
            pid: std::process::id(),
            program: program
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            machine_shootdowns: shootdowns()
                .zip(shootdowns_before())
                .map(|(now, then)| now.saturating_sub(then)),
            counts,
            left_out_because: crate::reasons::met(),
            pager: pager.map(Pager::statistics),
            state: pager.map(Pager::state),
            local: local.and_then(|local| local.statistics().ok()),
        })
    }

    /// Whether the program mapped nothing that was asked for.
    pub fn nothing_matched(&self) -> bool {
        self.counts == Counts::default()
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// For people.
    pub fn sentence(&self) -> String {
        let counts = &self.counts;
        if let Some(local) = &self.local {
            return self.local_sentence(local);
        }
        let Some(pager) = &self.pager else {
            let why = match counts.left_out {
                0 => "no file that it mapped matches --files".to_owned(),
                n => format!(
                    "{n} left to the kernel: {}",
                    self.left_out_because.join(", ")
                ),
            };
            return format!("{}: no mapping was kept: {why}", self.program);
        };
        let mut text = format!(
            "{}: kept {} mappings of {} in {} (peak {}); evicted {} pages, {} used again in time; \
             unmapped in {} calls; read {} pages again",
            self.program,
            counts.kept_mappings,
            mib(counts.kept_bytes),
            mib(pager.budget_bytes),
            mib(pager.peak_resident_bytes),
            pager.evicted_pages,
            pager.rescued_pages,
            pager.flush_calls,
            pager.refilled_pages,
        );
        if let Some(shootdowns) = self.machine_shootdowns {
            text += &format!("; {shootdowns} shootdowns on the machine meanwhile");
        }
        for (count, what) in [
            (counts.handed_over, "handed back to the kernel"),
            (counts.not_read_in, "calls to read everything in not done"),
            (counts.locks_refused, "calls of mlock refused"),
            (counts.left_out, "left to the kernel"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        if !self.left_out_because.is_empty() {
            text += &format!(" ({})", self.left_out_because.join(", "));
        }
        if let Some(state) = &self.state {
            let worse = [&state.unmap, &state.memory].into_iter();
            for means in worse.filter(|means| !means.best) {
                text += &format!("; {means}");
            }
        }
        text
    }
}

impl Report {
    fn local_sentence(&self, local: &LocalStatistics) -> String {
        let counts = &self.counts;
        let mut text = format!(
            "{}: {} mappings of {}, {} of them read from copies",
            self.program,
            counts.kept_mappings,
            mib(counts.kept_bytes),
            mib(local.mapped_bytes),
        );
        if let Some(node) = local.node {
            text += &format!(" on node {node}");
        }
        text += &format!(", {} copied by this process", mib(local.filled_bytes));
        for (bytes, what) in [
            (local.given_up_bytes, "left to who reads more"),
            (local.freed_bytes, "of others' room taken"),
        ] {
            if bytes > 0 {
                text += &format!(", {} {what}", mib(bytes));
            }
        }
        for on in &local.nodes {
            let (copies, budget) = (mib(on.copies_bytes), mib(local.budget_bytes));
            text += &format!("; copies on node {}: {copies} of {budget}", on.node);
        }
        for (count, what) in [
            (counts.handed_over, "handed back to the kernel"),
            (counts.left_out, "left to the kernel"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        for reason in &local.without_because {
            text += &format!("; {}", reason.words());
        }
        text
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Whether this process is the one that `memtide pager run` became, or was
/// given the library by hand; not a child of it.
fn is_first() -> bool {
    let first = std::env::var(crate::settings::FIRST).ok();
    first.is_none_or(|pid| pid.parse() == Ok(std::process::id()))
}

/// TLB shootdown interrupts of the machine since boot.
fn shootdowns() -> Option<u64> {
    tlb_shootdowns(&Root::default()).ok().flatten()
}
