//! The command. Only this crate prints.
#![forbid(unsafe_code)]

mod cli;
mod doctor;
mod lent_weights;
mod nodes;
mod policy;
mod rebalance;
mod run;
mod sim;
mod source;
mod tier;
mod topology;
mod weight_words;
mod weights;

/// Tables with an entry a page are on huge pages.
#[global_allocator]
static ALLOCATOR: memtide_linux::HugePages = memtide_linux::HugePages;

fn main() -> std::process::ExitCode {
    cli::main()
}
