//! The options of `memtide run`: numactl's, under numactl's names.

use crate::shared::nodes::List;
use crate::shared::spread::{WeightsArg, weights};
use clap::Args;
use std::ffi::OsString;

/// Start a program with a memory policy and on chosen CPUs, as numactl does
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Place pages on these nodes in turn
    #[arg(
        long,
        short = 'i',
        value_name = "NODES",
        group = "policy",
        allow_negative_numbers = true
    )]
    pub interleave: Option<List>,

    /// Place pages on these nodes in turn, by the kernel's interleave weights
    #[arg(
        long,
        short = 'w',
        value_name = "NODES",
        group = "policy",
        allow_negative_numbers = true
    )]
    pub weighted_interleave: Option<List>,

    /// Place pages on these nodes only
    #[arg(long, short = 'm', value_name = "NODES", groups = ["policy", "bound"], allow_negative_numbers = true)]
    pub membind: Option<List>,

    /// Place pages on this node, and on others when it is full
    #[arg(
        long,
        short = 'p',
        value_name = "NODE",
        group = "policy",
        allow_negative_numbers = true
    )]
    pub preferred: Option<List>,

    /// Place pages on these nodes, and on others when they are full
    #[arg(long, short = 'P', value_name = "NODES", groups = ["policy", "bound"], allow_negative_numbers = true)]
    pub preferred_many: Option<List>,

    /// Place pages on the node of the CPU that touches them first
    #[arg(long, short = 'l', group = "policy")]
    pub localalloc: bool,

    /// Run on the CPUs of these nodes
    #[arg(
        long,
        short = 'N',
        value_name = "NODES",
        group = "cpus",
        allow_negative_numbers = true
    )]
    pub cpunodebind: Option<List>,

    /// Run on these CPUs
    #[arg(
        long,
        short = 'C',
        value_name = "CPUS",
        group = "cpus",
        allow_negative_numbers = true
    )]
    pub physcpubind: Option<List>,

    /// Let NUMA balancing move pages among the nodes of --membind or --preferred-many
    #[arg(long, short = 'b', requires = "bound")]
    pub balancing: bool,

    /// Take every node and CPU of the machine as allowed, whatever the cpuset says
    #[arg(long, short = 'a')]
    pub all: bool,

    /// Weights for this run, such as 0=9,2=1; pages are moved there while it runs
    #[arg(long, value_name = "NODE=WEIGHT,..", value_parser = weights, allow_negative_numbers = true)]
    pub weights: Option<WeightsArg>,

    /// Write the weights into the kernel's table, for every program, and put back what was there at the end
    #[arg(long, requires = "weights")]
    pub apply_weights: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}
