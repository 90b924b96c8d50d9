//! `guest eat`: the program of the weighted interleave series' experiment, 256 MiB at once and 65,536 pages one by one.
//!
//! It starts itself once more after setting the policy, as numactl would, so that its heap is under
//! that policy from the first page.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, ensure};

use super::sys::{self, MaskBuffer, MaskPointer};

const WEIGHTED_INTERLEAVE: i64 = 6;
const WHOLE: usize = 256 << 20;
const PAGE: usize = 4096;
const PAGES: usize = WHOLE / PAGE;

/// Allocate 256 MiB and 65,536 pages under weighted interleave
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Nodes as a mask
    #[arg(long, default_value_t = 3)]
    nodes: u64,
    /// The policy is set
    #[arg(long)]
    seated: bool,
}

/// Allocates, prints the address of the 256 MiB, and waits for the end of standard input.
///
/// # Errors
/// When the policy cannot be set or a pipe is gone.
pub fn main(options: &Options) -> Result<()> {
    if !options.seated {
        sys::without_huge_pages()?;
        let mut mask = MaskBuffer::new();
        mask.fill([options.nodes].into_iter(), 0);
        let ret = sys::set_mempolicy(WEIGHTED_INTERLEAVE, MaskPointer::To(&mask), 64);
        ensure!(ret == 0, "set_mempolicy: {ret}");
        let program = std::env::current_exe()?;
        return Err(Command::new(program)
            .args(["eat", "--seated"])
            .exec()
            .into());
    }
    let whole = sys::eat(WHOLE, true);
    for _ in 0..PAGES {
        sys::eat(PAGE, false);
    }
    println!("{whole}");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
