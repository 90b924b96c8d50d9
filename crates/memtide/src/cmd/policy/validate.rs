//! `memtide policy validate`: would the kernel accept this policy?

use super::judge::{Accepted, Refused, judge};
use super::machine::MachineArgs;
use super::words::{PolicyArgs, policy_name};
use crate::shared::context::Context;
use memtide_core::mempolicy::Mode;
use memtide_core::mempolicy::process::{MF_MOVE, MF_MOVE_ALL, MF_STRICT};
use memtide_core::nodemask::NodeMask;
use serde::Serialize;
use std::process::ExitCode;

/// Say whether the kernel would accept a policy, and why not.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,

    /// Ask about mbind of a mapped range instead of set_mempolicy
    #[arg(long)]
    mbind: bool,

    /// mbind's flags: strict, move, move-all, or the raw word
    #[arg(long, value_name = "FLAG,...", value_parser = flags, requires = "mbind")]
    flags: Option<u32>,

    #[command(flatten)]
    machine: MachineArgs,
}

/// What the command says; the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    accepted: bool,
    call: &'static str,
    ret: i32,
    errno: Option<String>,
    why: Option<String>,
    mode_word: u32,
    policy: Option<String>,
    asked: Option<NodeMask>,
    allowed: NodeMask,
    effective: Option<NodeMask>,
}

fn flags(text: &str) -> Result<u32, String> {
    if let Ok(word) = super::words::number(text) {
        return word.try_into().map_err(|_| "not 32 bits".to_owned());
    }
    let flag = |word| match word {
        "strict" => Ok(MF_STRICT),
        "move" => Ok(MF_MOVE),
        "move-all" => Ok(MF_MOVE_ALL),
        _ => Err(format!(
            "no flag {word:?}; there are strict, move, move-all"
        )),
    };
    text.split(',')
        .try_fold(0, |word, part| Ok(word | flag(part)?))
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let Args {
        policy, machine, ..
    } = args;
    let description = machine.describe(context)?;
    let flags = args.mbind.then(|| args.flags.unwrap_or(0));
    let word = policy.mode.0;
    let judged = judge(
        &description,
        word,
        &policy.raw_mask(),
        policy.maxnode,
        flags,
    );
    let report = Report {
        accepted: judged.is_ok(),
        call: if args.mbind { "mbind" } else { "set_mempolicy" },
        mode_word: word,
        allowed: *description.process().allowed(),
        ret: 0,
        errno: None,
        why: None,
        policy: None,
        asked: None,
        effective: None,
    };
    let report = match judged {
        Ok(accepted) => Report {
            policy: Some(policy_name(accepted.mode, accepted.flags)),
            asked: Some(accepted.asked),
            effective: Some(accepted.effective),
            why: Some(meaning(&accepted).to_owned()),
            ..report
        },
        Err(Refused { errno, why }) => Report {
            ret: -errno.code(),
            errno: Some(errno.to_string()),
            why: Some(why),
            ..report
        },
    };
    match context.json {
        true => context.print_json(&report)?,
        false => context.print(&text(&report))?,
    }
    Ok(ExitCode::from(u8::from(!report.accepted)))
}

fn text(report: &Report) -> String {
    let why = report.why.as_deref().unwrap_or_default();
    let (Some(policy), Some(asked), Some(effective)) =
        (&report.policy, &report.asked, &report.effective)
    else {
        let errno = report.errno.as_deref().unwrap_or_default();
        return format!(
            "{} fails with {errno} ({}): {why}\n",
            report.call, report.ret
        );
    };
    let mut text = format!("{} accepts {policy}: {why}\n", report.call);
    if !asked.is_empty() {
        text.push_str(&format!(
            "nodes asked for {asked}, allowed {}, in force {effective}\n",
            report.allowed
        ));
    }
    text
}

/// Where pages go under a policy.
fn meaning(accepted: &Accepted) -> &'static str {
    match accepted.mode {
        Mode::Default => "no policy, the next wider one applies",
        Mode::Local => "pages go to the node of the CPU that touches them, then by distance",
        Mode::Preferred => "pages go to the node in force, then by distance",
        Mode::PreferredMany => "pages go to the nearest node in force, then to any by distance",
        Mode::Bind => "pages go to the nearest node in force, and to no other",
        Mode::Interleave => "pages go to the nodes in force in turn, by address",
        Mode::WeightedInterleave => {
            "pages go to the nodes in force in turn, by address, each as often as its weight says"
        }
    }
}
