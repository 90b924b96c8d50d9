//! What joins the decisions to a machine, live or simulated.
//!
//! The stores want dense page numbers, machines have sparse addresses:
//! [`space`] is the map. [`placement`] knows where each page is. [`cadence`]
//! says when to observe closely and when to glance, and [`sample`] what a
//! glance is to look at.

pub mod cadence;
pub mod placement;
pub mod sample;
pub mod space;
