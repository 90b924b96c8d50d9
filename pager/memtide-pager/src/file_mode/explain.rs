//! Says why a read of a mapped file ends in SIGBUS, before it does.

use crate::kernel::Range;
use crate::sys::sigbus::{Served, say};

/// A mapping whose faults cannot be served, only explained.
#[derive(Debug)]
pub(crate) struct Explained {
    pub name: String,
    pub range: Range,
}

impl Served for Explained {
    fn span(&self) -> (usize, usize) {
        (self.range.start, self.range.end())
    }

    fn fault(&self, _: usize) -> bool {
        say(&[
            b"memtide-pager: ",
            self.name.as_bytes(),
            b": a read of the mapped file failed: the file was cut short, or cannot be read\n",
        ]);
        false
    }
}
