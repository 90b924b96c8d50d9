//! The free frames of a node: blocks of 512, whole or partial, and CPUs' lists. See the essay of
//! `frames.rs`.

use super::super::check::Violation;
use super::{Block, Frames, NEXT, NO_FRAME, STAMP, Waiting};
use crate::page::{Frame, HUGE_PAGES};
use memtide_core::units::NodeId;

impl Block {
    /// The first of the free frames of this block, number `at`, that were used; or none.
    fn first_used(&self, at: u32) -> Frame {
        match self.head {
            0 => NO_FRAME,
            head => at * HUGE_PAGES + u32::from(head) - 1,
        }
    }

    fn set_first_used(&mut self, frame: Frame) {
        self.head = match frame {
            NO_FRAME => 0,
            frame => (frame % HUGE_PAGES) as u16 + 1,
        };
    }
}

impl Frames {
    #[inline]
    pub(super) fn node_index(&self, frame: Frame) -> usize {
        usize::from(self.blocks[(frame / HUGE_PAGES) as usize].node)
    }

    pub(super) fn take_base(&mut self, index: usize) -> Option<Frame> {
        if self.nodes[index].partial == 0 {
            let Some(block) = self.pop_whole(index) else {
                let frame = self.pop_waiting(index)?;
                self.nodes[index].free -= 1;
                return Some(frame);
            };
            self.link_partial(index, block);
        }
        let at = self.nodes[index].partial;
        let block = &mut self.blocks[at as usize];
        let frame = match block.first_used(at) {
            NO_FRAME => {
                block.fresh += 1;
                at * HUGE_PAGES + u32::from(block.fresh) - 1
            }
            head => {
                block.set_first_used(self.table[head as usize][NEXT]);
                head
            }
        };
        assert!(block.free > 0, "block {at} of used frames gave one out");
        block.free -= 1;
        if block.free == 0 {
            self.unlink_partial(index, at);
        }
        self.nodes[index].free -= 1;
        Some(frame)
    }

    pub(super) fn take_block(&mut self, index: usize) -> Option<Frame> {
        let at = self.pop_whole(index)?;
        let free = std::mem::take(&mut self.blocks[at as usize].free);
        assert_eq!(
            u32::from(free),
            HUGE_PAGES,
            "block {at} is on the list of whole ones"
        );
        self.nodes[index].free -= HUGE_PAGES;
        Some(at * HUGE_PAGES)
    }

    pub(super) fn give_base(&mut self, index: usize, frame: Frame) {
        let at = frame / HUGE_PAGES;
        let block = &mut self.blocks[at as usize];
        assert!(
            u32::from(block.free) < HUGE_PAGES,
            "frame {frame} came back to a block that is whole"
        );
        self.table[frame as usize] = [0, 0, block.first_used(at)];
        block.set_first_used(frame);
        block.free += 1;
        let node = &mut self.nodes[index];
        node.free += 1;
        assert!(
            node.free <= node.present,
            "frame {frame} came back to a node all of whose frames are free"
        );
        match u32::from(block.free) {
            HUGE_PAGES => {
                self.unlink_partial(index, at);
                self.push_whole(index, at);
            }
            1 => self.link_partial(index, at),
            _ => {}
        }
    }

    pub(super) fn push_whole(&mut self, index: usize, at: u32) {
        let node = &mut self.nodes[index];
        let block = &mut self.blocks[at as usize];
        block.head = 0;
        block.fresh = 0;
        block.next = node.whole;
        node.whole = at;
    }

    fn pop_whole(&mut self, index: usize) -> Option<u32> {
        let node = &mut self.nodes[index];
        match node.whole {
            0 if node.untouched == node.blocks_end => None,
            0 => {
                let at = node.untouched;
                node.untouched += 1;
                self.blocks[at as usize].free = HUGE_PAGES as u16;
                self.blocks[at as usize].node = index as u8;
                Some(at)
            }
            at => {
                node.whole = self.blocks[at as usize].next;
                Some(at)
            }
        }
    }

    pub(super) fn link_partial(&mut self, index: usize, at: u32) {
        let first = self.nodes[index].partial;
        self.blocks[at as usize].previous = 0;
        self.blocks[at as usize].next = first;
        if first != 0 {
            self.blocks[first as usize].previous = at;
        }
        self.nodes[index].partial = at;
    }

    fn unlink_partial(&mut self, index: usize, at: u32) {
        let Block { previous, next, .. } = self.blocks[at as usize];
        match previous {
            0 => self.nodes[index].partial = next,
            _ => self.blocks[previous as usize].next = next,
        }
        if next != 0 {
            self.blocks[next as usize].previous = previous;
        }
    }

    pub(super) fn push_on_cpu(&mut self, index: usize, cpu: u32, frame: Frame) {
        let list = &mut self.nodes[index].cpu_lists[cpu as usize];
        self.table[frame as usize][NEXT] = list.head;
        list.head = frame;
        list.frames += 1;
    }

    pub(super) fn drain_cpu(&mut self, index: usize, cpu: u32, most: u32) {
        for _ in 0..most {
            let list = &mut self.nodes[index].cpu_lists[cpu as usize];
            if list.frames == 0 {
                break;
            }
            let frame = list.head;
            list.head = self.table[frame as usize][NEXT];
            list.frames -= 1;
            match self.table[frame as usize][STAMP] {
                0 => self.give_base(index, frame),
                stamp => {
                    self.nodes[index].free += 1;
                    self.push_waiting(index, frame, stamp);
                }
            }
        }
    }

    pub(super) fn push_waiting(&mut self, index: usize, frame: Frame, stamp: u32) {
        let waiting = &mut self.nodes[index].waiting;
        self.table[frame as usize] = [0, stamp, NO_FRAME];
        match waiting.frames {
            0 => waiting.head = frame,
            _ => self.table[waiting.tail as usize][NEXT] = frame,
        }
        waiting.tail = frame;
        waiting.frames += 1;
    }

    /// The frame that waited longest, with its stamp.
    pub(super) fn pop_waiting(&mut self, index: usize) -> Option<Frame> {
        let Waiting { head, frames, .. } = self.nodes[index].waiting;
        if frames == 0 {
            return None;
        }
        let waiting = &mut self.nodes[index].waiting;
        waiting.head = self.table[head as usize][NEXT];
        waiting.frames -= 1;
        self.table[head as usize][NEXT] = NO_FRAME;
        Some(head)
    }

    /// Tells each free frame of a node, those on CPUs' lists not among them.
    pub(in super::super) fn for_free(
        &self,
        node: NodeId,
        mut found: impl FnMut(Frame),
    ) -> Result<(), Violation> {
        let index = node.index();
        let own = &self.nodes[index];
        for at in own.untouched..own.blocks_end {
            (at * HUGE_PAGES..(at + 1) * HUGE_PAGES).for_each(&mut found);
        }
        let mut at = own.whole;
        while at != 0 {
            (at * HUGE_PAGES..(at + 1) * HUGE_PAGES).for_each(&mut found);
            at = self.blocks[at as usize].next;
        }
        let mut frame = own.waiting.head;
        for _ in 0..own.waiting.frames {
            found(frame);
            frame = self.table[frame as usize][NEXT];
        }
        let mut at = own.partial;
        while at != 0 {
            let block = &self.blocks[at as usize];
            let mut frame = block.first_used(at);
            let mut left = u32::from(block.free);
            while frame != NO_FRAME && left > 0 {
                found(frame);
                frame = self.table[frame as usize][NEXT];
                left -= 1;
            }
            let size = match at == own.blocks_end {
                true => own.present % HUGE_PAGES,
                false => HUGE_PAGES,
            };
            let fresh = u32::from(block.fresh)..size;
            if frame != NO_FRAME || left != fresh.len() as u32 {
                return Err(Violation(format!(
                    "block {at} of node {node}: {} free, {left} of them are not on its list, {} were never used",
                    block.free,
                    fresh.len()
                )));
            }
            fresh.for_each(|page| found(at * HUGE_PAGES + page));
            at = block.next;
        }
        Ok(())
    }

    /// Tells each frame on CPUs' lists of a node.
    pub(in super::super) fn for_cpu_lists(&self, node: NodeId, mut found: impl FnMut(Frame)) {
        for list in &self.nodes[node.index()].cpu_lists {
            let mut frame = list.head;
            for _ in 0..list.frames {
                found(frame);
                frame = self.table[frame as usize][NEXT];
            }
        }
    }
}
