//! What must stay true of frames, broken on purpose.

use super::*;
use crate::kernel::testing::machine;

const NODE: NodeId = NodeId(0);

/// One node of two huge pages' frames.
fn frames() -> Frames {
    Frames::new(&machine(&[(2 * u64::from(HUGE_PAGES), 0)], 0), 1).unwrap()
}

#[test]
#[should_panic(expected = "came back to a block that is whole")]
fn a_frame_that_comes_back_twice_is_noticed() {
    let mut frames = frames();
    let frame = frames.take(NODE, false).unwrap();
    frames.give_back(frame, false);
    frames.give_back(frame, false);
}

#[test]
#[should_panic(expected = "all of whose frames are free")]
fn a_frame_that_nobody_had_is_noticed() {
    let mut frames = frames();
    let frame = frames.take(NODE, false).unwrap();
    frames.nodes[0].free = frames.nodes[0].present;
    frames.give_back(frame, false);
}

#[test]
#[should_panic(expected = "is the first of no huge page")]
fn half_a_huge_page_is_noticed() {
    let mut frames = frames();
    let frame = frames.take(NODE, true).unwrap();
    frames.give_back(frame + 1, true);
}

#[test]
#[should_panic(expected = "frames of a huge page were free")]
fn a_huge_page_that_comes_back_twice_is_noticed() {
    let mut frames = frames();
    let frame = frames.take(NODE, true).unwrap();
    frames.give_back(frame, true);
    frames.give_back(frame, true);
}

#[test]
#[should_panic(expected = "of used frames gave one out")]
fn a_block_without_free_frames_is_noticed() {
    let mut frames = frames();
    let frame = frames.take(NODE, false).unwrap();
    frames.blocks[(frame / HUGE_PAGES) as usize].free = 0;
    frames.take(NODE, false);
}

#[test]
#[should_panic(expected = "is on the list of whole ones")]
fn a_whole_block_that_is_not_is_noticed() {
    let mut frames = frames();
    let frame = frames.take(NODE, true).unwrap();
    frames.give_back(frame, true);
    frames.blocks[(frame / HUGE_PAGES) as usize].free = 511;
    frames.take(NODE, true);
}
