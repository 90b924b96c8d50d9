//! The environment of the preload library, the values one after the other with a zero byte between:
//! settings or an error, and a path is matched by them or not.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// Not the crate: linked in, it would take over this program's own calls.
#[path = "../../pager/memtide-pager-preload/src/pattern.rs"]
mod pattern;
#[path = "../../pager/memtide-pager-preload/src/settings.rs"]
#[allow(dead_code)]
mod settings;

use settings::{BUDGET, EVICTION, FILES, LOCAL, STATS, STATUS, Settings};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let values: Vec<&OsStr> = bytes.splitn(7, |byte| *byte == 0).map(OsStr::from_bytes).collect();
    // The fifth value is the path.
    let names = [FILES, BUDGET, EVICTION, STATS, "", LOCAL, STATUS];
    let read = Settings::read(|asked| {
        let at = names.iter().position(|name| *name == asked)?;
        values.get(at).map(|value| (*value).to_owned())
    });
    match read {
        Ok(Some(settings)) => {
            assert!(!settings.files.is_empty());
            if let Some(path) = values.get(4) {
                settings.wants(Path::new(path));
            }
        }
        Ok(None) => {}
        Err(error) => assert!(error.starts_with("MEMTIDE_PAGER_"), "{error}"),
    }
});
