//! Where the service stands, as it says it and as those hear it who ask.
//!
//! Both sides have these structs, so that they agree; `io.memtide.varlink` describes them for others, and
//! a test compares. Counts of pages become bytes here: who asks need not know this machine's pages.

use super::varlink::Parameters;
use crate::shared::pagers::PagerFigures;
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_loop::options::{TierOptions, Tiered};
use memtide_loop::report::{
    AccountStatus, ClassStatus, PressureStatus, ProcessStatus, Status, TierSpent,
};
use memtide_pager::board::Figures;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A node with memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub node: u16,
    /// Its tier, if it is in one.
    pub tier: Option<u32>,
    /// Whether pages on it need no promotion.
    pub fast: bool,
    /// Its memory.
    pub memory_bytes: u64,
    /// What of that is free, if anybody has looked.
    pub free_bytes: Option<u64>,
    /// How late it answers under its present load, if that was measured.
    pub latency_ns: Option<u32>,
}

/// A class of processes and its share of fast memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The name of the class that contains it, if one does.
    #[serde(default)]
    pub within: Option<String>,
    /// What it and the classes within it use of fast memory, if that is known.
    pub fast_bytes: Option<u64>,
    /// What is not taken from it for others.
    pub low_bytes: u64,
    /// The most that it may have, if there is a bound.
    pub high_bytes: Option<u64>,
    /// What moved up.
    pub promoted_bytes: u64,
    /// What moved down.
    pub demoted_bytes: u64,
    /// Of both, what was back soon.
    pub returned_bytes: u64,
    /// Hot memory of its own that its bound, or one around it, keeps down.
    pub waiting_bytes: u64,
    /// Whether its processes are not managed.
    pub left_alone: bool,
    /// Whether its pages are observed and move between tiers.
    #[serde(default = "yes")]
    pub tiered: bool,
    /// Whether they leave fast memory.
    #[serde(default = "yes")]
    pub demotes: bool,
    /// Whether they leave, too, because nobody touched them for long.
    #[serde(default = "yes")]
    pub demotes_idle: bool,
    /// Whether its pages stay where they are.
    pub paused: bool,
    /// Whether its processes are balanced between fast nodes.
    #[serde(default)]
    pub balanced: bool,
    /// Whether its memory is kept spread by its weights.
    #[serde(default)]
    pub spread: bool,
    /// Whether its processes wait for memory, if that is heeded and known.
    #[serde(default)]
    pub pressure: Option<Pressure>,
    /// Of its accesses that were sampled of late, those to fast memory, in thousandths, if that is
    /// known.
    #[serde(default)]
    pub fast_access_permille: Option<u32>,
    /// Of its pages that were seen touched of late, those on fast memory, likewise.
    #[serde(default)]
    pub fast_touched_permille: Option<u32>,
}

/// What a service that does not say so does.
fn yes() -> bool {
    true
}

/// A managed process. What several processes map is counted for each of them, as of its last survey.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    /// Its class, if it is in one.
    pub class: Option<String>,
    /// Its memory on fast nodes.
    pub fast_bytes: u64,
    /// And on slow ones.
    pub slow_bytes: u64,
    /// What moved up.
    pub promoted_bytes: u64,
    /// What moved down.
    pub demoted_bytes: u64,
    /// Of both, what was back soon.
    pub returned_bytes: u64,
    /// Time that its promoted memory saves it, in nanoseconds a second, if that is known.
    pub won_ns_per_s: Option<u64>,
    /// Time that moving its memory takes, likewise.
    pub spent_ns_per_s: Option<u64>,
    /// Whether nothing of it is promoted because that did not pay.
    #[serde(default)]
    pub rests: bool,
}

impl Process {
    /// What the loop says of it.
    pub fn of(status: &ProcessStatus, page: PageSize) -> Process {
        let bytes = |pages: u64| pages.saturating_mul(page.bytes());
        Process {
            pid: status.pid,
            name: status.name.clone(),
            class: status.class.clone(),
            fast_bytes: bytes(status.top_pages),
            slow_bytes: bytes(status.lower_pages),
            promoted_bytes: bytes(status.promoted_pages),
            demoted_bytes: bytes(status.demoted_pages),
            returned_bytes: bytes(status.returned_pages),
            won_ns_per_s: status.account.map(|account| account.won_ns_per_s),
            spent_ns_per_s: status.account.map(|account| account.spent_ns_per_s),
            rests: status.account.is_some_and(|account| account.rests),
        }
    }
}

/// That programs wait for memory, and what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// The time in which some task waited, since the run began.
    pub stalled_ms: u64,
    /// At most so much is promoted a second at present.
    pub limit_bytes: u64,
    /// Whether that is less than without pressure.
    pub slowed: bool,
}

impl Pressure {
    fn of(pressure: &PressureStatus, page: PageSize) -> Pressure {
        Pressure {
            stalled_ms: pressure.stalled_ms,
            limit_bytes: pressure.limit_pages.saturating_mul(page.bytes()),
            slowed: pressure.slowed,
        }
    }
}

/// What promotion won and cost, of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Time that promoted memory saves programs, in nanoseconds a second.
    pub won_ns_per_s: u64,
    /// Time that tiering takes, likewise.
    pub spent_ns_per_s: u64,
    /// The first since the run began.
    pub won_ms: u64,
    /// And the second.
    pub spent_ms: u64,
    /// Processes that rest.
    pub resting: u64,
}

impl Account {
    fn of(account: &AccountStatus) -> Account {
        let TierSpent {
            moves_ns,
            faults_ns,
            own_ns,
            observing_ns,
        } = account.spent;
        let others = [faults_ns, own_ns, observing_ns];
        let spent_ns = others.into_iter().fold(moves_ns, u64::saturating_add);
        Account {
            won_ns_per_s: account.won_ns_per_s,
            spent_ns_per_s: account.spent_ns_per_s,
            won_ms: account.won_ns / 1_000_000,
            spent_ms: spent_ns / 1_000_000,
            resting: account.resting_processes as u64,
        }
    }

    /// What is won and spent at present, in words.
    pub fn now(&self) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        let rest = match self.resting {
            0 => String::new(),
            1 => ", 1 process rests".to_owned(),
            resting => format!(", {resting} processes rest"),
        };
        format!(
            "wins {:.1} ms a second, spends {:.1}{rest}",
            ms(self.won_ns_per_s),
            ms(self.spent_ns_per_s)
        )
    }
}

/// What balancing between fast nodes has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balancing {
    /// What tells of accesses, unless it rests.
    pub source: Option<String>,
    /// Why nothing is balanced although that is wanted, if so.
    pub rests: Option<String>,
    /// Processes that are balanced.
    pub processes: u64,
    /// Their threads that were seen using memory.
    pub threads: u64,
    /// Threads that run where their memory is, or should.
    pub placed_threads: u64,
    /// Accesses that were seen.
    pub accesses: u64,
    /// Of those, to memory on the node of the CPU.
    pub local_accesses: u64,
    /// What moved.
    pub moved_bytes: u64,
    /// What the kernel would not move.
    pub unmovable_bytes: u64,
    /// What policies and cpusets kept.
    pub forbidden_bytes: u64,
    /// What found no room.
    pub no_room_bytes: u64,
    /// Its processor time.
    pub cpu_ms: u64,
    /// How long it rested to keep to its share of a CPU.
    pub rested_ms: u64,
}

impl Balancing {
    /// What the loop says of it.
    pub fn of(status: &Status, page: PageSize) -> Balancing {
        let bytes = |pages: u64| pages.saturating_mul(page.bytes());
        let balance = status.balancing.clone().unwrap_or_default();
        Balancing {
            source: Some(balance.source),
            rests: None,
            processes: status.processes as u64,
            threads: balance.tasks as u64,
            placed_threads: balance.placed_tasks as u64,
            accesses: balance.samples,
            local_accesses: balance.local_samples,
            moved_bytes: bytes(balance.moved_pages),
            unmovable_bytes: bytes(status.failed_pages),
            forbidden_bytes: bytes(balance.forbidden_pages),
            no_room_bytes: bytes(balance.no_room_pages),
            cpu_ms: whole_ms(status.cpu),
            rested_ms: balance.rested_ms,
        }
    }
}

/// Interleave weights: the kernel's table, and the memory of classes that is kept spread by theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// What the kernel's table reads for the service, if it does.
    pub table: Option<String>,
    /// Why no memory is spread although that is wanted, if so.
    pub rests: Option<String>,
    /// Processes whose memory is kept spread.
    pub processes: u64,
    /// Of those, processes of which that is not possible at present.
    pub refused: u64,
    /// What moved.
    pub moved_bytes: u64,
    /// Its processor time.
    pub cpu_ms: u64,
}

/// What pagers of running programs do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pagers {
    /// Why they are not seen although that is wanted, if so.
    pub rests: Option<String>,
    /// Processes that have one.
    pub processes: u64,
    /// Processes that seem to have one of which nothing can be read.
    pub not_read: u64,
    /// What they may keep in memory together.
    pub budget_bytes: u64,
    /// Chosen for eviction.
    pub evicted_bytes: u64,
    /// Came into memory a second time or more.
    pub refilled_bytes: u64,
    /// Unmapped.
    pub unmapped_bytes: u64,
    /// Flushes with which that was.
    pub flushes: u64,
    /// Looks that found more in memory than the budget.
    pub overruns: u64,
    /// Times that programs had to wait for each of their pages.
    pub held_back: u64,
    /// Processor time of looking.
    pub cpu_ms: u64,
    /// By name of the file.
    pub files: Vec<PagerFile>,
    /// Files that have no place among these.
    pub other_files: u64,
    /// What they are together.
    pub others: PagerFile,
}

/// Files of one name that pagers serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagerFile {
    /// Without a folder; empty of several together.
    pub name: String,
    /// What processes map of them.
    pub mapped_bytes: u64,
    /// What of them is in memory.
    pub resident_bytes: u64,
    /// Chosen for eviction.
    pub evicted_bytes: u64,
    /// Came into memory a second time or more.
    pub refilled_bytes: u64,
}

impl Pagers {
    /// Whether there is or was one, or nobody knows.
    pub fn any(&self) -> bool {
        let none = Pagers {
            cpu_ms: self.cpu_ms,
            ..Pagers::default()
        };
        *self != none
    }

    /// What was seen of them, or why nothing was.
    pub fn of(stands: Result<PagerFigures, String>, page: PageSize) -> Pagers {
        let bytes = |pages: u64| pages.saturating_mul(page.bytes());
        let file = |name: String, figures: &Figures| PagerFile {
            name,
            mapped_bytes: figures.mapped_bytes,
            resident_bytes: figures.resident_bytes,
            evicted_bytes: bytes(figures.evicted_pages),
            refilled_bytes: bytes(figures.refilled_pages),
        };
        let (figures, rests) = match stands {
            Ok(figures) => (figures, None),
            Err(why) => (PagerFigures::default(), Some(why)),
        };
        let counts = figures.counts;
        Pagers {
            rests,
            processes: figures.processes,
            not_read: figures.not_read,
            budget_bytes: figures.budget_bytes,
            evicted_bytes: bytes(counts.evicted_pages),
            refilled_bytes: bytes(counts.refilled_pages),
            unmapped_bytes: bytes(counts.unmapped_pages),
            flushes: counts.flushes,
            overruns: counts.overruns,
            held_back: counts.held_back,
            cpu_ms: whole_ms(figures.cpu),
            files: (figures.files.iter())
                .map(|one| file(one.name.clone(), &one.figures))
                .collect(),
            other_files: figures.other_files,
            others: file(String::new(), &figures.others),
        }
    }
}

/// How the run is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// What tells of accesses.
    pub source: String,
    /// Which rule admits hot pages.
    pub gate: String,
    /// `all`, or a cgroup.
    pub selected: String,
    /// At most so much is promoted a second.
    pub rate_limit_bytes: u64,
    /// So much stays free on each fast node.
    pub headroom_bytes: u64,
    /// The share of a CPU that observing may take in the long run.
    pub observe_cpu_percent: u32,
    /// Whether nothing moves.
    pub dry_run: bool,
}

impl Setup {
    /// That of a run by `options` which listens to `source`.
    pub fn of(source: &str, options: &TierOptions, cgroup: Option<&Path>) -> Setup {
        let word = serde_json::to_value(options.gate).unwrap_or_default();
        Setup {
            source: source.to_owned(),
            gate: word.as_str().unwrap_or_default().to_owned(),
            selected: cgroup.map_or("all".to_owned(), |path| path.display().to_string()),
            rate_limit_bytes: options.rate_limit.0,
            headroom_bytes: options.headroom.0,
            observe_cpu_percent: options.observe_cpu.permille() / 10,
            dry_run: options.dry_run,
        }
    }
}

impl Class {
    /// What is unusual about it, in a word or none.
    pub fn state(&self) -> &'static str {
        match (self.left_alone, self.paused) {
            (true, _) => "left alone",
            (_, true) => "paused",
            _ if self.pressure.is_some_and(|pressure| pressure.slowed) => "pressed",
            // So it is not tiered.
            _ if self.spread => "spread",
            _ if !self.tiered => self.done().words(),
            _ => "",
        }
    }

    /// How much of what it uses fast memory serves, in a word: of its accesses, or else of the pages that
    /// it touches.
    pub fn served(&self) -> String {
        let percent = |permille: u32| f64::from(permille) / 10.0;
        match (self.fast_access_permille, self.fast_touched_permille) {
            (Some(share), _) => format!("{:.0} % acc.", percent(share)),
            (None, Some(share)) => format!("{:.0} % pages", percent(share)),
            (None, None) => "?".to_owned(),
        }
    }

    /// All that is to be known of how it is treated, in words or none.
    pub fn states(&self) -> String {
        let mut all = vec![self.state()];
        if !self.left_alone && self.tiered {
            all.push(self.done().words());
        }
        if self.balanced {
            all.push("balanced");
        }
        if self.spread && !all.contains(&"spread") {
            all.push("spread");
        }
        all.retain(|state| !state.is_empty());
        all.join(", ")
    }

    fn done(&self) -> Tiered {
        Tiered {
            tier: self.tiered,
            demote: self.demotes,
            demote_idle: self.demotes_idle,
        }
    }
}

/// A page, as the method `Explain` tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Its process.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    /// The class of its process, if it is in one.
    pub class: Option<String>,
    /// Address of its first byte.
    pub address: u64,
    /// `anonymous`, `file` or `shared`.
    pub mapping: String,
    /// The mapping's first address.
    pub mapping_start: u64,
    /// And the first behind it.
    pub mapping_end: u64,
    /// What its memory policy lets it do, in words.
    pub policy: String,
    /// The node on which it is; none if no memory is there.
    pub node: Option<u16>,
    /// Whether that is a fast one.
    pub fast: Option<bool>,
    /// Whether it is part of a huge page.
    pub huge: bool,
    /// Passes in which it was touched.
    pub touches: Option<u8>,
    /// Since it was last seen touched.
    pub touched_ms_ago: Option<u64>,
    /// Looks in a row that found it untouched.
    pub untouched_looks: u8,
    /// Its last move, if that is known.
    pub last_move: Option<Move>,
    /// Why it is where it is: a sentence.
    pub why: String,
}

/// A page's last move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// `promotion` or `demotion`.
    pub direction: String,
    /// Since then.
    pub ms_ago: u64,
}

/// The last reload of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// When it was, in ms since 1970 in UTC.
    pub unix_ms: u64,
    /// Whether the new configuration was taken.
    pub taken: bool,
}

/// Writes into the reply of the method `Status` how old it is.
pub fn set_age(parameters: &mut Parameters, age: Duration) {
    let status = parameters.get_mut("status");
    if let Some(status) = status.and_then(Value::as_object_mut) {
        status.insert("age_ms".to_owned(), whole_ms(age).into());
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A service whose state is older than this does not work any more: as long as the unit's watchdog waits.
const HANGS: Duration = Duration::from_secs(30);

/// Where things stand. Sums begin at zero with the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The service's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Since the run began.
    pub run_ms: u64,
    /// Since all this was so. The loop tells about once a second.
    pub age_ms: u64,
    /// How it is set up.
    pub setup: Setup,
    /// `start`, `look` or `glance`.
    pub doing: String,
    /// Why nobody is tiered, if so.
    #[serde(default)]
    pub rests: Option<String>,
    /// Managed processes.
    pub processes: u64,
    /// Their memory on fast nodes.
    pub fast_bytes: u64,
    /// And on slow ones.
    pub slow_bytes: u64,
    /// What moved up.
    pub promoted_bytes: u64,
    /// What moved down.
    pub demoted_bytes: u64,
    /// Of both, what was back soon.
    pub returned_bytes: u64,
    /// What the kernel would not move.
    pub unmovable_bytes: u64,
    /// Complete looks at every page.
    pub looks: u64,
    /// Reports of accesses that were lost.
    pub lost_reports: u64,
    /// The service's own processor time.
    pub cpu_ms: u64,
    /// What the kernel spent observing for it.
    pub observation_cpu_ms: u64,
    /// The nodes with memory.
    pub nodes: Vec<Node>,
    /// What promotion won and cost, if that is known.
    pub account: Option<Account>,
    /// Whether programs wait for memory, if that is heeded and known.
    #[serde(default)]
    pub pressure: Option<Pressure>,
    /// What balancing has done, if anybody wants it.
    #[serde(default)]
    pub balancing: Option<Balancing>,
    /// Interleave weights, if any are wanted.
    #[serde(default)]
    pub weights: Option<Weights>,
    /// Pagers of running programs, if anybody wants to know.
    #[serde(default)]
    pub pagers: Option<Pagers>,
    /// Classes with a share of fast memory.
    pub classes: Vec<Class>,
    /// How equal their shares of accesses are that fast memory serves, in thousandths, if that is known.
    #[serde(default)]
    pub access_fairness_permille: Option<u32>,
    /// And their shares of touched pages.
    #[serde(default)]
    pub touched_fairness_permille: Option<u32>,
    /// The last reload, if there was one.
    pub reload: Option<Reload>,
    /// Why the last reload was refused, if it was.
    pub refused: Option<String>,
}

impl Standing {
    /// What the loop says of a machine of these nodes.
    pub fn of(status: &Status, page: PageSize, setup: &Setup, nodes: &Topology) -> Standing {
        let bytes = |pages: u64| pages.saturating_mul(page.bytes());
        let tier = status.tiering.clone().unwrap_or_default();
        let free = |id| tier.free_pages.iter().find(|(node, _)| *node == id);
        let account = tier.account.as_ref();
        let latency = |id| {
            let mut all = account
                .into_iter()
                .flat_map(|account| &account.latencies_ns);
            all.find(|(node, _)| *node == id).map(|(_, ns)| *ns)
        };
        let with_memory = nodes.nodes().iter().filter(|node| node.has_memory());
        let nodes = with_memory.map(|node| Node {
            node: node.id.0,
            tier: node.tier.map(|tier| tier.0),
            fast: node.top_tier,
            memory_bytes: node.memory_bytes,
            free_bytes: free(node.id).map(|(_, pages)| bytes(*pages)),
            latency_ns: latency(node.id),
        });
        let class = |class: &ClassStatus| Class {
            name: class.name.clone(),
            within: class.within.clone(),
            fast_bytes: class.fast_pages.map(bytes),
            low_bytes: bytes(class.low_pages),
            high_bytes: class.high_pages.map(bytes),
            promoted_bytes: bytes(class.promoted_pages),
            demoted_bytes: bytes(class.demoted_pages),
            returned_bytes: bytes(class.returned_pages),
            waiting_bytes: bytes(class.waiting_pages),
            left_alone: class.left_alone,
            tiered: class.tiered,
            demotes: class.demotes,
            demotes_idle: class.demotes_idle,
            paused: class.paused,
            // Whoever balances says so.
            balanced: false,
            spread: false,
            pressure: class.pressure.map(|of| Pressure::of(&of, page)),
            fast_access_permille: class.fast_access_permille,
            fast_touched_permille: class.fast_touched_permille,
        };
        Standing {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            run_ms: status.at_ms,
            age_ms: 0,
            setup: setup.clone(),
            doing: tier.observing.to_owned(),
            // Whoever begins the run says so.
            rests: None,
            processes: status.processes as u64,
            fast_bytes: bytes(tier.top_pages),
            slow_bytes: bytes(tier.lower_pages),
            promoted_bytes: bytes(tier.pgpromote_success),
            demoted_bytes: bytes(tier.pgdemote_proactive),
            returned_bytes: bytes(tier.returned_pages),
            unmovable_bytes: bytes(status.failed_pages),
            looks: tier.passes,
            lost_reports: status.lost,
            cpu_ms: whole_ms(status.cpu),
            observation_cpu_ms: whole_ms(tier.kernel_cpu),
            nodes: nodes.collect(),
            account: account.map(Account::of),
            pressure: tier.pressure.map(|of| Pressure::of(&of, page)),
            balancing: None,
            weights: None,
            pagers: None,
            classes: tier.classes.iter().map(class).collect(),
            access_fairness_permille: tier.access_fairness_permille,
            touched_fairness_permille: tier.touched_fairness_permille,
            reload: None,
            refused: None,
        }
    }

    /// As the reply of the method `Status`.
    pub fn parameters(&self) -> Parameters {
        let standing = serde_json::to_value(self).expect("plain data");
        Parameters::from_iter([("status".to_owned(), standing)])
    }

    /// Out of such a reply.
    pub fn heard(mut parameters: Parameters) -> Option<Standing> {
        serde_json::from_value(parameters.remove("status")?).ok()
    }

    /// For how long the loop has told nothing, if that is too long.
    pub fn hangs(&self) -> Option<Duration> {
        let age = Duration::from_millis(self.age_ms);
        (age > HANGS).then_some(age)
    }

    /// What the loop does, and why it rests if it does.
    pub fn doing(&self) -> String {
        if let Some(why) = &self.rests {
            return format!("tiers nothing: {why}");
        }
        let doing = match self.doing.as_str() {
            "look" => "looks at every page on slow nodes",
            "glance" => "rests, and glances at few pages until one of them is hot",
            "samples" => "hears single accesses, and looks at no page",
            _ => "has begun",
        };
        doing.to_owned()
    }

    /// How alike classes are served, in words, if that is known.
    pub fn fairness(&self) -> Option<String> {
        let known = [
            (self.access_fairness_permille, "accesses"),
            (self.touched_fairness_permille, "touched pages"),
        ];
        let words = |(permille, of): (Option<u32>, &str)| {
            let index = f64::from(permille?) / 1000.0;
            Some(format!("{index:.3} by {of}"))
        };
        let words: Vec<String> = known.into_iter().filter_map(words).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Percent of a CPU since the run began: the service's own, and the kernel's for it.
    pub fn cpu_percent(&self) -> (f64, f64) {
        let share = |ms: u64| 100.0 * ms as f64 / self.run_ms.max(1) as f64;
        (share(self.cpu_ms), share(self.observation_cpu_ms))
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
pub mod tests;
