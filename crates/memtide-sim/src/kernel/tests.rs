//! The kernel's memory side on small machines. Balancing and migration have tests of their own.

mod faulting;
mod placing;
mod reclaiming;
