//! What the kernel knows of balancing and promotion.
//!
//! Decisions are the core's: [`Balancer`] for tasks and their memory, [`Gate`] and the hotness store
//! for slow memory. Here they get the simulated machine: its threads are tasks, its regions mappings,
//! its entries remember touchers. Scaled quantities are divided once, here: what a scan arms, the
//! promotion budget, the plenty of free memory.
//!
//! Thread t is the task with pid 1024 + t. A space's first thread is its process, the others were
//! started by it.

use super::Regions;
use super::by_samples::Batches;
use super::error::KernelError;
use super::kmigrated::Tracking;
use super::migrate::InFlight;
use crate::config::{Acts, Configuration, Pghot, PromotionGate};
use crate::page::{HUGE_PAGES, LAST_BITS};
use crate::spec::MachineSpec;
use crate::workload::{Kind, Pattern, Plan, RegionPlan};
use memtide_core::access::Source;
use memtide_core::balancing::machine::Machine;
use memtide_core::balancing::sampled::{Account, Sampled};
use memtide_core::balancing::scan::{Mapping, Traits};
use memtide_core::balancing::{
    Balancer, BalancerConfig, Clock, CpupidFormat, Modes, Pacing, Settings, SpaceId, TaskId,
};
use memtide_core::mempolicy::Policy;
use memtide_core::promotion::{Gate, GateConfig};
use memtide_core::units::NodeId;

/// Bits of a pid in an entry; the rest of [`LAST_BITS`] is the CPU's.
const PID_BITS: u32 = 8;
/// The pid of thread 0.
const FIRST_PID: u32 = 1024;

/// Balancing's and promotion's state.
pub struct Balance {
    /// What is on; tiering also where hint faults feed hot-page tracking.
    pub(super) modes: Modes,
    /// Whether room is made for promotions by demoting: with `kernel.numa_balancing=2`. Hot-page
    /// tracking alone takes the room that there is; only memtide's own gate asks for more.
    pub(super) makes_room: bool,
    /// `None`: nothing is balanced, or batches of samples do it.
    pub(super) balancer: Option<Box<Balancer>>,
    /// Batches of samples, if they balance.
    pub(super) batches: Option<Box<Batches>>,
    /// What balancing cost, before multiplication by S.
    pub(super) account: Account,
    /// How entries remember touchers and times.
    pub(super) format: CpupidFormat,
    /// Promotion inside hint faults.
    pub(super) gate: Gate,
    /// Hot-page tracking, if on.
    pub(super) pghot: Option<Box<Tracking>>,
    /// Moves that kernel threads have begun.
    pub(super) in_flight: InFlight,
    /// By thread.
    threads: Vec<Thread>,
    /// By space.
    pub(super) spaces: Vec<SpaceState>,
    /// By region: its position among its space's mappings.
    positions: Vec<usize>,
    /// When the spaces' residents are counted next.
    pub(super) recount_ns: u64,
    /// Of the flushes of hint scans.
    pub(super) scan_flushes: Portion,
    /// Of the flushes of batches that kernel threads move.
    pub(super) move_flushes: Portion,
    /// Of the flushes that come after pages were write-protected.
    pub(super) protect_flushes: Portion,
    /// Of the times that a sampler was set for another thread.
    pub(super) switches: Portion,
}

struct Thread {
    task: TaskId,
    runtime_ns: u64,
    sweeps: bool,
}

/// An address space.
pub(super) struct SpaceState {
    pub(super) id: SpaceId,
    /// Its regions by address.
    pub(super) regions: Vec<usize>,
    /// Whether it has but one thread.
    pub(super) alone: bool,
}

/// Charges events whose number is that of the real machine, while costs and counts will be multiplied
/// by S: one of S is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Portion(i64);

impl Portion {
    /// Whether one is to be charged now that `events` (at most `scale`) more have happened.
    pub(super) fn due(&mut self, events: u32, scale: u32) -> bool {
        debug_assert!(events <= scale);
        self.0 += i64::from(events);
        // The one in the middle stands for those before and behind it.
        let due = self.0 * 2 >= i64::from(scale);
        if due {
            self.0 -= i64::from(scale);
        }
        due
    }
}

impl Balance {
    pub(super) fn new(
        spec: &MachineSpec,
        regions: &Regions,
        plan: &Plan,
        configuration: &Configuration,
        scale: u32,
    ) -> Result<Balance, KernelError> {
        let bound = configuration.bound.is_some();
        let fed = |source| {
            let pghot = configuration.pghot.as_ref();
            pghot.is_some_and(|p| p.sources.contains(source))
        };
        let asked = Modes::from_bits(configuration.numa_balancing);
        let modes = match bound {
            true => Modes::default(),
            false => Modes {
                tiering: asked.tiering || fed(Source::HintFault),
                ..asked
            },
        };
        let scale64 = u64::from(scale.max(1));
        let node_of_cpu: Vec<NodeId> = spec
            .nodes
            .iter()
            .flat_map(|n| (0..n.cpus).map(|_| NodeId(n.id)))
            .collect();
        let cpu_bits = LAST_BITS - PID_BITS;
        let format = CpupidFormat::new(cpu_bits, PID_BITS, node_of_cpu.len() as u32)
            .map_err(|error| KernelError::Machine(error.to_string()))?;
        let settings = Settings {
            scan_delay_ms: configuration.scan_delay_ms,
            scan_period_min_ms: configuration.scan_period_min_ms,
            scan_period_max_ms: configuration.scan_period_max_ms,
            scan_size_mb: configuration.scan_size_mb.max(1),
        };
        let huge = regions.iter().any(|r| r.plan.huge);
        let chunk = u64::from(HUGE_PAGES);
        let config = BalancerConfig {
            settings,
            scan_pages: (u64::from(settings.scan_size_mb) * 256 / scale64).max(1),
            chunk_pages: if huge {
                chunk
            } else {
                (chunk / scale64).max(1)
            },
            modes,
            format,
            machine: Machine::new(&spec.topology),
            node_of_cpu,
            pacing: match configuration.samples {
                Some(samples) => Pacing::Samples(samples.settings),
                None => Pacing::Scans,
            },
        };
        let pages = u64::from(regions.slots());
        let batches = match (configuration.samples.map(|samples| samples.acts), bound) {
            (Some(acts @ Acts::Batches { .. }), false) => {
                Some(Box::new(Batches::new(config.clone(), acts, pages, scale)?))
            }
            _ => None,
        };
        let own = modes.any() && batches.is_none();
        let own_gate = |pghot: &Pghot| pghot.gate == PromotionGate::ThresholdFree;
        let mut balance = Balance {
            modes,
            makes_room: !bound
                && (asked.tiering || configuration.pghot.as_ref().is_some_and(own_gate)),
            balancer: own.then(|| Box::new(Balancer::new(config))),
            batches,
            account: Account::default(),
            format,
            gate: Gate::new(
                GateConfig {
                    rate_limit_mbps: configuration.rate_limit_mbps,
                    ..GateConfig::new(configuration.hot_threshold_ms)
                }
                .scaled(scale64),
                spec.nodes
                    .iter()
                    .map(|n| usize::from(n.id) + 1)
                    .max()
                    .unwrap_or(0),
            ),
            pghot: match (&configuration.pghot, bound) {
                (Some(pghot), false) => {
                    let pages = u64::from(regions.slots());
                    Some(Box::new(Tracking::new(
                        spec,
                        pghot,
                        configuration,
                        pages,
                        scale,
                    )?))
                }
                _ => None,
            },
            in_flight: InFlight::default(),
            threads: Vec::new(),
            spaces: Vec::new(),
            positions: vec![0; regions.len()],
            recount_ns: 0,
            scan_flushes: Portion::default(),
            move_flushes: Portion::default(),
            protect_flushes: Portion::default(),
            switches: Portion::default(),
        };
        balance.meet(regions, plan);
        Ok(balance)
    }

    /// What balancing cost, before multiplication by S.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Whether a thread goes over its memory page after page.
    pub(super) fn sweeps(&self, thread: u32) -> bool {
        self.threads.get(thread as usize).is_some_and(|t| t.sweeps)
    }

    /// Whether pages are promoted, by hint faults or by hot-page tracking.
    pub(super) fn promotes(&self) -> bool {
        self.modes.tiering || self.pghot.is_some()
    }

    /// The balancer, out of its place while the rest of the kernel is needed beside it.
    pub(super) fn take(&mut self) -> Option<Box<Balancer>> {
        self.balancer.take()
    }

    /// The task of a thread.
    pub(super) fn task(&self, thread: u32) -> TaskId {
        self.threads[thread as usize].task
    }

    /// The threads' tasks in order.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.threads.iter().map(|t| t.task)
    }

    /// A thread ran.
    pub(super) fn ran(&mut self, thread: u32, ns: u64) {
        self.threads[thread as usize].runtime_ns += ns;
    }

    /// A thread's clock.
    pub(super) fn clock(&self, thread: u32, now_ns: u64) -> Clock {
        Clock {
            now_ns,
            runtime_ns: self.threads[thread as usize].runtime_ns,
        }
    }

    /// A region's position among its space's mappings.
    pub(super) fn position(&self, region: usize) -> usize {
        self.positions[region]
    }

    /// Makes spaces and tasks.
    fn meet(&mut self, regions: &Regions, plan: &Plan) {
        let mut balancer = self.balancer.take();
        let mut batches = self.batches.take();
        let (balancer_of, sampled) = match (&mut balancer, &mut batches) {
            (Some(balancer), _) => (Some(&mut **balancer), None),
            (None, Some(batches)) => (None, Some(&mut batches.sampled)),
            (None, None) => return,
        };
        let mut tasks = Tasks {
            balancer: balancer_of,
            sampled,
        };
        let of_threads = plan.threads.iter().map(|t| t.space);
        let of_regions = plan.regions.iter().map(|r| r.space);
        let spaces = of_threads.chain(of_regions).max().map_or(0, |s| s + 1);
        for space in 0..spaces {
            let own = |&at: &usize| regions.get(at).plan.space == space;
            let mut list: Vec<usize> = (0..regions.len()).filter(own).collect();
            list.sort_by_key(|&at| regions.get(at).plan.start_vpn);
            for (position, &at) in list.iter().enumerate() {
                self.positions[at] = position;
            }
            let mappings = list.iter().map(|&at| mapping(&regions.get(at).plan));
            let id = tasks.add_space(mappings.collect());
            let threads = plan.threads.iter().filter(|t| t.space == space).count();
            self.spaces.push(SpaceState {
                id,
                regions: list,
                alone: threads == 1,
            });
        }
        let mut first = vec![None; self.spaces.len()];
        for (at, thread) in plan.threads.iter().enumerate() {
            let space = usize::from(thread.space);
            let pid = FIRST_PID + at as u32;
            let task = tasks.add_task(self.spaces[space].id, pid, first[space]);
            first[space].get_or_insert(task);
            self.threads.push(Thread {
                task,
                runtime_ns: 0,
                sweeps: thread.pattern == Pattern::Sweep,
            });
        }
        self.balancer = balancer;
        self.batches = batches;
    }
}

/// Whoever keeps the tasks.
struct Tasks<'a> {
    balancer: Option<&'a mut Balancer>,
    sampled: Option<&'a mut Sampled>,
}

impl Tasks<'_> {
    fn add_space(&mut self, mappings: Vec<Mapping>) -> SpaceId {
        match (&mut self.balancer, &mut self.sampled) {
            (Some(balancer), _) => balancer.add_space(mappings, 0),
            (None, Some(sampled)) => sampled.add_space(0),
            (None, None) => SpaceId(0),
        }
    }

    fn add_task(&mut self, space: SpaceId, pid: u32, parent: Option<TaskId>) -> TaskId {
        match (&mut self.balancer, &mut self.sampled) {
            (Some(balancer), _) => balancer.add_task(space, pid, parent),
            (None, Some(sampled)) => sampled.add_task(space, pid, parent),
            (None, None) => TaskId(0),
        }
    }
}

/// The policy that hint faults and scans ask.
pub(super) fn policy_in_force(plan: &RegionPlan) -> &Policy {
    plan.policy_after.as_ref().unwrap_or(&plan.policy)
}

fn mapping(plan: &RegionPlan) -> Mapping {
    let pages = plan.start_vpn..plan.start_vpn + u64::from(plan.pages);
    let traits = Traits {
        on_fault: policy_in_force(plan).on_fault,
        file: plan.kind != Kind::Anonymous,
        writable: plan.writable,
        ..Traits::PLAIN
    };
    Mapping::new(pages, traits)
}
