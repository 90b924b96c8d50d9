//! The command. Only this crate prints.
#![forbid(unsafe_code)]

mod cli;
mod doctor;
mod lent_weights;
mod nodes;
mod pager;
mod policy;
mod rebalance;
mod run;
mod sim;
mod source;
mod tier;
mod topology;
mod weight_words;
mod weights;

fn main() -> std::process::ExitCode {
    cli::main()
}
