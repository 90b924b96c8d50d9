//! What the kernel changes in its own code while tests run, and who asked for it.
//!
//! A diagnostic for emulated kernels that die of it (see [`super::pins`]): the function tracer stands
//! on the two functions through which every static key and static call is switched, with the stack
//! of the caller. Looking costs nothing while nothing is switched.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

const TRACING: &str = "/sys/kernel/tracing";
/// A static key's jumps; a static call's target.
const PATCHERS: [&str; 2] = [
    "arch_jump_label_transform_apply",
    "arch_static_call_transform",
];
/// Callers shown of each.
const FRAMES: usize = 8;

/// A running trace.
#[derive(Debug)]
pub struct Patches(());

impl Patches {
    /// Starts to trace.
    ///
    /// # Errors
    /// When the kernel has no function tracer.
    pub fn trace() -> Result<Self> {
        let filter = Path::new(TRACING).join("set_ftrace_filter");
        for name in PATCHERS {
            File::options()
                .append(true)
                .open(&filter)
                .and_then(|mut file| file.write_all(name.as_bytes()))
                .with_context(|| format!("cannot trace {name}"))?;
        }
        write("options/func_stack_trace", "1")?;
        write("current_tracer", "function")?;
        Ok(Self(()))
    }

    /// What was patched since the last call, a line for each kind.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn since(&self) -> Result<Vec<String>> {
        let path = Path::new(TRACING).join("trace");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        write("trace", "")?;
        Ok(summary(&text))
    }
}

fn write(file: &str, text: &str) -> Result<()> {
    let path = Path::new(TRACING).join(file);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The stacks of a trace, counted: `2 patches by memtide: a < b < c`. A stack is a line that
/// ends in `<stack trace>` and the lines with ` => function` below it.
fn summary(trace: &str) -> Vec<String> {
    let mut stacks: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in trace.lines() {
        if let Some(head) = line.trim().strip_suffix("<stack trace>") {
            let task = head.split_whitespace().next().unwrap_or_default();
            let name = task.rsplit_once('-').map_or(task, |(name, _)| name);
            stacks.push((name, vec![]));
        } else if let Some((function, (_, stack))) =
            line.trim().strip_prefix("=> ").zip(stacks.last_mut())
        {
            stack.push(function);
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (who, stack) in stacks {
        let callers = stack
            .iter()
            .skip_while(|name| !PATCHERS.contains(name))
            .take(FRAMES);
        let callers: Vec<&str> = callers.copied().collect();
        *counts
            .entry(format!("{who}: {}", callers.join(" < ")))
            .or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(who, count)| format!("{count} patches by {who}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_counted_by_caller() {
        let one = "  memtide-9   [000] .l...  3.8: arch_static_call_transform <-x\n  \
                   memtide-9   [000] .l...  3.8: <stack trace>\n \
                   => [FTRACE TRAMPOLINE]\n => arch_static_call_transform\n => x\n => y\n";
        let header = "# tracer: function\n#\n";
        assert_eq!(
            summary(&format!("{header}{one}{one}")),
            ["2 patches by memtide: arch_static_call_transform < x < y"]
        );
        assert!(summary(header).is_empty());
    }
}
