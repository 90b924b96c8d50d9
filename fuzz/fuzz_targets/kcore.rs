//! The reader of the kernel's memory file on any bytes: an error, or reads that succeed or do not.
#![no_main]

use memtide_linux::source::page_table::kcore::Kcore;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let file = std::env::temp_dir().join(format!("fuzz-{}.kcore", std::process::id()));
    std::fs::write(&file, bytes).expect("a folder for temporary files");
    let Ok(mut kcore) = Kcore::open(&file) else {
        return;
    };
    let mut out = [0; 16];
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    for address in words.take(256).chain([0, u64::MAX]) {
        kcore.read_virtual(address, &mut out);
        kcore.read_physical(address, &mut out);
        kcore.physical(address);
    }
    let _ = (kcore.machine(), kcore.five_levels(), kcore.refresh());
});
