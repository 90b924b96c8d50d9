//! A promise of time that was not kept, told from all others.
//!
//! What memtide promises of *safety* (what it moves, what it leaves behind, what it says) holds on any
//! machine, and a test of it has one try. *Times* are judged in quiet seconds ([`super::pace`]), and on
//! a shared emulated machine even those are tried up to three times, every try shown, and told
//! once more at the end of the run. So that nothing is tried again by mistake, an error is one of time
//! only if it says so.

use std::time::Duration;

use anyhow::Result;

use super::pace::Stretch;

/// What came too late or took too long.
#[derive(Debug)]
pub struct Late(pub String);

impl std::fmt::Display for Late {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

/// An error of time unless `kept`.
///
/// # Errors
/// [`Late`], in these words.
pub fn in_time(kept: bool, words: impl FnOnce() -> String) -> Result<()> {
    match kept {
        true => Ok(()),
        false => Err(Late(words()).into()),
    }
}

/// An error of time once `limit` of quiet time has passed in `stretch`.
///
/// # Errors
/// [`Late`], in these words and with the slowness.
pub fn within(stretch: &Stretch, limit: Duration, words: impl FnOnce() -> String) -> Result<()> {
    in_time(!stretch.is_over(limit), || {
        format!(
            "{} within {} s on a machine {:.1} times as slow as a quiet one",
            words(),
            limit.as_secs_f64(),
            stretch.slowness()
        )
    })
}

/// Whether what failed is a promise of time.
#[must_use]
pub fn is_late(error: &anyhow::Error) -> bool {
    error.is::<Late>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn late_stays_late_with_more_words() {
        let late = in_time(false, || "no promotion".to_owned()).context("after a crash");
        assert!(is_late(&late.unwrap_err()));
        assert!(!is_late(&anyhow::anyhow!("a page is lost")));
        assert!(in_time(true, String::new).is_ok());
    }
}
