//! One seed: the kernel's answers beside the model's.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::calls::{Answer, Call, Machine, Sequence};
use super::{generate, machine};
use crate::guest::procfs::parse_list;

/// Lines shown of what led to a disagreement.
const SHOWN: usize = 24;

/// Compare the kernel's answers to a random sequence with memtide's
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Which sequence
    #[arg(long)]
    seed: u64,
    /// Its length
    #[arg(long, default_value_t = CALLS)]
    calls: usize,
    /// Print all calls with both answers
    #[arg(long)]
    show: bool,
}

/// Calls of a sequence unless told otherwise.
pub const CALLS: usize = 800;

/// A sequence with the kernel's answers and the model's.
#[derive(Debug)]
pub struct Answered {
    /// The seed that it came from.
    pub seed: u64,
    /// The calls.
    pub sequence: Sequence,
    /// An answer for each call.
    pub kernel: Vec<Answer>,
    /// The same by `memtide policy replay`.
    pub model: Vec<Answer>,
}

/// The first call that the two answer differently.
#[derive(Debug)]
pub struct Disagreement<'a> {
    answered: &'a Answered,
    at: usize,
}

impl Answered {
    /// Where the answers differ first.
    #[must_use]
    pub fn disagreement(&self) -> Option<Disagreement<'_>> {
        let differs = |&at: &usize| self.kernel[at] != self.model[at];
        let at = (0..self.kernel.len()).find(differs)?;
        Some(Disagreement { answered: self, at })
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl fmt::Display for Disagreement<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answered {
            seed,
            sequence,
            kernel,
            model,
        } = self.answered;
        let (at, machine) = (self.at, &sequence.machine);
        writeln!(formatter, "seed {seed}, line {}:", at + 2)?;
        writeln!(formatter, "machine {}", json(machine))?;
        let before = at.saturating_sub(SHOWN)..at;
        for (call, answer) in sequence.calls[before.clone()].iter().zip(&kernel[before]) {
            writeln!(formatter, "both   {} -> {}", json(call), json(answer))?;
        }
        writeln!(formatter, "call   {}", json(&sequence.calls[at]))?;
        writeln!(formatter, "kernel {}", json(&kernel[at]))?;
        write!(formatter, "model  {}", json(&model[at]))
    }
}

/// Makes the sequence of a seed, and has both answer it.
///
/// # Errors
/// When one of the two does not answer every call.
pub fn run(seed: u64, calls: usize) -> Result<Answered> {
    machine::reset_table()?;
    let machine = standing(machine::here(0)?, seed);
    let sequence = generate::sequence(&machine, seed, calls);
    let file = std::env::temp_dir().join("agreement.jsonl");
    std::fs::write(&file, sequence.lines()?.join("\n") + "\n")?;
    let kernel = answers(Command::new("guest").arg("execute"), &file, &sequence)?;
    machine::reset_table()?;
    let mut memtide = Command::new("memtide");
    let model = answers(memtide.args(["policy", "replay"]), &file, &sequence)?;
    Ok(Answered {
        seed,
        sequence,
        kernel,
        model,
    })
}

/// How the process stands on the machine at first: with fewer rights for every fourth seed, in a
/// smaller cpuset for every fifth, on the other node's CPU for every third.
fn standing(mut machine: Machine, seed: u64) -> Machine {
    let list = |text: &str| parse_list(text).unwrap_or_default();
    machine.capable = !seed.is_multiple_of(4);
    if let Some(node) = list(&machine.cpu_nodes)
        .last()
        .filter(|_| seed.is_multiple_of(3))
    {
        machine.run_on = *node;
    }
    if seed.is_multiple_of(5) {
        let nodes = list(&machine.memory_nodes);
        let some = nodes.iter().skip(seed as usize / 5 % nodes.len());
        machine.cpuset = some.map(u32::to_string).collect::<Vec<_>>().join(",");
    }
    machine
}

/// What `command` answers to `file`.
///
/// # Errors
/// When that is not one answer for each call.
pub fn answers(command: &mut Command, file: &Path, sequence: &Sequence) -> Result<Vec<Answer>> {
    let output = command.arg(file).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", complaint.trim());
    let parse =
        |line: &str| serde_json::from_str(line).with_context(|| format!("no answer: {line}"));
    let text = String::from_utf8(output.stdout)?;
    let answers = text.lines().map(parse).collect::<Result<Vec<Answer>>>()?;
    let (got, wanted) = (answers.len(), sequence.calls.len());
    ensure!(
        got == wanted,
        "{command:?}: {got} answers to {wanted} calls"
    );
    Ok(answers)
}

/// Prints how one seed ends.
///
/// # Errors
/// On a disagreement.
pub fn main(options: &Options) -> Result<()> {
    let answered = run(options.seed, options.calls)?;
    if options.show {
        let answers = answered.kernel.iter().zip(&answered.model);
        for (call, (kernel, model)) in answered.sequence.calls.iter().zip(answers) {
            println!("{}\n  kernel {}", json(call), json(kernel));
            if kernel != model {
                println!("  model  {}", json(model));
            }
        }
    }
    if let Some(disagreement) = answered.disagreement() {
        anyhow::bail!("{disagreement}");
    }
    println!("{} calls agree", answered.kernel.len());
    Ok(())
}

/// Whether a call says where pages are: how many, for the count of pages compared.
#[must_use]
pub fn pages_compared(call: &Call, answer: &Answer) -> u64 {
    match call {
        Call::Touch { .. } | Call::Where { .. } => {
            let runs = answer.nodes.iter().flatten();
            runs.filter(|run| run.0 >= 0).map(|run| run.1).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::Line;
    use super::*;

    #[test]
    fn the_first_difference_is_told_with_what_led_to_it() {
        let machine = r#"{"memory_nodes":"0","cpu_nodes":"0","possible_nodes":"0","kernel":"6.12",
            "cpuset":"0","run_on":0,"weights":{},"auto":null,"distances":[[10]],
            "zero_page_node":0,"capable":true}"#;
        let machine: Machine = serde_json::from_str(machine).unwrap();
        let run_on = |node| Call::RunOn { node };
        let ret = |ret| Answer {
            ret,
            ..Answer::default()
        };
        let mut answered = Answered {
            seed: 7,
            sequence: Sequence {
                machine,
                calls: (0..3).map(run_on).map(Line::from).collect(),
            },
            kernel: vec![ret(0), ret(-22), ret(-22)],
            model: vec![ret(0), ret(0), ret(0)],
        };
        let text = answered.disagreement().unwrap().to_string();
        assert!(text.starts_with("seed 7, line 3:\n"), "{text}");
        assert!(
            text.ends_with(
                "both   {\"call\":\"run_on\",\"node\":0} -> {\"ret\":0}\n\
                 call   {\"call\":\"run_on\",\"node\":1}\n\
                 kernel {\"ret\":-22}\nmodel  {\"ret\":0}"
            ),
            "{text}"
        );
        answered.model.clone_from(&answered.kernel);
        assert!(answered.disagreement().is_none());
    }
}
