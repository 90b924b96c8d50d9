//! The command. Only this crate prints.
#![forbid(unsafe_code)]

mod balance;
mod cli;
mod doctor;
mod foreground;
mod generate;
mod journal;
mod lent_weights;
mod lines;
mod nodes;
mod outside;
mod pager;
mod policy;
mod rebalance;
mod report;
mod run;
mod sim;
mod source;
mod tier;
mod topology;
mod trace;
mod weight_words;
mod weights;

/// A simulated machine's tables are on huge pages.
#[global_allocator]
static ALLOCATOR: memtide_linux::HugePages = memtide_linux::HugePages;

fn main() -> std::process::ExitCode {
    cli::main()
}
