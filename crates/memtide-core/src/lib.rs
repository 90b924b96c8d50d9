//! memtide's decisions: which page belongs on which node, and when it moves.
//!
//! Nothing here reads a clock, draws a random number, does I/O or is unsafe.
//! The live backend and the simulated machine both call this code; time and
//! random choices are arguments.
//!
//! One access takes this way through the crate:
//!
//! 1. a source reports it as an [`access::Access`];
//! 2. [`hotness::Intake`] drops what cannot matter and counts the rest;
//! 3. [`hotness::Store`] updates the page's record;
//! 4. [`promotion::Kmigrated`] visits the pages whose records became ready,
//!    asks [`promotion::Gate`] and hands batches to a mover;
//! 5. [`demotion`] makes room with pages that nobody touched.
//!
//! [`balancing`] is the other way for pages to move: to the sockets of the tasks
//! that use them. [`lazy_flush`] makes taking pages out of page tables cheap.
//!
//! ```
//! use memtide_core::access::{Access, Source, SourceSet};
//! use memtide_core::hotness::{Config, Intake, Layout, Store};
//! use memtide_core::pages::Pages;
//! use memtide_core::promotion::{
//!     Batch, Gate, GateConfig, Kmigrated, KmigratedConfig, Sink, Stops,
//! };
//! use memtide_core::topology::{NodeInput, Topology, TopologyInput};
//! use memtide_core::units::{Millis, NodeId, PageNumber};
//! use memtide_core::vmstat::{Counter, Counters};
//!
//! // A machine: node 0 has CPUs, node 1 only memory.
//! let node = |id, cpus| NodeInput {
//!     id: NodeId(id),
//!     online: true,
//!     memory_bytes: 1 << 30,
//!     cpus,
//!     distances: None,
//!     figures: Default::default(),
//!     tier: None,
//! };
//! let nodes = vec![node(0, vec![0, 1]), node(1, vec![])];
//! let topology = Topology::try_from(TopologyInput::new(nodes))?;
//!
//! // What the backend knows of its pages: here, that all lie on node 1.
//! struct AllSlow;
//! impl Pages for AllSlow {
//!     fn node_of(&self, _: PageNumber) -> Option<NodeId> {
//!         Some(NodeId(1))
//!     }
//! }
//!
//! // Two samples say that node 0 uses page 42.
//! let store = Store::new(Config::new(Layout::Precise), 1 << 18);
//! let intake = Intake::new(&store, &topology, SourceSet::ALL);
//! let mut counters = Counters::ZERO;
//! for at in [Millis(100), Millis(150)] {
//!     let access = Access {
//!         page: PageNumber(42),
//!         node: Some(NodeId(0)),
//!         source: Source::Hardware,
//!         at,
//!     };
//!     intake.report(&access, &AllSlow, &mut counters);
//! }
//!
//! // So the loop of node 1 hands it to the mover.
//! struct Mover(Vec<Batch>);
//! impl Sink for Mover {
//!     fn batch(&mut self, batch: Batch) {
//!         self.0.push(batch);
//!     }
//! }
//! let gate = Gate::new(GateConfig::new(store.config().window_ms()), 2);
//! let config = KmigratedConfig::default();
//! let kmigrated = Kmigrated::new(config, NodeId(1), &topology, &store, &gate);
//! let mut mover = Mover(Vec::new());
//! kmigrated.pass(Stops::NONE, &AllSlow, &mut mover, &mut counters, Millis(200));
//!
//! assert_eq!(mover.0[0].target, NodeId(0));
//! assert_eq!(mover.0[0].folios[0].0.first, PageNumber(42));
//! assert_eq!(counters.get(Counter::PgpromoteCandidate), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// A library hands out what it knows; only the command prints.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod balancing;
pub mod demotion;
mod dense;
pub mod eviction;
pub mod fairness;
pub mod hotness;
pub mod keys;
pub mod lazy_flush;
pub mod mempolicy;
pub mod nodemask;
pub mod numbers;
pub mod pages;
pub mod pressure;
pub mod promotion;
pub mod residency;
mod sync;
pub mod tiering;
pub mod topology;
pub mod units;
pub mod vmstat;
pub mod wildcard;
