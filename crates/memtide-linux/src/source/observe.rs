//! What every source of accesses offers, whatever it is made of.
//!
//! # Problem
//!
//! Hint faults, DAMON and the accessed bits of the page tables differ in all
//! that matters: some see single accesses, some whole intervals; some can say
//! that a page was *not* touched; some cost time in proportion to what they
//! watch. The code that decides must not know which one it listens to.
//!
//! # Approach
//!
//! A source is asked for two *views*, each of which may be on or off. A
//! **look** reports every touched page of the spans that it was given, page by
//! page. A **glance** reports of each given span, as a whole, whether it was
//! touched. A view reports in *passes*: when a pass is complete, what it did
//! not report was not touched. A source that sees only single accesses never
//! completes a pass, and says so in [`Abilities`].
//!
//! Losses are counted, and a pass that lost anything is not complete.

use memtide_core::access;
use memtide_core::tiering::space::{OwnerId, VirtualPage};
pub use memtide_loop::world::{Abilities, Span, Subject, View};
use std::time::Duration;

/// Takes what a source reports.
pub trait Sink {
    /// `pages` pages from `first` on were touched (as a look sees it, each of
    /// them; as a glance sees it, at least one).
    fn touched(&mut self, view: View, owner: OwnerId, first: VirtualPage, pages: u64);
    /// `pages` pages from `first` on were seen not touched in this pass. Only a
    /// source that looks at each page says so; from others a complete pass
    /// says it by silence.
    fn untouched(&mut self, owner: OwnerId, first: VirtualPage, pages: u64) {
        let _ = (owner, first, pages);
    }
    /// A pass of `view` is complete.
    fn pass_complete(&mut self, view: View);
}

/// Why a source cannot go on or cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// This machine or kernel does not have it, or the caller may not use it.
    /// The text says what is missing and what to do.
    #[error("{0}")]
    Unavailable(String),
    /// It worked and then failed. The text says at what.
    #[error("{0}")]
    Failed(String),
}

/// A source of accesses.
pub trait Source {
    /// Under which name its accesses are counted.
    fn kind(&self) -> access::Source;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Looks at `subjects` in passes of about `interval`, until told
    /// otherwise; an empty list ends the look. Returns how many of their pages
    /// it takes in: where one look cannot take all, later ones take others.
    fn look(&mut self, subjects: &[Subject], interval: Duration) -> Result<u64, SourceError>;

    /// Glances at `subjects` in passes of about `interval`, until told
    /// otherwise; an empty list ends it. A source without glances ignores it.
    fn glance(&mut self, subjects: &[Subject], interval: Duration) -> Result<(), SourceError>;

    /// Ends `view` with the pass that is under way, whose reports come as ever. Nothing of a source
    /// that ends at once when it is told to.
    fn finish(&mut self, view: View) -> Result<(), SourceError> {
        let _ = view;
        Ok(())
    }

    /// Whether it cuts what it is to glance at into pieces by itself.
    fn cuts(&mut self) -> bool {
        false
    }

    /// As [`Source::glance`], at pieces of `piece` pages into which each span is
    /// cut from its beginning on. Only of a source that cuts.
    fn glance_in_pieces(
        &mut self,
        subjects: &[Subject],
        piece: u64,
        interval: Duration,
    ) -> Result<(), SourceError> {
        let _ = piece;
        self.glance(subjects, interval)
    }

    /// Waits at most `timeout` for something to report and reports it.
    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), SourceError>;

    /// Ends both views and puts back whatever the source changed to observe.
    /// Nothing is observed afterwards.
    fn close(&mut self) -> Result<(), SourceError>;

    /// Processor time that the kernel spent on the source's behalf outside
    /// this process, since it was opened.
    fn kernel_time(&mut self) -> Duration;

    /// Processor time of this process that observing took since it was opened: of a
    /// source that does itself what others leave to the kernel.
    fn own_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Reports known to be lost since it was opened.
    fn lost(&self) -> u64;
}
