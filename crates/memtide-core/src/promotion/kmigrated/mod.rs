//! The loop that turns ready pages of one slow node into batches of moves.
//!
//! Named after pghot's kernel thread. One pass visits the pages that are ready,
//! and for each one that lies on this node asks, in this order: is it still hot;
//! does its owner allow the target; does the gate let it in; is there room. What
//! passes goes into a batch of folios with one target and one group (process or
//! memory cgroup), handed out when either changes or the batch is full. Owner and
//! cpuset are asked before the gate, and so is what is left of the owner's share
//! of fast memory, so that a page that cannot move anyway uses no budget.
//!
//! Every page that does not move is reported with its reason. What happens to
//! it depends on the reason:
//!
//! - it cannot be promoted at all (gone, already there, in the batch through its
//!   folio): its record is emptied;
//! - it could be, later (rate, latency, room, policy): by default it *stays
//!   ready*, and a later pass asks again as long as it is hot. The kernel forgets
//!   it, and it must become hot anew: [`Refused::Forget`].
//!
//! Pages that stay ready would be counted as candidates again at each pass and
//! distort the gate's feedback. So once a destination's rate window is full, the
//! *next* passes leave its pages alone, uncounted, until the window is over: a
//! page counts at most once a window.

mod config;
mod outcome;

pub use config::{KmigratedConfig, KmigratedError, Refused};
pub use outcome::{Batch, Kept, PassReport, Sink, Stops};

use super::gate::Gate;
use super::verdict::{Admit, Candidate};
use crate::hotness::{Disposition, Hotness, Store, Taken};
use crate::pages::{Folio, NodeSpace, Pages, Share};
use crate::topology::Topology;
use crate::units::{Millis, NodeId, PageNumber};
use crate::vmstat::Counters;

/// The loop of one slow node, with the gate that it asks.
#[derive(Clone, Copy, Debug)]
pub struct Kmigrated<'a, G = Gate> {
    config: KmigratedConfig,
    node: NodeId,
    topology: &'a Topology,
    store: &'a Store,
    gate: &'a G,
}

impl<'a, G: Admit> Kmigrated<'a, G> {
    /// The loop for pages on `node`.
    pub fn new(
        config: KmigratedConfig,
        node: NodeId,
        topology: &'a Topology,
        store: &'a Store,
        gate: &'a G,
    ) -> Kmigrated<'a, G> {
        Kmigrated {
            config,
            node,
            topology,
            store,
            gate,
        }
    }

    /// One pass at `now`.
    pub fn pass<P: Pages, S: Sink>(
        &self,
        stops: Stops,
        pages: &P,
        sink: &mut S,
        counters: &mut Counters,
        now: Millis,
    ) -> PassReport {
        let mut pass = Pass {
            loop_: self,
            pages,
            sink,
            now,
            open: Vec::new(),
            last: None,
            destinations: Vec::new(),
            shares: Vec::new(),
            counted: Vec::new(),
            report: PassReport::default(),
        };
        let drained = self.store.drain(stops.sections, now, |page, taken| {
            if pass.report.pages >= stops.pages {
                Disposition::Stop
            } else {
                pass.visit(page, taken, counters)
            }
        });
        pass.flush();
        let mut report = pass.report;
        report.visited = drained.visited;
        report.cold = drained.cold;
        report.kept_ready = drained.kept;
        report.stopped = drained.stopped;
        report
    }
}

/// What a pass knows of a destination.
struct Destination {
    node: NodeId,
    closed: bool,
    space: Option<NodeSpace>,
}

struct Pass<'p, G, P, S> {
    loop_: &'p Kmigrated<'p, G>,
    pages: &'p P,
    sink: &'p mut S,
    now: Millis,
    /// The batches being filled, the oldest first.
    open: Vec<Batch>,
    /// The folio asked about last, and the answer.
    last: Option<(Folio, Result<(), Kept>)>,
    destinations: Vec<Destination>,
    /// What is left of each share that was asked for.
    shares: Vec<Share>,
    /// Which of these the page counts against that is asked about.
    counted: Vec<usize>,
    report: PassReport,
}

impl<G: Admit, P: Pages, S: Sink> Pass<'_, G, P, S> {
    fn visit(&mut self, page: PageNumber, taken: Taken, counters: &mut Counters) -> Disposition {
        let hotness = match taken {
            Taken::Hot(hotness) => hotness,
            Taken::Cold(hotness) => {
                self.sink.kept(page, &hotness, Kept::Cold);
                return Disposition::Take;
            }
        };
        match self.admit(page, &hotness, counters) {
            Ok(()) => Disposition::Take,
            Err(reason) => {
                self.sink.kept(page, &hotness, reason);
                self.report.over_share += u64::from(reason == Kept::Share);
                match reason {
                    Kept::Cold | Kept::Gone | Kept::AtTarget | Kept::SameFolio => Disposition::Take,
                    Kept::Elsewhere(_) => Disposition::Keep,
                    _ => match self.loop_.config.refused {
                        Refused::KeepReady => Disposition::Keep,
                        Refused::Forget => Disposition::Take,
                    },
                }
            }
        }
    }

    fn admit(
        &mut self,
        page: PageNumber,
        hotness: &Hotness,
        counters: &mut Counters,
    ) -> Result<(), Kept> {
        let home = self.pages.node_of(page).ok_or(Kept::Gone)?;
        if home != self.loop_.node {
            return Err(Kept::Elsewhere(home));
        }
        let folio = self.pages.folio(page);
        if let Some((last, answer)) = self.last
            && last == folio
        {
            return Err(answer.err().unwrap_or(Kept::SameFolio));
        }
        let answer = self.admit_folio(page, home, folio, hotness, counters);
        self.last = Some((folio, answer));
        answer
    }

    fn admit_folio(
        &mut self,
        page: PageNumber,
        home: NodeId,
        folio: Folio,
        hotness: &Hotness,
        counters: &mut Counters,
    ) -> Result<(), Kept> {
        let target = self.target(hotness).ok_or(Kept::NoTarget)?;
        if target == home {
            return Err(Kept::AtTarget);
        }
        self.pages.may_move(page, target).map_err(Kept::Immovable)?;
        let count = u64::from(folio.pages);
        self.find_shares(page);
        if self
            .counted
            .iter()
            .any(|share| self.shares[*share].left < count)
        {
            return Err(Kept::Share);
        }
        let at = self.destination(target);
        let space = self.destinations[at].space;
        if self.destinations[at].closed {
            return Err(Kept::WindowClosed);
        }
        let candidate = Candidate {
            folio,
            hotness: *hotness,
            target,
            space,
        };
        self.ask(&candidate, counters)?;
        if space.is_some_and(|s| !s.takes(count)) {
            self.report.no_room_pages += count;
            return Err(Kept::NoRoom(target));
        }
        self.destinations[at].space = space.map(|s| s.less(count));
        for share in &self.counted {
            self.shares[*share].left -= count;
        }
        self.add(target, self.pages.group(page), folio, *hotness);
        Ok(())
    }

    /// The recorded node if pages can live there, else the nearest top-tier node.
    fn target(&self, hotness: &Hotness) -> Option<NodeId> {
        let topology = self.loop_.topology;
        hotness
            .node
            .filter(|&n| {
                topology
                    .node(n)
                    .is_some_and(|n| n.top_tier && n.has_memory())
            })
            .or_else(|| topology.promotion_target(self.loop_.node))
    }

    fn destination(&mut self, node: NodeId) -> usize {
        let known = self.destinations.iter().position(|d| d.node == node);
        known.unwrap_or_else(|| {
            let space = self.pages.space(node);
            let keeps = self.loop_.config.refused == Refused::KeepReady;
            let closed = keeps && self.loop_.gate.is_closed(node, space, self.now);
            self.destinations.push(Destination {
                node,
                closed,
                space,
            });
            self.destinations.len() - 1
        })
    }

    /// Finds the places of the page's shares among those of this pass.
    fn find_shares(&mut self, page: PageNumber) {
        self.counted.clear();
        let (shares, counted) = (&mut self.shares, &mut self.counted);
        self.pages.shares(page, &mut |share| {
            let known = shares.iter().position(|s| s.number == share.number);
            let at = known.unwrap_or(shares.len());
            if at == shares.len() {
                shares.push(share);
            }
            if !counted.contains(&at) {
                counted.push(at);
            }
        });
    }

    fn ask(&self, candidate: &Candidate, counters: &mut Counters) -> Result<(), Kept> {
        let verdict = self.loop_.gate.admit(candidate, self.now);
        if let Some(counter) = self.loop_.gate.counter(verdict) {
            counters.add(counter, u64::from(candidate.folio.pages));
        }
        if verdict.admitted() {
            Ok(())
        } else {
            Err(Kept::Gate(verdict))
        }
    }

    fn add(&mut self, target: NodeId, group: u64, folio: Folio, hotness: Hotness) {
        let config = &self.loop_.config;
        assert_ne!(target, self.loop_.node, "a page is to move to where it is");
        let known = |b: &Batch| b.target == target && b.group == group;
        let at = self.open.iter().position(known).unwrap_or_else(|| {
            if self.open.len() == config.open_batches {
                hand_out(self.open.remove(0), &mut self.report, self.sink);
            }
            self.open.push(Batch {
                target,
                group,
                folios: Vec::new(),
                pages: 0,
            });
            self.open.len() - 1
        });
        let batch = &mut self.open[at];
        batch.folios.push((folio, hotness));
        batch.pages += u64::from(folio.pages);
        self.report.folios += 1;
        self.report.pages += u64::from(folio.pages);
        if batch.folios.len() >= config.batch {
            hand_out(self.open.remove(at), &mut self.report, self.sink);
        }
    }

    fn flush(&mut self) {
        for batch in self.open.drain(..) {
            hand_out(batch, &mut self.report, self.sink);
        }
    }
}

fn hand_out(batch: Batch, report: &mut PassReport, sink: &mut impl Sink) {
    report.batches += 1;
    sink.batch(batch);
}

#[cfg(all(test, not(loom)))]
mod tests;
