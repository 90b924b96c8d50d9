//! Where new pages go: a model of Linux's memory policies.
//!
//! A policy says from which nodes a page may come, or should. A task has one
//! ([`Process::set_mempolicy`]), each mapping may have its own
//! ([`Process::mbind`]), and a cpuset confines both. The model answers every
//! call as the kernel does, error for error and page for page; the tests in
//! the guest compare the two.
//!
//! The way of a call:
//!
//! 1. [`parse_mode`] splits and checks the mode word, [`RawMask`] reads the
//!    mask as the kernel copies it from the caller;
//! 2. [`Request`] checks the two against each other, [`Policy`] cuts the mask
//!    down to the nodes that the cpuset allows and that have memory;
//! 3. a change of the cpuset binds the policy anew (`rebind.rs`);
//! 4. [`Landing`] makes it ready: one look-up from a page's index to its node,
//!    through a [`Spread`] if the policy interleaves;
//! 5. [`Process`] keeps mappings and pages, and gives each touched page its node.
//!
//! [`Spread`] and [`Counter`] are the three ways in which the kernel takes
//! nodes in turn; they stand alone. [`WeightFiles`] has the rules of the weight
//! table, [`WeightTable`] the table that readers load without a lock.
//! [`misplaced()`] says where a page should be that a hint fault found.
//!
//! Which weights to write is another question: [`tune`] answers it as the kernel
//! does, [`tune_law`] from measured curves.
//!
//! What differs between kernels is a named field of [`Kernel`]. What the model
//! leaves out is said in [`process`].
//!
//! ```
//! use memtide_core::mempolicy::*;
//! use memtide_core::units::NodeId;
//! use std::sync::Arc;
//!
//! // Nodes 0 and 1 have CPUs, node 2 only memory; 6.12's rules.
//! let input = MachineInput::new("0-2".parse()?, "0-1".parse()?, Kernel::of_version(6, 12));
//! let machine = Arc::new(Machine::new(input)?);
//! let files = WeightFiles::new(&machine, None);
//! files.write_node(NodeId(0), b"9\n")?;
//!
//! // Weighted interleave over nodes 0 and 2.
//! let mut process = Process::new(machine, &"0-2".parse()?, files);
//! process.set_mempolicy(6, &RawMask::Words(vec![0b101]), 64)?;
//! process.mmap(0x2000_0000_0000, 20 << 12)?;
//! process.touch(0x2_0000_0000, 20)?;
//!
//! // Page 0x2_0000_0000 is 2 modulo 10, so positions 2 to 9, 0 to 9, 0 and 1.
//! let on_2 = (0x2_0000_0000..0x2_0000_0014).filter(|&p| process.node_of(p) == Some(NodeId(2)));
//! assert_eq!(on_2.collect::<Vec<u64>>(), [0x2_0000_0007, 0x2_0000_0011]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod curve;
mod errno;
mod machine;
pub mod measured;
mod misplaced;
mod mode;
mod place;
mod policy;
pub mod process;
mod rawmask;
mod rebind;
mod resolve;
pub mod tune;
pub mod tune_law;
mod weight_rules;
mod weights;

pub use errno::Errno;
pub use machine::{Kernel, Machine, MachineError, MachineInput};
pub use misplaced::{HintFault, misplaced};
pub use mode::{
    MODE_FLAGS, Mode, ModeFlags, NUMA_BALANCING, RELATIVE_NODES, STATIC_NODES, parse_mode,
};
pub use place::{Counter, Spread};
pub use policy::{Policy, Request};
pub use process::{Explanation, Family, Member, PolicySource, Process, Query, Reply, Turn};
pub use rawmask::RawMask;
pub use resolve::Landing;
pub use weight_rules::{WeightFiles, WeightRules};
pub use weights::{TableState, WeightReader, WeightTable, Weights};
