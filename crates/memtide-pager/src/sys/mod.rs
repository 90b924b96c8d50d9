//! The system calls that no safe crate wraps, one file each.
//!
//! This is the only place of the crate where `unsafe` may stand. A wrapper
//! returns the kernel's own `Errno`: what an error means is for the caller to
//! decide.
#![allow(unsafe_code)]
