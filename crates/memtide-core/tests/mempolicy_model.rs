//! Random calls against a trivially correct model: a policy and a node for
//! each page, in maps; sets of node numbers; every rule written out.
//!
//! The model knows no mappings. Where both a hole and a wrong page are in a
//! strict call's range, either error is right.

use memtide_core::mempolicy::{
    Errno, Kernel, MODE_FLAGS, Machine, MachineInput, NUMA_BALANCING, Process, RELATIVE_NODES,
    RawMask, STATIC_NODES, WeightFiles,
};
use memtide_core::nodemask::NodeMask;
use memtide_core::units::NodeId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Nodes = BTreeSet<u16>;

/// Node 1 has no memory; nodes 0, 1 and 3 have CPUs.
const MEMORY: [u16; 4] = [0, 2, 3, 4];
const CPUS: [u16; 3] = [0, 1, 3];
/// Just below the border of a page table.
const BASE: u64 = (5 << 27) - 11;
const PAGES: u64 = 30;

#[derive(Clone, Debug, PartialEq)]
struct Policy {
    mode: u32,
    flags: u32,
    nodes: Nodes,
    remembered: Nodes,
    home: Option<u16>,
}

struct Model {
    kernel: Kernel,
    allowed: Nodes,
    here: u16,
    weights: [u64; 5],
    task: Option<Policy>,
    /// Each mapped page's own policy.
    mapped: BTreeMap<u64, Option<Policy>>,
    placed: BTreeMap<u64, u16>,
}

impl Model {
    fn keeps(&self, flags: u32) -> bool {
        flags & (STATIC_NODES | RELATIVE_NODES) != 0
            || flags & NUMA_BALANCING != 0 && self.kernel.balancing_keeps_user_mask
    }

    fn make(&self, word: u32, mask: &Nodes) -> Result<Option<Policy>, Errno> {
        let (mut mode, flags) = check(word)?;
        let placed = flags & (STATIC_NODES | RELATIVE_NODES);
        if mode == 1 && mask.is_empty() {
            mode = 4;
        }
        let bad = match mode {
            0 => !mask.is_empty(),
            4 => !mask.is_empty() || placed != 0,
            _ => mask.is_empty(),
        };
        if bad {
            return Err(Errno::EINVAL);
        }
        if mode == 0 {
            return Ok(None);
        }
        let mut nodes: Nodes = match placed {
            RELATIVE_NODES => relative(mask, &self.allowed),
            _ => mask & &self.allowed,
        };
        if mode == 1 {
            nodes = nodes.into_iter().take(1).collect();
        }
        if mode != 4 && nodes.is_empty() {
            return Err(Errno::EINVAL);
        }
        let remembered = match self.keeps(flags) {
            true => mask.clone(),
            false => self.allowed.clone(),
        };
        Ok(Some(Policy {
            mode,
            flags,
            nodes,
            remembered,
            home: None,
        }))
    }

    fn rebind(&self, policy: &mut Policy, new: &Nodes) {
        if policy.mode == 4 || !self.keeps(policy.flags) && policy.remembered == *new {
            return;
        }
        let old = policy.remembered.clone();
        if policy.mode == 1 || policy.mode == 5 {
            policy.remembered = new.clone();
            return;
        }
        policy.nodes = if policy.flags & STATIC_NODES != 0 {
            &old & new
        } else if policy.flags & RELATIVE_NODES != 0 {
            relative(&old, new)
        } else {
            policy.remembered = new.clone();
            policy.nodes.iter().map(|n| moved(*n, &old, new)).collect()
        };
        if policy.nodes.is_empty() {
            policy.nodes = new.clone();
        }
    }

    /// All distances are the same: from node n the order is n, then the nodes
    /// above it, then those below it; the machine's own tests check ties.
    fn land(&self, machine: &Machine, from: u16, within: &Nodes) -> Option<u16> {
        let order = machine.fallback(NodeId(from)).iter();
        order.map(|n| n.0).find(|n| within.contains(n))
    }

    fn node(&self, machine: &Machine, page: u64, policy: &Option<Policy>) -> u16 {
        let policy = policy.as_ref().or(self.task.as_ref());
        let Some(p) = policy else {
            return self.land(machine, self.here, &self.allowed).unwrap();
        };
        let nodes: Vec<u16> = p.nodes.iter().copied().collect();
        let wanted = match p.mode {
            1 => nodes[0],
            2 | 5 => p.home.unwrap_or(self.here),
            3 => nodes[(page % nodes.len() as u64) as usize],
            6 => {
                let share = |n: &u16| vec![*n; self.weights[usize::from(*n)] as usize];
                let round: Vec<u16> = nodes.iter().flat_map(share).collect();
                round[(page % round.len() as u64) as usize]
            }
            _ => self.here,
        };
        let within = &p.nodes & &self.allowed;
        let bound = (p.mode == 2 || p.mode == 5).then_some(&within);
        bound
            .and_then(|w| self.land(machine, wanted, w))
            .or_else(|| self.land(machine, wanted, &self.allowed))
            .unwrap()
    }

    fn touch(&mut self, machine: &Machine, range: std::ops::Range<u64>) -> Result<(), Errno> {
        for page in range {
            let policy = self.mapped.get(&page).ok_or(Errno::EFAULT)?;
            if !self.placed.contains_key(&page) {
                let node = self.node(machine, page, policy);
                self.placed.insert(page, node);
            }
        }
        Ok(())
    }

    fn mbind(
        &mut self,
        machine: &Machine,
        range: std::ops::Range<u64>,
        word: u32,
        mask: &Nodes,
        flags: u32,
    ) -> Vec<Result<(), Errno>> {
        // Nothing to bind: only the word itself is checked before that.
        if range.is_empty() {
            return vec![check(word).map(|_| ())];
        }
        let policy = match self.make(word, mask) {
            Ok(policy) => policy,
            Err(error) => return vec![Err(error)],
        };
        let mapped: Vec<u64> = range
            .clone()
            .filter(|p| self.mapped.contains_key(p))
            .collect();
        let hole = match policy {
            Some(_) => mapped.len() as u64 != range.end - range.start,
            None => mapped.is_empty(),
        };
        let wrong = |p: &&u64| self.placed.get(p).is_some_and(|n| !mask.contains(n));
        let wrong: Vec<u64> = mapped.iter().filter(wrong).copied().collect();
        let strict = flags & 7 == 1 && policy.is_some() && !wrong.is_empty();
        let errors = [(hole, Errno::EFAULT), (strict, Errno::EIO)];
        let errors: Vec<_> = errors
            .into_iter()
            .filter(|e| e.0)
            .map(|e| Err(e.1))
            .collect();
        if !errors.is_empty() {
            return errors;
        }
        for page in mapped {
            self.mapped.insert(page, policy.clone());
        }
        if flags & 6 != 0 {
            for page in wrong {
                let node = self.node(machine, page, &policy);
                self.placed.insert(page, node);
            }
        }
        vec![Ok(())]
    }

    fn home(&mut self, range: std::ops::Range<u64>, node: u16) -> Result<(), Errno> {
        let mut result = Err(Errno::ENOENT);
        for page in range.clone() {
            match self.mapped.get_mut(&page) {
                Some(Some(p)) if p.mode == 2 || p.mode == 5 => p.home = Some(node),
                Some(Some(_)) => return Err(Errno::EOPNOTSUPP),
                _ => continue,
            }
            result = Ok(());
        }
        if range.is_empty() { Ok(()) } else { result }
    }

    fn cpuset(&mut self, nodes: &Nodes) {
        let mut new = nodes & &Nodes::from(MEMORY);
        if new.is_empty() {
            new = Nodes::from(MEMORY);
        }
        let old = self.allowed.clone();
        if new == old {
            return;
        }
        let mut task = self.task.take();
        let mut mapped = std::mem::take(&mut self.mapped);
        let own = mapped.values_mut().filter_map(Option::as_mut);
        own.chain(task.as_mut()).for_each(|p| self.rebind(p, &new));
        (self.task, self.mapped) = (task, mapped);
        // At most four nodes, so all at once: no page moves twice if the map is
        // one to one, and with sets of different size no target is a source.
        for node in self.placed.values_mut() {
            if old.len() == new.len() || !new.contains(node) {
                *node = moved(*node, &old, &new);
            }
        }
        self.allowed = new;
    }
}

fn check(word: u32) -> Result<(u32, u32), Errno> {
    let (mode, flags) = (word & !MODE_FLAGS, word & MODE_FLAGS);
    let both = flags & STATIC_NODES != 0 && flags & RELATIVE_NODES != 0;
    let unbalanced = flags & NUMA_BALANCING != 0 && mode != 2 && mode != 5;
    match mode > 6 || both || unbalanced {
        true => Err(Errno::EINVAL),
        false => Ok((mode, flags)),
    }
}

fn relative(mask: &Nodes, allowed: &Nodes) -> Nodes {
    let allowed: Vec<u16> = allowed.iter().copied().collect();
    let place = |n: &u16| allowed[usize::from(*n) % allowed.len()];
    mask.iter().map(place).collect()
}

fn moved(node: u16, old: &Nodes, new: &Nodes) -> u16 {
    let new: Vec<u16> = new.iter().copied().collect();
    let position = old.iter().position(|&n| n == node);
    position.map_or(node, |p| new[p % new.len()])
}

#[derive(Clone, Debug)]
enum Call {
    Mmap(u64, u64),
    Munmap(u64, u64),
    Touch(u64, u64),
    RunOn(u16),
    Cpuset(Nodes),
    Weight(u16, u8),
    Set(u32, Nodes),
    Mbind(u64, u64, u32, Nodes, u32),
    Home(u64, u64, u16),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let range = || (0..PAGES, 0..PAGES).prop_map(|(a, n)| (a, n.min(PAGES - a)));
    let nodes = || prop::collection::btree_set(0u16..7, 0..5);
    let flags = prop::sample::select(vec![
        0,
        0,
        0,
        STATIC_NODES,
        RELATIVE_NODES,
        NUMA_BALANCING,
        NUMA_BALANCING | STATIC_NODES,
        MODE_FLAGS,
    ]);
    let word = move || (0u32..8, flags.clone()).prop_map(|(mode, flags)| mode | flags);
    let call = prop_oneof![
        1 => range().prop_map(|(a, n)| Call::Mmap(a, n)),
        1 => range().prop_map(|(a, n)| Call::Munmap(a, n.min(4))),
        4 => range().prop_map(|(a, n)| Call::Touch(a, n)),
        1 => prop::sample::select(&CPUS[..]).prop_map(Call::RunOn),
        1 => nodes().prop_map(Call::Cpuset),
        1 => (0u16..5, 0u8..4).prop_map(|(n, w)| Call::Weight(n, w)),
        2 => (word(), nodes()).prop_map(|(w, n)| Call::Set(w, n)),
        6 => (range(), word(), nodes(), 0u32..8)
            .prop_map(|((a, n), w, m, f)| Call::Mbind(a, n, w, m, f)),
        2 => (range(), 0u16..5).prop_map(|((a, n), h)| Call::Home(a, n, h)),
    ];
    prop::collection::vec(call, 1..60)
}

fn set(nodes: &Nodes) -> NodeMask {
    nodes.iter().map(|&n| NodeId(n)).collect()
}

/// What the process did and what it might have done.
fn step(
    process: &mut Process,
    model: &mut Model,
    call: &Call,
) -> (Result<(), Errno>, Vec<Result<(), Errno>>) {
    let machine = process.machine().clone();
    let pages = |a: u64, n: u64| BASE + a..BASE + a + n;
    let bytes = |a: u64, n: u64| ((BASE + a) << 12, n << 12);
    match call {
        &Call::Mmap(a, n) => {
            let (start, len) = bytes(a, n);
            let taken = pages(a, n).any(|p| model.mapped.contains_key(&p));
            let want = match (n, taken) {
                (0, _) => Err(Errno::EINVAL),
                (_, true) => Err(Errno::EEXIST),
                _ => Ok(()),
            };
            if want.is_ok() {
                model.mapped.extend(pages(a, n).map(|p| (p, None)));
            }
            (process.mmap(start, len), vec![want])
        }
        &Call::Munmap(a, n) => {
            let (start, len) = bytes(a, n);
            model.mapped.retain(|p, _| !pages(a, n).contains(p));
            model.placed.retain(|p, _| !pages(a, n).contains(p));
            let want = if n == 0 { Err(Errno::EINVAL) } else { Ok(()) };
            (process.munmap(start, len), vec![want])
        }
        &Call::Touch(a, n) => {
            let want = model.touch(&machine, pages(a, n));
            (process.touch(BASE + a, n), vec![want])
        }
        &Call::RunOn(node) => {
            model.here = node;
            (process.run_on(NodeId(node)), vec![Ok(())])
        }
        Call::Cpuset(nodes) => {
            process.set_cpuset(&set(nodes));
            model.cpuset(nodes);
            (Ok(()), vec![Ok(())])
        }
        &Call::Weight(node, weight) => {
            let text = weight.to_string();
            let got = process.files().write_node(NodeId(node), text.as_bytes());
            if got.is_ok() {
                model.weights[usize::from(node)] = u64::from(weight.max(1));
            }
            (got, vec![got])
        }
        Call::Set(word, nodes) => {
            let made = model.make(*word, nodes);
            let want = made.map(|policy| model.task = policy);
            let mask = RawMask::of(&set(nodes));
            (process.set_mempolicy(*word, &mask, 64), vec![want])
        }
        Call::Mbind(a, n, word, nodes, flags) => {
            let (start, len) = bytes(*a, *n);
            let want = model.mbind(&machine, pages(*a, *n), *word, nodes, *flags);
            let mask = RawMask::of(&set(nodes));
            let got = process.mbind(start, len, (*word).into(), &mask, 64, *flags);
            (got, want)
        }
        &Call::Home(a, n, node) => {
            let (start, len) = bytes(a, n);
            let want = model.home(pages(a, n), node);
            let got = process.set_mempolicy_home_node(start, len, node.into(), 0);
            (got, vec![want])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn calls_agree_with_the_trivial_model(calls in calls(), newer: bool) {
        let kernel = if newer { Kernel::WITH_AUTO } else { Kernel::BEFORE_AUTO };
        let memory = set(&Nodes::from(MEMORY));
        let input = MachineInput::new(memory, set(&Nodes::from(CPUS)), kernel);
        let machine = Arc::new(Machine::new(input).unwrap());
        let files = WeightFiles::new(&machine, None);
        let mut process = Process::new(machine.clone(), &memory, files);
        let mut model = Model {
            kernel,
            allowed: Nodes::from(MEMORY),
            here: 0,
            weights: [1; 5],
            task: None,
            mapped: BTreeMap::new(),
            placed: BTreeMap::new(),
        };
        process.mmap(BASE << 12, 20 << 12).unwrap();
        model.mapped.extend((BASE..BASE + 20).map(|p| (p, None)));
        for call in &calls {
            let (got, want) = step(&mut process, &mut model, call);
            prop_assert!(want.contains(&got), "{:?}: {:?}, not {:?}", call, got, want);
            for page in BASE..BASE + PAGES {
                let node = process.node_of(page).map(|n| n.0);
                prop_assert_eq!(node, model.placed.get(&page).copied(), "{} after {:?}", page - BASE, call);
                let next = process.place_of(page).map(|why| why.node.0);
                let want = model.mapped.get(&page).map(|p| model.node(&machine, page, p));
                prop_assert_eq!(next, want, "{} would, after {:?}", page - BASE, call);
            }
        }
    }
}
