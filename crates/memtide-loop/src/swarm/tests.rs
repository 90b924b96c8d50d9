//! A bounded number of seeds, and the mistakes that they have to find.

use super::*;

/// Seeds of CI's minute.
const SEEDS: u64 = 2_000;

/// Seeds as many threads as there are CPUs take in turn.
fn all<T: Send>(seeds: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicU64::new(0);
    let done = std::sync::Mutex::new(Vec::new());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let ran = run(seed);
                    done.lock().unwrap().push(ran);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

#[test]
fn promises_are_kept_whatever_goes_wrong() {
    let mut coverage = Coverage::default();
    let mut failures = Vec::new();
    for ran in all(SEEDS, |seed| run(seed, None, None)) {
        match ran {
            Ok(met) => coverage.add(&met),
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(failure) = failures.into_iter().min_by_key(|failure| failure.seed) {
        panic!("{}", smaller(failure, None));
    }
    println!("{coverage}");
    assert_eq!(coverage.empty(), [], "{coverage}");
}

#[test]
fn deliberate_mistakes_are_found_within_a_thousand_seeds() {
    let found = all(Mistake::ALL.len() as u64, |n| {
        let mistake = Mistake::ALL[n as usize];
        let found = (0..1000).find(|seed| run(*seed, None, Some(mistake)).is_err());
        (mistake, found)
    });
    for (mistake, seed) in &found {
        println!("{mistake:?}: {seed:?}");
    }
    assert!(found.len() >= 12);
    assert!(found.iter().all(|(_, seed)| seed.is_some()), "{found:?}");
}

/// It is the promise of idle pages that finds this one, and not that hot pages stay.
#[test]
fn what_left_while_in_use_is_found() {
    let mistake = Some(Mistake::ForgetUse);
    let found = (0..100).find_map(|seed| run(seed, None, mistake).err());
    let violations = found.expect("found within a hundred").violations;
    let left = |text: &String| text.contains("left for idleness at");
    assert!(violations.iter().any(left), "{violations:?}");
}

#[test]
fn a_failing_seed_is_made_smaller() {
    let mistake = Some(Mistake::IgnorePolicy);
    let failure = (0..1000).find_map(|seed| run(seed, None, mistake).err());
    let failure = failure.expect("found within a thousand");
    let items = Plan::draw(failure.seed).items();
    let least = smaller(failure, mistake);
    let only = least.only.clone().expect("something was left out");
    assert!(only.len() < items);
    // What is printed repeats it, and nothing more can be left out.
    let again = run(least.seed, Some(&only), mistake).unwrap_err();
    assert_eq!(again.violations, least.violations);
    for item in &only {
        let mut fewer = only.clone();
        fewer.remove(item);
        assert!(run(least.seed, Some(&fewer), mistake).is_ok());
    }
    let numbers: Vec<String> = only.iter().map(usize::to_string).collect();
    let command = format!(
        "cargo xtask swarm --first {} --seeds 1 --only {}",
        least.seed,
        numbers.join(",")
    );
    assert!(least.to_string().starts_with(&command), "{least}");
}

/// A hot page of slow memory commutes, and is on fast memory when it is asked whether it is home.
#[test]
fn who_visits_fast_memory_is_not_home() {
    let plans = (0..1000).map(Plan::draw);
    let fits = |plan: &Plan| !plan.balance && plan.classes.is_empty();
    let with_hot = plans.filter(fits).map(|plan| {
        let world = SwarmWorld::new(&plan, None);
        let (there, _) = at_home(&world, &plan, &Visitors::new());
        (plan, world, there)
    });
    let mut with_hot = with_hot.filter(|(_, _, there)| !there.is_empty());
    let (plan, world, there) = with_hot.next().expect("one of many");
    let mut nodes = world.machine.nodes.iter().rev();
    let slow = nodes.find(|node| !node.top).expect("slow memory").id;
    let visitor = *there.first().expect("not empty");
    let (without, away) = at_home(&world, &plan, &[(visitor, slow)].into());
    assert_eq!(without.len() + 1, there.len());
    assert!(away.contains(&visitor));
}
