//! Conservation.

use super::Kernel;

/// What does not add up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

impl Kernel {
    /// Looks at everything.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    pub fn check(&self) -> Result<(), Violation> {
        Ok(())
    }

    pub(super) fn check_if_small(&self) {}
}
