//! The command. Only this crate prints.
#![forbid(unsafe_code)]

mod balance;
mod cli;
mod doctor;
mod lent_weights;
mod lines;
mod nodes;
mod policy;
mod rebalance;
mod run;
mod sim;
mod source;
mod tier;
mod topology;
mod trace;
mod weight_words;
mod weights;

fn main() -> std::process::ExitCode {
    cli::main()
}
