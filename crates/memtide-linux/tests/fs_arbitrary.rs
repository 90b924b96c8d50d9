//! No bytes make a parser panic: neither noise nor nearly good files.
//!
//! Nearly good files are words of the real formats in any order, so that
//! inputs get past the first check.

mod fs_parsers;

use fs_parsers::every_parser;
use proptest::prelude::*;

const WORDS: &[&str] = &[
    "0",
    "1",
    "7",
    "18446744073709551615",
    "99999999999999999999",
    "-1",
    "0-3",
    "3-0",
    "0,2",
    "ffffffff",
    "00000000,00000005",
    "\n",
    "\n",
    " ",
    " ",
    ":",
    "=",
    "|",
    "-",
    ",",
    "(",
    ")",
    "Node 0, zone Normal\n",
    "Node 0 MemTotal: ",
    " kB\n",
    "pages free ",
    "min ",
    "promo ",
    "1000-2000 rw-p 00000000 00:00 0 ",
    "7f0000000000-7f0000200000 r-xs 0 fe:01 9 /a\\040b\n",
    "ffffffffffffffff",
    "/memfd:x (deleted)\n",
    "[stack]\n",
    "Rss: ",
    "VmFlags: rd wr\n",
    "AnonHugePages: ",
    "1000 default ",
    "2000 bind=static|balancing:0-1 ",
    "prefer (many)",
    "weighted interleave:",
    "N0=",
    "N1023=",
    "kernelpagesize_kB=",
    "file=/a\\377",
    "huge ",
    "7 (a) S ",
    "Tgid:\t",
    "Uid:\t",
    "NSpid:\t",
    "Mems_allowed_list:\t",
    "CapEff:\t",
    "VmRSS:\t",
    "0::/a\n",
    "4:memory:/b\n",
    "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 x rw\n",
    "usage_usec ",
    "[none] integrity",
    "6.12.0",
    "true",
    "\\0",
    "\u{e9}",
];

proptest! {
    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        every_parser(&bytes);
    }

    #[test]
    fn nearly_good_files(words in prop::collection::vec(prop::sample::select(WORDS), 0..40)) {
        every_parser(words.concat().as_bytes());
    }

    #[test]
    fn good_files_with_one_byte_changed(place in any::<prop::sample::Index>(), byte: u8) {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/two-sockets-cxl-hmat/proc");
        for file in ["1200/stat", "1200/status", "1200/maps", "1200/smaps", "1200/numa_maps", "zoneinfo"] {
            let mut bytes = std::fs::read(format!("{root}/{file}")).unwrap();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            every_parser(&bytes);
            every_parser(&bytes[..place]);
        }
    }
}
