use super::*;
use crate::hotness::Layout;

fn rules(threshold: u32, window_ms: u32) -> Rules {
    Rules {
        threshold,
        window_ms,
        reorder_ms: 0,
    }
}

fn count<F: Format>(times: &[u64], rules: &Rules) -> u32 {
    times
        .iter()
        .fold(0, |w, &t| accessed::<F>(w, None, Millis(t), rules))
}

#[test]
fn the_fields_are_where_the_layout_says() {
    // Compact: frequency 2, bucket 700 / 128 = 5, ready.
    let word = count::<Compact>(&[690, 700], &rules(2, 3000));
    assert_eq!(word, 1 << 7 | 5 << 2 | 2);
    // Precise: node 5, frequency 2, time 700, ready.
    let once = accessed::<Precise>(0, Some(NodeId(9)), Millis(690), &rules(2, 5000));
    let word = accessed::<Precise>(once, Some(NodeId(5)), Millis(700), &rules(2, 5000));
    assert_eq!(word, 1 << 31 | 1 << 27 | 700 << 13 | 2 << 10 | 5);
}

#[test]
fn an_age_of_exactly_the_window_still_counts() {
    let precise = rules(2, 5000);
    assert_eq!(
        frequency::<Precise>(count::<Precise>(&[1000, 6000], &precise)),
        2
    );
    assert_eq!(
        frequency::<Precise>(count::<Precise>(&[1000, 6001], &precise)),
        1
    );
    // Compact counts ages in buckets: the window of 3000 ms ends between 23
    // buckets, 2944 ms, and 24, 3072 ms. From bucket 0 (0-127) that is 3071 ms
    // at most and 2945 at least.
    let compact = rules(2, 3000);
    assert_eq!(
        frequency::<Compact>(count::<Compact>(&[0, 3071], &compact)),
        2
    );
    assert_eq!(
        frequency::<Compact>(count::<Compact>(&[0, 3072], &compact)),
        1
    );
    assert_eq!(
        frequency::<Compact>(count::<Compact>(&[127, 3071], &compact)),
        2
    );
}

#[test]
fn the_time_wraps_at_its_fourteen_or_five_bits() {
    // 14 bits: from 16380 to 16390 the field goes from 16380 to 6, 10 ms apart.
    let precise = rules(2, 5000);
    let word = count::<Precise>(&[16_380], &precise);
    assert_eq!(age_ms::<Precise>(word, Millis(16_390)), 10);
    // A whole range later the age is 0 again: what the window's limit is for.
    assert_eq!(age_ms::<Precise>(word, Millis(16_380 + 16_384)), 0);
    assert_eq!(age_ms::<Precise>(word, Millis(16_380 + 16_383)), 16_383);
    // 5 bits of 128 ms: bucket 31 starts at 3968, bucket 0 again at 4096.
    let word = count::<Compact>(&[4000], &rules(2, 3000));
    assert_eq!(age_ms::<Compact>(word, Millis(4100)), 128);
    assert_eq!(age_ms::<Compact>(word, Millis(4000 + 4096)), 0);
    // The clock's upper bits do not matter, not even where 32 bits end.
    let late = (1u64 << 39) - 50;
    let word = count::<Compact>(&[late], &rules(2, 3000));
    assert_eq!(age_ms::<Compact>(word, Millis(late + 128)), 128);
    let word = count::<Precise>(&[(1 << 32) - 5], &precise);
    assert_eq!(age_ms::<Precise>(word, Millis((1 << 32) + 5)), 10);
}

#[test]
fn the_count_stays_at_three_or_seven() {
    let times: Vec<u64> = (0..20).collect();
    assert_eq!(
        frequency::<Compact>(count::<Compact>(&times, &rules(3, 3000))),
        3
    );
    assert_eq!(
        frequency::<Precise>(count::<Precise>(&times, &rules(7, 5000))),
        7
    );
    assert!(is_ready::<Compact>(count::<Compact>(
        &times[..3],
        &rules(3, 3000)
    )));
    assert!(!is_ready::<Precise>(count::<Precise>(
        &times[..6],
        &rules(7, 5000)
    )));
    assert!(is_ready::<Precise>(count::<Precise>(
        &times[..7],
        &rules(7, 5000)
    )));
}

#[test]
fn the_threshold_is_reached_and_not_exceeded() {
    // The posted v3 tested "more than 2" and so needed three accesses.
    assert!(is_ready::<Precise>(count::<Precise>(
        &[1, 2],
        &rules(2, 5000)
    )));
    assert!(is_ready::<Compact>(count::<Compact>(&[1], &rules(1, 3000))));
}

#[test]
fn below_the_threshold_precise_drops_ready_and_compact_keeps_it() {
    let word = count::<Precise>(&[1, 2, 6000], &rules(2, 5000));
    assert!(!is_ready::<Precise>(word));
    let word = count::<Compact>(&[1, 2, 3900], &rules(2, 3000));
    assert!(is_ready::<Compact>(word));
    assert_eq!(frequency::<Compact>(word), 1);
    // It is not hot, though, and taking finds that out.
    assert!(!is_hot::<Compact>(word, Millis(3900), &rules(2, 3000)));
    let cool = cooled::<Compact>(word, Millis(3900), &rules(2, 3000));
    assert_eq!(
        (frequency::<Compact>(cool), is_ready::<Compact>(cool)),
        (1, false)
    );
}

#[test]
fn another_node_does_not_start_the_count_again() {
    // The posted v3 did. The record keeps who came last.
    let rules = rules(2, 5000);
    let word = accessed::<Precise>(0, Some(NodeId(0)), Millis(10), &rules);
    let word = accessed::<Precise>(word, Some(NodeId(1)), Millis(20), &rules);
    let hot = decoded::<Precise>(word, Millis(25), &rules).unwrap();
    assert_eq!(
        hot,
        Hotness {
            frequency: 2,
            age_ms: 5,
            node: Some(NodeId(1)),
            ready: true
        }
    );
    let word = accessed::<Precise>(word, None, Millis(30), &rules);
    assert_eq!(
        decoded::<Precise>(word, Millis(30), &rules).unwrap().node,
        None
    );
}

#[test]
fn node_1023_is_a_node_and_1024_is_none() {
    let rules = rules(2, 5000);
    for (node, kept) in [
        (0, Some(NodeId(0))),
        (1023, Some(NodeId(1023))),
        (1024, None),
    ] {
        let word = accessed::<Precise>(0, Some(NodeId(node)), Millis(10), &rules);
        assert_eq!(
            decoded::<Precise>(word, Millis(10), &rules).unwrap().node,
            kept
        );
        assert_eq!(frequency::<Precise>(word), 1);
    }
}

#[test]
fn a_late_report_counts_as_now_when_reordering_is_allowed() {
    // Without: 99 after 100 looks like 16383 ms later, and the count starts over.
    let strict = rules(2, 5000);
    assert_eq!(
        frequency::<Precise>(count::<Precise>(&[100, 99], &strict)),
        1
    );
    let lenient = Rules {
        reorder_ms: 50,
        ..strict
    };
    let word = count::<Precise>(&[100, 50], &lenient);
    assert_eq!(frequency::<Precise>(word), 2);
    // And the record's time does not go back.
    assert_eq!(age_ms::<Precise>(word, Millis(100)), 0);
    assert_eq!(
        frequency::<Precise>(count::<Precise>(&[100, 49], &lenient)),
        1
    );
    // Compact: 127 and 128 are neighbours in time and in different buckets.
    let config = Config::new(Layout::Compact).with_reorder_ms(50).unwrap();
    let compact = Rules::of::<Compact>(&config);
    assert_eq!(
        frequency::<Compact>(count::<Compact>(&[128, 127], &compact)),
        2
    );
}

#[test]
fn putting_back_adds_what_came_in_meanwhile() {
    let rules = rules(2, 5000);
    let taken = count::<Precise>(&[10, 20], &rules);
    assert_eq!(put_back::<Precise>(0, taken), taken);
    let current = count::<Precise>(&[30], &rules);
    let back = put_back::<Precise>(current, taken);
    assert_eq!(
        (frequency::<Precise>(back), is_ready::<Precise>(back)),
        (3, true)
    );
    assert_eq!(age_ms::<Precise>(back, Millis(30)), 0);
}

#[test]
fn a_hotness_packs_into_the_word_that_it_came_from() {
    let rules = rules(2, 5000);
    let word = accessed::<Precise>(0, Some(NodeId(3)), Millis(16_000), &rules);
    let hot = decoded::<Precise>(word, Millis(17_000), &rules).unwrap();
    assert_eq!(encoded::<Precise>(&hot, Millis(17_000)), word);
    let word = count::<Compact>(&[3900, 4000], &rules);
    let hot = decoded::<Compact>(word, Millis(4500), &rules).unwrap();
    assert_eq!(encoded::<Compact>(&hot, Millis(4500)), word);
}
