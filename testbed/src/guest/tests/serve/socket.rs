//! The service's control socket, as its commands find it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::guest::late::within;
use crate::guest::pace::Stretch;
use crate::guest::tests::manners::PATIENCE;
use crate::guest::tests::manners::group::Group;

const SOCKET: &str = "/run/memtide/io.memtide";

/// What `memtide status --json` says, as far as this test looks at it.
#[derive(Deserialize)]
struct Standing {
    setup: Setup,
    processes: u64,
    fast_bytes: u64,
    promoted_bytes: u64,
    refused: Option<String>,
}

#[derive(Deserialize)]
struct Setup {
    selected: String,
}

/// The commands' answers while the service runs; and the socket is for root alone.
pub(super) fn asked(group: &Group, pid: u32) -> Result<()> {
    let about = std::fs::symlink_metadata(SOCKET).context(SOCKET)?;
    let private = about.file_type().is_socket() && about.mode() & 0o777 == 0o600;
    ensure!(private, "{SOCKET} has mode {:o}", about.mode());
    let standing = once_promoted()?;
    let selected = group.path().display().to_string();
    ensure!(
        standing.setup.selected == selected,
        "it manages {}",
        standing.setup.selected
    );
    ensure!(standing.processes == 1, "{} processes", standing.processes);
    ensure!(standing.fast_bytes > 0, "nothing is on fast nodes");
    let text = done(&["status"])?;
    ensure!(text.contains("\nmanaged   1 processes with "), "{text}");
    let picture = done(&["top", "--once"])?;
    ensure!(
        picture.starts_with("memtide") && picture.contains("\nfast "),
        "{picture}"
    );
    let picture = done(&["top", "--once", "--processes"])?;
    let row = format!("\n{pid} ");
    ensure!(picture.contains(&row), "{picture}");
    Ok(())
}

/// The last reload was refused for this reason.
pub(super) fn remembers(why: &str) -> Result<()> {
    let refused = standing()?.refused.unwrap_or_default();
    ensure!(refused.contains(why), "the status says {refused:?}");
    Ok(())
}

/// A reload is refused for this reason.
pub(super) fn refuses(why: &str) -> Result<()> {
    let output = memtide(&["reload"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1) && said.contains(why) && said.lines().count() == 1,
        "{output:?}"
    );
    Ok(())
}

/// A reload is taken and says so.
pub(super) fn takes(change: &str) -> Result<()> {
    let said = done(&["reload"])?;
    ensure!(said.contains(change), "{said}");
    ensure!(
        standing()?.refused.is_none(),
        "it still speaks of the last refusal"
    );
    Ok(())
}

/// What these words print, which names `wanted`.
pub(super) fn says(words: &[&str], wanted: &str) -> Result<()> {
    let said = done(words)?;
    ensure!(said.contains(wanted), "{words:?}: {said}");
    Ok(())
}

/// All that `memtide status` prints, in one line.
pub(super) fn status() -> String {
    done(&["status"]).map_or_else(|error| error.to_string(), |text| text.replace('\n', " | "))
}

/// The service has ended: no socket, and one line that says so.
pub(super) fn is_gone() -> Result<()> {
    ensure!(!std::path::Path::new(SOCKET).exists(), "{SOCKET} is left");
    let output = memtide(&["status"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1) && said.starts_with("memtide: no memtide serve answers"),
        "{output:?}"
    );
    Ok(())
}

/// Once it tells of a promotion, which it does about a second later: pages may be home before that.
fn once_promoted() -> Result<Standing> {
    let stretch = Stretch::begin();
    loop {
        let standing = standing()?;
        if standing.promoted_bytes > 0 {
            return Ok(standing);
        }
        within(&stretch, PATIENCE, || {
            "the status tells of no promotion".to_owned()
        })?;
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn standing() -> Result<Standing> {
    let text = done(&["status", "--json"])?;
    serde_json::from_str(&text).with_context(|| text)
}

/// What it printed, if it succeeded.
fn done(words: &[&str]) -> Result<String> {
    let output = memtide(words)?;
    ensure!(output.status.success(), "{words:?}: {output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn memtide(words: &[&str]) -> Result<Output> {
    let mut command = Command::new("memtide");
    command
        .args(words)
        .output()
        .with_context(|| format!("{words:?}"))
}
