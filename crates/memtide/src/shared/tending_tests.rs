//! Rounds over processes of which only numbers are known.

use super::*;
use memtide_core::units::{NodeId, PageSize};
use memtide_linux::mover::SharedPages;
use memtide_linux::respread::Spread;

const MANNER: Manner = Manner {
    shares: [20, 4],
    starting: Duration::from_secs(10),
    again: Some(Duration::from_secs(60)),
};

fn options(dry_run: bool) -> Options {
    Options {
        spread: Spread::new([(NodeId(0), 3), (NodeId(1), 1)]).unwrap(),
        shared: SharedPages::Leave,
        dry_run,
        page: PageSize::KIB_4,
    }
}

fn process(pid: u32) -> Process {
    Process {
        pid,
        start_ticks: 5,
    }
}

fn tended<'o>(options: &'o Options, faults: &[(u32, u64)]) -> Vec<Tended<'o>> {
    let one = |&(pid, faults): &(u32, u64)| Tended {
        process: process(pid),
        faults,
        options,
    };
    faults.iter().map(one).collect()
}

/// Moves 8 pages of each process that is not refused, in one go.
#[derive(Default)]
struct Fake {
    looked_at: Vec<u32>,
    refuses: Option<u32>,
}

impl Spreader for Fake {
    fn spread(
        &mut self,
        process: Process,
        _: &Options,
        _: &mut Budget,
        pause: &mut dyn FnMut(Duration, u64) -> bool,
    ) -> Result<Done, RespreadError> {
        self.looked_at.push(process.pid);
        if self.refuses == Some(process.pid) {
            return Err(RespreadError::NotPermitted(process.pid));
        }
        Ok(Done {
            moved: 8,
            moving: Duration::from_millis(1),
            whole: !pause(Duration::from_secs(1), 4),
        })
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn who_took_no_page_faults_is_left_for_a_while() {
    let mut tender = Tender::new(MANNER, 1000);
    let mut fake = Fake::default();
    let mut round = |at, faults: &[(u32, u64)]| {
        fake.looked_at.clear();
        let options = options(false);
        let all = tended(&options, faults);
        let round = tender.round(seconds(at), &all, &mut fake, |_, _, _| false);
        (fake.looked_at.clone(), round.moved, round.quiet)
    };
    assert_eq!(round(0, &[(7, 1), (8, 1)]), (vec![7, 8], 16, false));
    assert_eq!(round(1, &[(7, 1), (8, 2)]), (vec![8], 8, false));
    assert_eq!(round(2, &[(7, 1), (8, 2)]), (vec![], 0, true));
    // Others may have moved pages since.
    assert_eq!(round(60, &[(7, 1), (8, 2)]), (vec![7], 8, true));
    // Somebody else has its number.
    round(61, &[]);
    assert_eq!(round(62, &[(7, 1)]).0, [7]);
}

#[test]
fn who_is_stopped_is_looked_at_again_and_who_is_paused_not_at_all() {
    let mut tender = Tender::new(MANNER, 1000);
    let options = options(false);
    let all = tended(&options, &[(7, 1), (8, 1)]);
    let mut fake = Fake::default();
    // 8 at once, and 7 on the way.
    tender.round(seconds(0), &all, &mut fake, |of, wait, _| {
        of.pid == 8 || wait > Duration::ZERO
    });
    assert_eq!(fake.looked_at, [7]);
    tender.round(seconds(1), &all, &mut fake, |_, _, _| false);
    assert_eq!(fake.looked_at, [7, 7, 8]);
    assert!(
        tender
            .round(seconds(2), &all, &mut fake, |_, _, _| false)
            .quiet
    );
}

#[test]
fn what_has_moved_so_far_is_told_on_the_way() {
    let mut tender = Tender::new(MANNER, 1000);
    let told = |dry_run: bool, tender: &mut Tender| {
        let options = options(dry_run);
        let all = tended(&options, &[(7, 1), (8, 1)]);
        let mut told = Vec::new();
        tender.round(seconds(0), &all, &mut Fake::default(), |_, _, moved| {
            told.push(moved);
            false
        });
        told
    };
    // Before 7 and when half of it has moved, and the same of 8.
    assert_eq!(told(false, &mut tender), [0, 4, 8, 12]);
    assert_eq!(told(true, &mut Tender::new(MANNER, 1000)), [0, 0, 8, 8]);
}

#[test]
fn what_a_dry_run_would_move_is_counted_once() {
    let mut tender = Tender::new(MANNER, 1000);
    let mut moved = |faults| {
        let options = options(true);
        let all = tended(&options, &[(7, faults)]);
        let round = tender.round(seconds(0), &all, &mut Fake::default(), |_, _, _| false);
        round.moved
    };
    assert_eq!((moved(1), moved(2)), (8, 0));
}

#[test]
fn who_cannot_be_spread_keeps_nobody_else() {
    let mut tender = Tender::new(MANNER, 1000);
    let mut fake = Fake {
        refuses: Some(7),
        ..Fake::default()
    };
    let options = options(false);
    let all = tended(&options, &[(7, 1), (8, 1)]);
    let round = tender.round(seconds(0), &all, &mut fake, |_, _, _| false);
    assert_eq!((round.moved, tender.refused()), (8, 1));
    let [(of, why)] = &round.failed[..] else {
        panic!("{:?}", round.failed);
    };
    assert_eq!(*of, process(7));
    assert!(why.to_string().starts_with("process 7: not permitted"));
    tender.round(seconds(1), &all[1..], &mut fake, |_, _, _| false);
    assert_eq!(tender.refused(), 0);
}

/// 100 ms of looking allow another round after 2 s in vain, and after 400 ms where pages moved.
#[test]
fn looking_takes_its_part_of_the_time() {
    let mut tender = Tender::new(MANNER, 1000);
    let took = Duration::from_millis(150);
    let round = |moved, quiet| Round {
        quiet,
        moving: Duration::from_millis(50),
        moved,
        failed: Vec::new(),
    };
    let ms = Duration::from_millis;
    assert_eq!(tender.wait(&round(0, false), took, seconds(20)), ms(2000));
    assert_eq!(tender.wait(&round(9, false), took, seconds(20)), ms(400));
    assert_eq!(tender.wait(&round(0, false), took, seconds(9)), ms(400));
    // Nothing to look at: ever more rarely.
    let nothing = Round {
        quiet: true,
        ..Round::default()
    };
    let mut waits = || tender.wait(&nothing, Duration::ZERO, seconds(20));
    assert_eq!([waits(), waits()], [ms(800), ms(1600)]);
    assert_eq!([waits(), waits(), waits()], [ms(3200), ms(5000), ms(5000)]);
}
