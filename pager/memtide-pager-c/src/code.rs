//! Why a call failed, as a number and a sentence.

use memtide_pager::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The header's numbers.
pub const SETTING: c_int = 1;
/// A fault of ours.
pub const INTERNAL: c_int = 15;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// What a call failed with.
pub struct Failure {
    code: c_int,
    message: String,
}

impl Failure {
    /// An argument that cannot be.
    pub fn argument(message: impl Into<String>) -> Failure {
        Failure {
            code: SETTING,
            message: message.into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            code: number(&error),
            message: error.to_string(),
        }
    }
}

fn number(error: &Error) -> c_int {
    match error {
        Error::Setting { .. } => SETTING,
        Error::File { .. } => 2,
        Error::Empty(_) => 3,
        Error::Changed { .. } => 4,
        Error::Read { .. } => 5,
        Error::NotAdoptable { .. } => 6,
        Error::Userfaultfd { .. } => 7,
        Error::MemoryPolicy { .. } => 8,
        Error::StrictOnly { .. } => 9,
        Error::Thread { .. } => 10,
        Error::Limit { .. } => 11,
        Error::RegionsOpen(_) => 12,
        Error::Forked => 13,
        Error::ShutDown => 14,
        Error::NotLocal(_) => 16,
        _ => INTERNAL,
    }
}

/// Does `work`; its failure becomes the code, and the message of this thread.
pub fn call(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(_) => Failure {
            code: INTERNAL,
            message: "the pager failed in a way that should not be; please report it".to_owned(),
        },
    };
    let text = failure.message.replace('\0', " ");
    MESSAGE.set(CString::new(text).unwrap_or_default());
    failure.code
}

/// Does `work`, whose failure nobody is told of; `otherwise` if it panics.
pub fn quietly<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Shows this thread's message to `look`. It stays where it is until the next
/// failure.
pub fn message<T>(look: impl FnOnce(&CStr) -> T) -> T {
    MESSAGE.with_borrow(|message| look(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_leave_a_code_and_a_message() {
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!(call(|| Err(Error::Forked.into())), 13);
        assert!(message(|text| text.to_string_lossy().contains("forked")));
        assert_eq!(call(|| panic!("on purpose")), INTERNAL);
        assert_eq!(call(|| Err(Failure::argument("a\0b"))), SETTING);
        assert_eq!(message(CStr::to_owned).as_c_str(), c"a b");
    }
}
