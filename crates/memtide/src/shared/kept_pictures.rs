//! Pictures that the pages show. Tests draw them anew and compare.

use std::path::Path;

/// Compares `now` with the picture `docs/NAME`, or writes it there with `SNAPSHOTS=overwrite`. `of` is what it
/// shows, and `again` is the command that writes it.
///
/// # Panics
/// The picture is another one.
pub fn compare(name: &str, now: &str, of: &str, again: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let path = docs.join(name);
    if overwrites() {
        std::fs::write(path, now).expect("docs can be written");
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == now,
        "docs/{name} is not what {of} now. Look at what this writes: {again}"
    );
}

/// Whether pictures are to be written.
pub fn overwrites() -> bool {
    std::env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite")
}
