//! Whether `PAGEMAP_SCAN` shows exactly the pages that are there.

use super::{ONE_IN, PAGES, hot_pages};
use crate::mover::Process;
use crate::sys::Errno;
use crate::sys::own_memory::OwnPages;
use crate::sys::pagemap::Pagemap;
use crate::sys::pagemap_scan::{Categories, PagemapScan, ScanError};
use std::path::Path;

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum Unproved {
    /// Memory to try it on could not be had.
    #[error("no pages to try it on: {0}")]
    Pages(Errno),
    /// The page map does not open.
    #[error("{0}")]
    Map(String),
    /// The scan is absent or refused.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// It shows something else.
    #[error("PAGEMAP_SCAN shows {seen} of {touched} present pages and {unexpected} absent ones")]
    Wrong {
        /// Pages that were touched.
        touched: usize,
        /// Those of them that it shows.
        seen: usize,
        /// Others that it shows.
        unexpected: usize,
    },
}

/// Touches some pages of this process for the first time and scans; how many
/// there were.
///
/// # Errors
///
/// Why it does not come out.
pub fn prove(proc_root: &Path, process: Process) -> Result<usize, Unproved> {
    let pages = OwnPages::map(PAGES).map_err(Unproved::Pages)?;
    let hot = hot_pages(PAGES);
    hot.iter().for_each(|&page| pages.write(page, 1));
    let map =
        Pagemap::open(proc_root, process.pid).map_err(|error| Unproved::Map(error.to_string()))?;
    let start = pages.address() as u64;
    let page_bytes = (pages.bytes() / PAGES) as u64;
    let mut present = Vec::new();
    // A buffer of a few runs, so that scanning on from where it stopped is tried.
    let mut scan = PagemapScan::with_regions(PAGES / ONE_IN / 4);
    scan.scan(&map, start..start + pages.bytes() as u64, |region| {
        if region.categories.contains(Categories::PRESENT) {
            let offsets = (region.start - start) / page_bytes..(region.end - start) / page_bytes;
            present.extend(offsets.map(|offset| offset as usize));
        }
    })?;
    let seen = present.iter().filter(|page| hot.contains(page)).count();
    match present == hot {
        true => Ok(seen),
        false => Err(Unproved::Wrong {
            touched: hot.len(),
            seen,
            unexpected: present.len() - seen,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_it_or_says_that_it_has_not() {
        let me = Process {
            pid: std::process::id(),
            start_ticks: 0,
        };
        match prove(Path::new("/proc"), me) {
            Ok(pages) => assert_eq!(pages, 64),
            Err(Unproved::Scan(ScanError::Absent)) => {
                eprintln!("not tested: {}", ScanError::Absent);
            }
            Err(other) => panic!("{other}"),
        }
    }
}
