//! Page frames: which are free, who owns the others, and the links of the LRU lists.
//!
//! Nodes own contiguous ranges of frames. A range is cut into blocks of 512, the size of a huge page.
//! Free frames are found through their block: a block is *whole* (all free, one huge page), *partial*
//! (some free, linked with the node's other partial ones) or used up. Base pages come from partial
//! blocks first, so that whole ones stay whole; a block whose last page returns is whole again. All of
//! it is constant time, and nothing is written for a block that nobody ever used: memory that is only
//! simulated to exist costs nothing until then.
//!
//! CPUs keep short lists of base frames of each node, filled and drained in batches. Frames on them
//! are not free to the watermarks, as in the kernel. Where a node is so small that all lists together
//! could hold more than a hundredth of it, there are none.
//!
//! Frames whose old translations were not flushed yet (`lazy.rs`) wait apart, first in, first out, and
//! are handed out after all others, so that most are flushed by the way before their turn comes. They
//! count as free. When they are flushed they can go back to their blocks.
//!
//! Three words a frame: the owner's slot plus one (0: none) and two links. Links 0 is no frame: frames
//! below [`FIRST_FRAME`] are never handed out, and some of them are the ends of LRU lists. A free frame's
//! first link is its stamp: what has to be flushed before the frame is used.

mod blocks;

use super::error::KernelError;
use crate::page::{Frame, HUGE_PAGES, MAX_NODES, Slot};
use crate::spec::MachineSpec;
use memtide_core::demotion::Watermarks;
use memtide_core::lazy_flush::Stamp;
use memtide_core::pages::NodeSpace;
use memtide_core::units::NodeId;

/// No frame.
pub const NO_FRAME: Frame = 0;
/// The first frame that memory may have.
pub const FIRST_FRAME: Frame = HUGE_PAGES;
/// Frames of a node that a CPU's list gets at once.
const BATCH: u32 = 32;

const OWNER: usize = 0;
const PREVIOUS: usize = 1;
const NEXT: usize = 2;
/// Of a free frame.
const STAMP: usize = PREVIOUS;

/// All frames of the machine.
pub struct Frames {
    table: Vec<[u32; 3]>,
    blocks: Vec<Block>,
    nodes: Vec<Node>,
}

/// 512 frames.
#[derive(Clone, Copy, Default)]
struct Block {
    /// Free ones.
    free: u16,
    /// Frames from here on were not used since the block was last whole; meaningful while `head` is none.
    fresh: u16,
    /// The first of the free frames that were: its place in the block plus one, 0 for none.
    head: u16,
    /// Links of the node's partial blocks (of its whole ones, `next`); block 0 is none.
    previous: u32,
    next: u32,
    node: u8,
}

#[derive(Default)]
struct Node {
    first: Frame,
    present: u32,
    free: u32,
    marks: Option<Watermarks>,
    partial: u32,
    whole: u32,
    /// Blocks from here to `blocks_end` were never used.
    untouched: u32,
    blocks_end: u32,
    batch: u32,
    cpu_lists: Vec<CpuList>,
    waiting: Waiting,
}

/// Free frames with a stamp, the oldest first.
#[derive(Clone, Copy, Default)]
struct Waiting {
    head: Frame,
    tail: Frame,
    frames: u32,
}

#[derive(Clone, Copy, Default)]
struct CpuList {
    head: Frame,
    frames: u32,
}

impl Frames {
    /// The frames of `spec`'s nodes, scaled by `scale`.
    pub fn new(spec: &MachineSpec, scale: u32) -> Result<Frames, KernelError> {
        let real_pages = |bytes: u64| bytes / 4096;
        let total: u64 = spec
            .nodes
            .iter()
            .map(|n| real_pages(n.capacity_bytes))
            .sum();
        let cpus: u32 = spec.nodes.iter().map(|n| n.cpus).sum();
        let mut nodes: Vec<Node> = Vec::new();
        nodes.resize_with(MAX_NODES, Node::default);
        let mut next = u64::from(FIRST_FRAME);
        for node in &spec.nodes {
            let slot = nodes
                .get_mut(usize::from(node.id))
                .ok_or(KernelError::NodeId(NodeId(node.id)))?;
            let real = real_pages(node.capacity_bytes);
            let pages = real / u64::from(scale);
            let min = u128::from(real_pages(spec.min_free_bytes)) * u128::from(real)
                / u128::from(total.max(1));
            let real_marks = Watermarks::new(min as u64, real, spec.watermark_scale_factor);
            if pages < u64::from(HUGE_PAGES) && real > 0 {
                return Err(KernelError::SmallNode {
                    node: NodeId(node.id),
                    pages,
                    least: u64::from(HUGE_PAGES),
                });
            }
            let limit = u64::from(u32::MAX);
            if next + pages > limit {
                return Err(KernelError::TooManyPages {
                    what: "the nodes",
                    pages: next + pages,
                    limit,
                });
            }
            slot.first = next as Frame;
            slot.present = pages as u32;
            slot.free = pages as u32;
            slot.marks = Some(scaled(&real_marks, scale));
            slot.untouched = (next / u64::from(HUGE_PAGES)) as u32;
            slot.blocks_end = slot.untouched + (pages / u64::from(HUGE_PAGES)) as u32;
            slot.batch = batch(pages, cpus);
            slot.cpu_lists =
                vec![CpuList::default(); if slot.batch > 0 { cpus as usize } else { 0 }];
            next = (next + pages).next_multiple_of(u64::from(HUGE_PAGES));
        }
        let mut frames = Frames {
            table: vec![[0; 3]; next as usize],
            blocks: vec![Block::default(); (next / u64::from(HUGE_PAGES)) as usize],
            nodes,
        };
        for index in 0..MAX_NODES {
            let node = &frames.nodes[index];
            let rest = node.present % HUGE_PAGES;
            let end = node.blocks_end;
            if rest > 0 {
                // The last block is shorter; it never counts as whole.
                frames.blocks[end as usize].free = rest as u16;
                frames.blocks[end as usize].node = index as u8;
                frames.link_partial(index, end);
            }
        }
        Ok(frames)
    }

    /// A free frame of `node` (the first of 512 if `huge`), whatever the watermarks say. The caller
    /// gives it an owner.
    pub fn take(&mut self, node: NodeId, huge: bool) -> Option<Frame> {
        match huge {
            true => self.take_block(node.index()),
            false => self.take_base(node.index()),
        }
    }

    /// A free base frame of `node` by way of `cpu`'s list.
    pub fn take_on_cpu(&mut self, node: NodeId, cpu: u32) -> Option<Frame> {
        let index = node.index();
        if cpu as usize >= self.nodes[index].cpu_lists.len() {
            return self.take_base(index);
        }
        if self.nodes[index].cpu_lists[cpu as usize].frames == 0 {
            for _ in 0..self.nodes[index].batch {
                let Some(frame) = self.take_base(index) else {
                    break;
                };
                self.push_on_cpu(index, cpu, frame);
            }
        }
        let list = &mut self.nodes[index].cpu_lists[cpu as usize];
        if list.frames == 0 {
            return None;
        }
        let frame = list.head;
        list.head = self.table[frame as usize][NEXT];
        list.frames -= 1;
        Some(frame)
    }

    /// Returns a frame (the first of 512 if `huge`) that no list holds any more.
    pub fn give_back(&mut self, frame: Frame, huge: bool) {
        let index = self.node_index(frame);
        self.table[frame as usize] = [0; 3];
        match huge {
            true => {
                assert_eq!(
                    frame % HUGE_PAGES,
                    0,
                    "frame {frame} is the first of no huge page"
                );
                let block = frame / HUGE_PAGES;
                let free = self.blocks[block as usize].free;
                assert_eq!(free, 0, "{free} frames of a huge page were free");
                self.blocks[block as usize].free = HUGE_PAGES as u16;
                self.nodes[index].free += HUGE_PAGES;
                self.push_whole(index, block);
            }
            false => self.give_base(index, frame),
        }
    }

    /// Returns a base frame by way of `cpu`'s list.
    pub fn give_back_on_cpu(&mut self, frame: Frame, cpu: u32) {
        let index = self.node_index(frame);
        let batch = self.nodes[index].batch;
        if cpu as usize >= self.nodes[index].cpu_lists.len() {
            return self.give_back(frame, false);
        }
        self.table[frame as usize] = [0; 3];
        self.push_on_cpu(index, cpu, frame);
        if self.nodes[index].cpu_lists[cpu as usize].frames > 2 * batch {
            self.drain_cpu(index, cpu, batch);
        }
    }

    /// Returns a base frame that may not be used before what its stamp names is flushed.
    pub fn give_back_stamped(&mut self, frame: Frame, stamp: Stamp) {
        let index = self.node_index(frame);
        self.nodes[index].free += 1;
        self.push_waiting(index, frame, u32::from(stamp.bits()));
    }

    /// The stamp of a frame that was just taken; it has none afterwards.
    #[must_use]
    pub fn take_stamp(&mut self, frame: Frame) -> Stamp {
        let bits = std::mem::take(&mut self.table[frame as usize][STAMP]);
        Stamp::from_bits(bits as u16)
    }

    /// All stamped frames of a node are flushed: they go back to their blocks.
    pub fn settle(&mut self, node: NodeId) {
        let index = node.index();
        while let Some(frame) = self.pop_waiting(index) {
            self.nodes[index].free -= 1;
            self.give_base(index, frame);
        }
    }

    /// Free frames of a node that have a stamp, those on CPUs' lists not among them.
    #[must_use]
    pub fn waiting(&self, node: NodeId) -> u64 {
        u64::from(self.nodes[node.index()].waiting.frames)
    }

    /// Empties all CPUs' lists of a node: somebody needs each frame.
    pub fn drain(&mut self, node: NodeId) {
        for cpu in 0..self.nodes[node.index()].cpu_lists.len() as u32 {
            self.drain_cpu(node.index(), cpu, u32::MAX);
        }
    }

    /// Makes `slot` the owner of a frame.
    #[inline]
    pub fn set_owner(&mut self, frame: Frame, slot: Slot) {
        self.table[frame as usize][OWNER] = slot + 1;
    }

    /// The owner of a frame.
    #[inline]
    #[must_use]
    pub fn owner(&self, frame: Frame) -> Option<Slot> {
        self.table[frame as usize][OWNER].checked_sub(1)
    }

    /// The node of a frame.
    #[must_use]
    pub fn node_of(&self, frame: Frame) -> NodeId {
        NodeId(self.node_index(frame) as u16)
    }

    /// Free pages of a node, those on CPUs' lists not among them.
    #[inline]
    #[must_use]
    pub fn free(&self, node: NodeId) -> u64 {
        u64::from(self.nodes[node.index()].free)
    }

    /// Free pages of all nodes, those on CPUs' lists not among them.
    #[must_use]
    pub fn all_free(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.free)).sum()
    }

    /// Pages of a node, used or not; 0 if it has no memory.
    #[inline]
    #[must_use]
    pub fn present(&self, node: NodeId) -> u64 {
        u64::from(self.nodes[node.index()].present)
    }

    /// Pages on CPUs' lists.
    #[must_use]
    pub fn on_cpu_lists(&self, node: NodeId) -> u64 {
        let lists = self.nodes[node.index()].cpu_lists.iter();
        lists.map(|l| u64::from(l.frames)).sum()
    }

    /// A node's marks, scaled.
    #[inline]
    #[must_use]
    pub fn marks(&self, node: NodeId) -> Watermarks {
        self.nodes[node.index()]
            .marks
            .unwrap_or(Watermarks::new(0, 0, 0))
    }

    /// A node's room.
    #[inline]
    #[must_use]
    pub fn space(&self, node: NodeId) -> NodeSpace {
        self.marks(node).space(self.free(node), self.present(node))
    }

    /// The frames of a node.
    #[must_use]
    pub fn of_node(&self, node: NodeId) -> std::ops::Range<Frame> {
        let node = &self.nodes[node.index()];
        node.first..node.first + node.present
    }

    /// One more than the last frame.
    #[must_use]
    pub fn end(&self) -> Frame {
        self.table.len() as Frame
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let lists: usize = self.nodes.iter().map(|n| n.cpu_lists.capacity()).sum();
        self.table.capacity() * size_of::<[u32; 3]>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.nodes.capacity() * size_of::<Node>()
            + lists * size_of::<CpuList>()
    }

    // Links, for the LRU lists.

    #[inline]
    pub(super) fn next(&self, frame: Frame) -> Frame {
        self.table[frame as usize][NEXT]
    }

    #[inline]
    pub(super) fn previous(&self, frame: Frame) -> Frame {
        self.table[frame as usize][PREVIOUS]
    }

    /// Makes `end` the end of an empty ring.
    pub(super) fn ring(&mut self, end: Frame) {
        debug_assert!(end < FIRST_FRAME);
        self.table[end as usize] = [0, end, end];
    }

    /// Puts `frame` behind `before` in its ring.
    #[inline]
    pub(super) fn link_after(&mut self, before: Frame, frame: Frame) {
        let after = self.table[before as usize][NEXT];
        self.table[before as usize][NEXT] = frame;
        self.table[after as usize][PREVIOUS] = frame;
        let own = &mut self.table[frame as usize];
        own[PREVIOUS] = before;
        own[NEXT] = after;
    }

    /// Takes `frame` out of its ring.
    #[inline]
    pub(super) fn unlink(&mut self, frame: Frame) {
        let [_, before, after] = self.table[frame as usize];
        self.table[before as usize][NEXT] = after;
        self.table[after as usize][PREVIOUS] = before;
        let own = &mut self.table[frame as usize];
        own[PREVIOUS] = NO_FRAME;
        own[NEXT] = NO_FRAME;
    }
}

/// Real marks on the scaled machine.
fn scaled(marks: &Watermarks, scale: u32) -> Watermarks {
    let s = u64::from(scale);
    let promo = Some(marks.promo() / s);
    Watermarks::read(marks.min() / s, marks.low() / s, marks.high() / s, promo)
        .expect("division keeps the order")
}

/// Frames that go to a CPU's list at once; 0: the node is too small for lists.
fn batch(pages: u64, cpus: u32) -> u32 {
    let share = pages / 100 / u64::from(2 * cpus.max(1));
    match share {
        0..4 => 0,
        _ => share.min(u64::from(BATCH)) as u32,
    }
}

#[cfg(test)]
mod tests;
