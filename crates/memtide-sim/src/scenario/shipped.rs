//! The scenarios that come with memtide, embedded so that they run by name from anywhere.

use super::Scenario;
use crate::text::TextError;

/// A scenario that comes with memtide.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its path in the repository.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! scenarios {
    ($($name:literal,)*) => {
        &[$(Shipped {
            name: $name,
            path: concat!("scenarios/", $name, ".toml"),
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        },)*]
    };
}

/// A machine that comes with memtide.
#[derive(Clone, Copy, Debug)]
pub struct ShippedMachine {
    /// Its name.
    pub name: &'static str,
    /// Its path beside the scenarios.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! machines {
    ($($name:literal,)*) => {
        &[$(ShippedMachine {
            name: $name,
            path: concat!("machines/", $name, ".toml"),
            text: include_str!(concat!("../../scenarios/machines/", $name, ".toml")),
        },)*]
    };
}

/// All of them, in the order of the documents; those for newcomers first.
pub const SHIPPED: &[Shipped] = scenarios! {
    "zipf-drift",
    "phases",
    "scan-over-hot",
    "scale",
    "scale-large",
    "scale-4g",
    "hot-larger-than-fast",
    "warm-and-full",
    "bursty",
    "bandwidth-bound",
    "two-tenants",
    "noisy-neighbour",
    "burst",
    "pointer-chase",
    "page-count",
    "stream-interleave",
    "mlc-interleave",
    "xsbench-interleave",
    "pghot-mode1",
    "pghot-mode2",
    "pghot-mode3",
    "pghot-overcommit",
    "numab-bind-pmbench",
    "ibs-two-node",
    "sockets",
    "luf-llama",
};

/// Their machines.
pub const MACHINES: &[ShippedMachine] = machines! {
    "zen5-cxl",
    "zen4-two-node",
    "four-node-dram",
    "stream-cxl",
    "mlc-cxl",
    "xsbench-cxl",
    "spr-cxl",
    "small-cxl",
    "shared-cxl",
    "narrow-cxl",
    "contended-numa",
    "scale-cxl",
};

/// The scenario of that name, if it comes with memtide.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

impl Shipped {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// None for those that are tested; see [`Scenario::read`].
    pub fn read(&self) -> Result<Scenario, TextError> {
        Scenario::read(self.text, self.path, &mut |path| {
            let machine = MACHINES.iter().find(|machine| machine.path == path);
            machine
                .map(|machine| machine.text.to_owned())
                .ok_or_else(|| format!("{path}: no machine that comes with memtide"))
        })
    }
}
