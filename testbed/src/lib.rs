//! Boots Debian kernels in QEMU with NUMA nodes of different speed and runs the end-to-end tests in
//! them.
//!
//! Everything that changes a kernel is tested here and nowhere else: the machine on which the
//! project is developed may have one node, other users, or another kernel. A guest boots in about
//! four seconds under software emulation, with CPU-less nodes behind an HMAT, memory tiers, NUMA
//! balancing, MGLRU and DAMON.
//!
//! On the host: [`fetch`] gets QEMU and kernels, [`image`] packs the guest's file system,
//! [`topology`] and [`machine`] boot it, [`report`] is what crosses. In the guest: [`guest`], the
//! library of the `guest` program, which is init, victim and test runner in one.

mod apt;
pub mod apt_source;
pub mod cpio;
pub mod fetch;
pub mod guest;
mod host_sys;
pub mod image;
pub mod kernel;
pub mod lab;
pub mod lock;
pub mod machine;
pub mod report;
pub mod suite;
pub mod system;
pub mod topology;
