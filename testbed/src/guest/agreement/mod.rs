//! Does the model of mempolicy say what the kernel does?
//!
//! A *sequence* is a machine and a list of calls, in the lines of `memtide policy replay`
//! (`docs/policy-replay.md`). [`generate`] invents sequences from a seed, [`execute`] lets the kernel
//! answer one, `memtide policy replay` lets the model answer it, and the answers must be equal line by
//! line. [`coverage`] counts what the sequences have tried.
//!
//! An answer of the kernel's must depend on nothing but the calls. That rules out nearly everything a
//! program does between two calls: memory that the kernel allocates for itself on behalf of the task
//! (a page table, a slab, a pipe's buffer) advances the task's interleave counter. So the calls run in
//! a child that does nothing else (`child`): it has one thread, allocates nothing, answers into
//! shared memory that is there already, and leaves to its parent what needs no caller: the cpuset, the
//! weights, the choice of a CPU.
//!
//! Where a sequence forks, the children make their own calls ([`cast`]): one process acts at a time
//! and wakes the next. After a fork nobody asks for the counter until a policy has reset it, and never
//! in a child, whose page tables come as it runs.

pub mod agree;
pub mod calls;
mod cast;
mod child;
pub mod coverage;
pub mod draw;
pub mod eat;
pub mod execute;
pub mod generate;
pub mod machine;
mod sys;
