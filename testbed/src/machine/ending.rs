//! How a boot ended.
//!
//! What can go wrong is told apart, because the cures differ: the guest hangs ([`Ending::Hang`]: it
//! has sent no report for too long, or the whole boot takes too long; its QEMU is killed, nothing
//! else), its kernel oopses ([`Ending::Oops`]), or QEMU does not start ([`Ending::Broken`]). One oops
//! is an artefact of emulation and not of the kernel: patching its own code while other emulated CPUs
//! run it. [`Ending::Patching`] is an oops with that face; [`crate::guest::pins`] says why it happens
//! and makes it rare. What follows from an end is [`crate::suite::series`]'s to decide.

use std::path::Path;
use std::process::ExitStatus;

use super::DEBUG_EXIT_VALUE;

/// How a boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest finished its work; the status that it reported.
    Orderly(i32),
    /// Killed after a time limit; which.
    Hang(String),
    /// The guest's kernel died; the line that says so.
    Oops(String),
    /// It died patching its own code, which is a defect of the emulation; the line that says so.
    Patching(String),
    /// QEMU ended in another way; its status and words.
    Broken(String),
}

impl Ending {
    /// A word or two for counting ends of a kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Orderly(_) => "end without all verdicts",
            Self::Hang(_) => "hang",
            Self::Oops(_) => "oops",
            Self::Patching(_) => "oops of patching its own code under emulation",
            Self::Broken(_) => "broken machine",
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Orderly(status) => write!(formatter, "the guest ended with status {status}"),
            Self::Hang(limit) => write!(formatter, "the guest hung: {limit}"),
            Self::Oops(line) => write!(formatter, "the kernel died: {line}"),
            Self::Patching(line) => write!(
                formatter,
                "the kernel died patching its own code, as it may under emulation: {line}"
            ),
            Self::Broken(text) => write!(formatter, "the machine broke: {text}"),
        }
    }
}

/// The last `count` lines, or all from the first that says that the kernel died, if those are more
/// and not more than three times as many.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from_death = lines
        .iter()
        .position(|line| oops_line(line).is_some())
        .map_or(0, |at| lines.len() - at);
    let shown = if from_death <= 3 * count {
        count.max(from_death)
    } else {
        count
    };
    lines[lines.len().saturating_sub(shown)..].join("\n")
}

/// Whether an oops in this console is one of code patching.
fn is_patching(console: &str) -> bool {
    ["text_poke", "poke_int3", "static_key", "jump_label", "int3"]
        .iter()
        .any(|name| console.contains(name))
}

/// The console line on which the kernel says that it died.
pub(super) fn oops_line(text: &str) -> Option<String> {
    let signs = [
        "Kernel panic",
        "BUG: ",
        "Oops: ",
        "kernel BUG at",
        "general protection fault",
    ];
    // A stall is what a busy host looks like from inside an emulated machine, not a death.
    text.lines()
        .find(|line| signs.iter().any(|sign| line.contains(sign)) && !line.contains("lockup"))
        .map(|line| line.trim().to_owned())
}

pub(super) fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// How a boot ended whose QEMU has `ended`, from what the guest reported, what its console said and
/// what this side did.
pub(super) fn judge(
    ended: ExitStatus,
    status: Option<i32>,
    oops: Option<String>,
    hang: Option<String>,
    console: &Path,
    errors: &Path,
) -> Ending {
    let orderly = ended.code() == Some(i32::from(DEBUG_EXIT_VALUE) * 2 + 1);
    match (status, oops, hang) {
        (Some(status), ..) if orderly => Ending::Orderly(status),
        (_, Some(line), _) if is_patching(&read_lossy(console)) => Ending::Patching(line),
        (_, Some(line), _) => Ending::Oops(line),
        _ if orderly => Ending::Broken("its init gave up before the work was done".to_owned()),
        (_, None, Some(limit)) => Ending::Hang(limit),
        _ => {
            let words = format!("{ended}: {}", read_lossy(errors).trim());
            Ending::Broken(words.trim_end_matches([':', ' ']).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oops_lines_are_found() {
        let text = "[ 1.0] fine\n[ 2.0] BUG: unable to handle page fault\n";
        assert_eq!(
            oops_line(text).as_deref(),
            Some("[ 2.0] BUG: unable to handle page fault")
        );
        assert_eq!(oops_line("all is well\n"), None);
        assert_eq!(
            oops_line("watchdog: BUG: soft lockup - CPU#2 stuck for 26s!\n"),
            None
        );
    }

    #[test]
    fn a_death_is_shown_from_its_first_line() {
        let text = "a\nb\nOops: int3: 0000\nc\nd\n";
        assert_eq!(last_lines(text, 1), "Oops: int3: 0000\nc\nd");
        assert_eq!(last_lines(text, 4), "b\nOops: int3: 0000\nc\nd");
        // Five lines from the death on are more than three times one.
        assert_eq!(last_lines("BUG: x\n1\n2\n3\n4\n", 1), "4");
        assert_eq!(last_lines("a\nb\n", 1), "b");
    }

    #[test]
    fn an_end_is_orderly_only_with_the_last_report() {
        use std::os::unix::process::ExitStatusExt;
        let nowhere = Path::new("/nonexistent");
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let judge = |ended, status, oops: Option<&str>, hang: Option<&str>| {
            let owned = |text: &str| text.to_owned();
            judge(
                ended,
                status,
                oops.map(owned),
                hang.map(owned),
                nowhere,
                nowhere,
            )
        };
        // 0x20 twice plus one.
        assert_eq!(judge(exit(65), Some(3), None, None), Ending::Orderly(3));
        assert!(matches!(
            judge(exit(65), None, None, None),
            Ending::Broken(_)
        ));
        assert_eq!(
            judge(exit(0), Some(0), Some("BUG: a"), None),
            Ending::Oops("BUG: a".into())
        );
        let killed = ExitStatus::from_raw(9);
        assert_eq!(
            judge(killed, None, None, Some("240 s")),
            Ending::Hang("240 s".into())
        );
        let broken = judge(killed, None, None, None);
        assert_eq!(broken, Ending::Broken("signal: 9 (SIGKILL)".into()));
    }

    #[test]
    fn patching_has_a_face() {
        assert!(is_patching("Oops: int3: 0000 [#1]"));
        assert!(is_patching(" ? smp_text_poke_batch_finish+0x1/0x2"));
        assert!(!is_patching("BUG: kernel NULL pointer dereference"));
    }
}
