//! The loop's settings, checked once.

use serde::{Deserialize, Serialize};

/// Settings of the loop, checked once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KmigratedConfig {
    pub(super) batch: usize,
    sleep_ms: u32,
    pub(super) open_batches: usize,
    pub(super) refused: Refused,
}

/// What becomes of a hot page that was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refused {
    /// It stays ready while it is hot.
    #[default]
    KeepReady,
    /// Its record is emptied, as the kernel does.
    Forget,
}

/// What is wrong with the loop's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KmigratedError {
    /// A batch too small or too large.
    #[error("batch of {0} folios: 64 to 1024 are possible; choose one of these")]
    Batch(usize),
    /// No batch, or more than are looked through for each page.
    #[error("{0} batches at once: 1 to 64 are possible; choose one of these")]
    OpenBatches(usize),
    /// A pause too short or too long.
    #[error("sleep of {0} ms: 50 to 1000 ms are possible; choose one of these")]
    Sleep(u32),
}

impl Default for KmigratedConfig {
    fn default() -> KmigratedConfig {
        KmigratedConfig {
            batch: 512,
            sleep_ms: 100,
            open_batches: 1,
            refused: Refused::KeepReady,
        }
    }
}

impl KmigratedConfig {
    /// The most folios in a batch (`kmigrated_batch_nr`).
    pub fn with_batch(self, batch: usize) -> Result<KmigratedConfig, KmigratedError> {
        if (64..=1024).contains(&batch) {
            Ok(KmigratedConfig { batch, ..self })
        } else {
            Err(KmigratedError::Batch(batch))
        }
    }

    /// The pause between passes in ms (`kmigrated_sleep_ms`).
    pub fn with_sleep_ms(self, sleep_ms: u32) -> Result<KmigratedConfig, KmigratedError> {
        if (50..=1000).contains(&sleep_ms) {
            Ok(KmigratedConfig { sleep_ms, ..self })
        } else {
            Err(KmigratedError::Sleep(sleep_ms))
        }
    }

    /// How many batches may be filled at once, each for its own target and group.
    /// One, as in the kernel, hands a batch out whenever either changes; where
    /// pages of two sockets alternate, more make fewer and longer batches.
    pub fn with_open_batches(self, open: usize) -> Result<KmigratedConfig, KmigratedError> {
        if (1..=64).contains(&open) {
            let open_batches = open;
            Ok(KmigratedConfig {
                open_batches,
                ..self
            })
        } else {
            Err(KmigratedError::OpenBatches(open))
        }
    }

    /// What becomes of refused pages.
    pub fn with_refused(self, refused: Refused) -> KmigratedConfig {
        KmigratedConfig { refused, ..self }
    }

    /// The most folios in a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The pause between passes in ms.
    pub fn sleep_ms(&self) -> u32 {
        self.sleep_ms
    }
}
