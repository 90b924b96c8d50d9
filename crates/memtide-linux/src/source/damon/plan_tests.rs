#![allow(clippy::single_range_in_vec_init)]
use super::*;
use proptest::prelude::*;

fn target(pid: u32, ranges: &[Range<u64>]) -> Target {
    Target {
        pid,
        ranges: ranges
            .iter()
            .map(|r| r.start * PAGE..r.end * PAGE)
            .collect(),
    }
}

fn byte_ranges(pages: &[Range<u64>]) -> Vec<Range<u64>> {
    pages.iter().map(|r| r.start * PAGE..r.end * PAGE).collect()
}

#[test]
fn the_three_areas_lie_around_the_two_largest_gaps() {
    // gaps: 10 (5..15), 1 (20..21), 70 (30..100), 3 (101..104)
    let mappings = [0..5, 15..20, 21..30, 100..101, 104..110];
    assert_eq!(three_areas(&mappings), Some([0..5, 15..30, 100..110]));
    // touching mappings leave no gap between them
    assert_eq!(three_areas(&[0..5, 5..8, 20..30]), None);
    assert_eq!(three_areas(&[]), None);
}

#[test]
fn a_look_has_as_many_regions_as_pages() {
    let targets = [target(1, &[10..14, 20..22]), target(2, &[1..4])];
    let plan = look(
        &targets,
        100_000,
        &[LookBy::KernelSplits; 2],
        &[],
        LookLimits::default(),
    )
    .unwrap();
    // 4 + 2 + 3 pages; the limit on a merged region is 9 pages / 9 = one page
    assert_eq!((plan.regions, plan.config.min_regions), (9, 9));
    assert_eq!(plan.config.max_regions, 9 + 1 + 64);
    assert_eq!(
        plan.config.targets[0].regions,
        byte_ranges(&[10..14, 20..22])
    );
    assert_eq!(
        plan.marker,
        Marker {
            target: 1,
            end: 4 * PAGE,
            fewest: 3,
            most: 3
        }
    );
    assert_eq!(plan.wanted, None);

    let single = look(
        &targets,
        100_000,
        &[LookBy::SinglePages; 2],
        &[],
        LookLimits::default(),
    )
    .unwrap();
    assert_eq!(
        single.config.targets[1].regions,
        byte_ranges(&[1..2, 2..3, 3..4])
    );
    assert_eq!(single.marker, plan.marker);
}

#[test]
fn a_look_at_the_whole_span_remembers_what_was_wanted() {
    let targets = [target(1, &[12..14, 10..12])];
    let areas = [Some([0..PAGE, 8 * PAGE..20 * PAGE, 90 * PAGE..92 * PAGE])];
    let plan = look(
        &targets,
        100_000,
        &[LookBy::WholeSpan],
        &areas,
        LookLimits::default(),
    )
    .unwrap();
    // 1 + 12 + 2 pages, of which four are wanted, joined to one range
    assert_eq!(plan.regions, 15);
    assert!(plan.config.targets[0].regions.is_empty());
    assert_eq!(plan.config.operations, Operations::Vaddr);
    assert_eq!(plan.wanted, Some(vec![byte_ranges(&[10..14])]));
    // Twice the 15 pages and 65,536 more: the areas may grow by that much before
    // the kernel looks.
    assert_eq!(plan.config.min_regions, 30 + 65_536);
    let marker = Marker {
        target: 0,
        end: 92 * PAGE,
        fewest: 4,
        most: 65_566,
    };
    assert_eq!(plan.marker, marker);
}

#[test]
fn the_ways_can_be_mixed_in_one_look() {
    let targets = [target(1, &[10..14]), target(2, &[3..4, 7..8])];
    let three = [0..PAGE, 8 * PAGE..20 * PAGE, 90 * PAGE..92 * PAGE];
    let areas = [Some(three), None];
    let ways = [LookBy::WholeSpan, LookBy::SinglePages];
    let plan = look(&targets, 100_000, &ways, &areas, LookLimits::default()).unwrap();
    // 15 pages of the span and 2 single ones.
    assert_eq!(plan.regions, 17);
    assert_eq!(plan.config.operations, Operations::Vaddr);
    assert!(plan.config.targets[0].regions.is_empty());
    assert_eq!(plan.config.targets[1].regions, byte_ranges(&[3..4, 7..8]));
    // The last target has just the regions that it was given.
    assert_eq!((plan.marker.fewest, plan.marker.most), (2, 2));
    // A span that nobody knows is no plan.
    let error = look(&targets, 1, &ways, &[None, None], LookLimits::default());
    assert_eq!(error, Err(PlanError::NoMappings { target: 0, pid: 1 }));
}

#[test]
fn each_target_is_looked_at_in_the_way_that_costs_least() {
    use LookBy::{SinglePages, WholeSpan};
    let limits = LookLimits {
        pages: 10_000,
        holes: 90_000,
        single_pages: 1_000,
    };
    let one = |wanted, span| choose(&[(wanted, span)], limits).map(|ways| ways[0]);
    // Up to seven pages of hole for a wanted one.
    assert_eq!(one(500, Some(4_000)), Some(WholeSpan));
    assert_eq!(one(500, Some(9_000)), Some(SinglePages));
    // Too many to be named one by one.
    assert_eq!(one(5_000, Some(90_000)), Some(WholeSpan));
    assert_eq!(one(500, None), Some(SinglePages));
    assert_eq!(one(5_000, Some(200_000)), None);
    assert_eq!(one(5_000, None), None);
    assert_eq!(one(10_001, Some(10_001)), None);
    // Few pages of a wide process do not spoil the look at another.
    assert_eq!(
        choose(&[(5_000, Some(90_000)), (300, Some(900_000))], limits),
        Some(vec![WholeSpan, SinglePages])
    );
    // The limits hold for all targets together: 600 + 600 > 1_000.
    assert_eq!(choose(&[(600, None), (600, None)], limits), None);
}

#[test]
fn what_cannot_be_planned_is_refused_by_name() {
    let plan = |targets: &[Target]| {
        look(
            targets,
            1,
            &vec![LookBy::KernelSplits; targets.len()],
            &[],
            LookLimits {
                pages: 100,
                holes: 0,
                single_pages: 1,
            },
        )
    };
    assert_eq!(plan(&[]), Err(PlanError::NoTargets));
    assert_eq!(
        plan(&[target(7, &[])]),
        Err(PlanError::Empty { target: 0, pid: 7 })
    );
    let odd = Target {
        pid: 1,
        ranges: vec![PAGE..PAGE + 1],
    };
    assert!(matches!(plan(&[odd]), Err(PlanError::BadRange { .. })));
    let twice = target(1, &[0..5, 4..6]);
    assert_eq!(
        plan(&[twice]),
        Err(PlanError::Overlap {
            target: 0,
            at: 4 * PAGE
        })
    );
    assert_eq!(
        plan(&[target(1, &[0..101])]),
        Err(PlanError::TooMany {
            pages: 101,
            limit: 100
        })
    );
    assert_eq!(watch(&[], 1, 2), Err(PlanError::NoTargets));
}

#[test]
fn touching_regions_go_to_two_targets_of_the_same_process() {
    let targets = [target(5, &[0..1, 1..2, 2..3, 9..10]), target(6, &[4..5])];
    let plan = watch(&targets, 5_000, 100_000).unwrap();
    let dealt: Vec<_> = plan
        .config
        .targets
        .iter()
        .map(|t| (t.pid, t.regions.clone()))
        .collect();
    assert_eq!(
        dealt,
        [
            (5, byte_ranges(&[0..1, 2..3, 9..10])),
            (5, byte_ranges(&[1..2])),
            (6, byte_ranges(&[4..5])),
        ]
    );
    assert_eq!(plan.owners, [0, 0, 1]);
    assert_eq!((plan.config.min_regions, plan.config.max_regions), (3, 5));
    assert_eq!(
        plan.marker,
        Marker {
            target: 2,
            end: 5 * PAGE,
            fewest: 1,
            most: 1
        }
    );
}

#[test]
fn a_watched_region_larger_than_a_third_is_cut() {
    // 10 pages: a third is 3 pages, so 9 = 3 + 3 + 3, dealt to two targets
    let plan = watch(&[target(5, &[0..9, 20..21])], 5_000, 100_000).unwrap();
    assert_eq!(
        plan.config.targets[0].regions,
        byte_ranges(&[0..3, 6..9, 20..21])
    );
    assert_eq!(plan.config.targets[1].regions, byte_ranges(&[3..6]));
    // one page alone stays one page
    let plan = watch(&[target(5, &[7..8])], 5_000, 100_000).unwrap();
    assert_eq!(plan.regions, 1);
    assert_eq!(plan.config.max_regions, 3);
}

#[test]
fn pieces_are_cut_by_the_kernel_and_come_out_even() {
    // 1000 + 700 pages in pieces of 512: 2048 with 348 more at the end, so the
    // kernel's limit is 2048 / 4 pages. 2 pieces and 3 pieces.
    let plan = pieces(&[target(5, &[0..1000]), target(6, &[4000..4700])], 512, 9).unwrap();
    let regions: Vec<_> = plan
        .config
        .targets
        .iter()
        .map(|t| t.regions.clone())
        .collect();
    assert_eq!(
        regions,
        [byte_ranges(&[0..1000]), byte_ranges(&[4000..5048])]
    );
    assert_eq!((plan.config.min_regions, plan.config.max_regions), (4, 5));
    assert_eq!((plan.marker.target, plan.marker.end), (1, 5048 * PAGE));
    assert_eq!((plan.marker.fewest, plan.marker.most), (3, 3));
    assert_eq!(plan.largest, Some(512 * PAGE));
    // Touching ranges go to two targets: what is left of one must not merge with
    // the other.
    let plan = pieces(&[target(5, &[0..100, 100..2000])], 512, 9).unwrap();
    assert_eq!(plan.owners, [0, 0]);
    // Two pieces are fewer than the kernel's fewest regions.
    let few = pieces(&[target(5, &[0..1024])], 512, 9).unwrap();
    assert_eq!(few, watch(&[target(5, &[0..1024])], 9, 9).unwrap());
}

proptest! {
    #[test]
    fn watched_regions_cover_what_was_given_and_never_touch(
        starts in proptest::collection::btree_set(0u64..200, 1..40),
    ) {
        let ranges: Vec<Range<u64>> = starts.iter().map(|&p| p..p + 1).collect();
        let plan = watch(&[target(1, &ranges)], 1, 2).unwrap();
        let mut all = Vec::new();
        for kernel in &plan.config.targets {
            for pair in kernel.regions.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            all.extend(kernel.regions.clone());
        }
        all.sort_by_key(|range| range.start);
        prop_assert_eq!(all, byte_ranges(&ranges));
    }
}
