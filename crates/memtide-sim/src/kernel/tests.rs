//! The kernel's memory side on small machines. Balancing and migration have tests of their own.

mod faulting;
mod memory;
mod placing;
mod reclaiming;
