use super::*;
use proptest::prelude::*;
use std::fs;

/// A root with these files in the folder of unit `name`.
fn unit(name: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = dir.path().join(DEVICES).join(name).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::new(dir.path());
    (dir, root)
}

const CORE: &[(&str, &str)] = &[
    ("type", "10\n"),
    ("cpus", "0-3,8\n"),
    ("format/event", "config:0-7\n"),
    ("format/umask", "config:8-15\n"),
    ("format/ldlat", "config1:0-15\n"),
    ("format/split", "config2:0-3,32-35\n"),
    ("caps/max_precise", "3\n"),
    ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
];

#[test]
fn a_unit_is_what_its_folder_says() {
    let (_dir, root) = unit("cpu_core", CORE);
    let pmu = Pmu::read(&root, "cpu_core").unwrap().unwrap();
    assert_eq!(pmu.kind, 10);
    assert_eq!(pmu.cpus, Some(BTreeSet::from([0, 1, 2, 3, 8])));
    assert_eq!(pmu.cap("max_precise"), Some("3"));
    assert_eq!(pmu.term_max("ldlat"), Some(0xffff));
    let config = pmu.config(pmu.event("mem-loads").unwrap()).unwrap();
    assert_eq!(config.words, [0x1cd, 3, 0, 0]);
    // A term named twice: the last counts.
    let config = pmu.config("event=0xcd,ldlat=3,ldlat=30").unwrap();
    assert_eq!(config.words, [0xcd, 30, 0, 0]);
    // 0xa5 over two ranges: the low four bits first.
    assert_eq!(pmu.config("split=0xa5").unwrap().words[2], 5 | 0xa << 32);
    assert_eq!(pmu.config("config1=7,event").unwrap().words, [1, 7, 0, 0]);
    assert_eq!(Pmu::read(&root, "ibs_op").unwrap(), None);
    assert_eq!(Pmu::names(&root).unwrap(), ["cpu_core"]);
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let (_dir, root) = unit("cpu", CORE);
    let pmu = Pmu::read(&root, "cpu").unwrap().unwrap();
    let error = |event: &str| pmu.config(event).unwrap_err().to_string();
    assert!(error("event=1,offcore=2").contains("no \"offcore\""));
    assert!(
        error("event=0x100").contains("no room"),
        "{}",
        error("event=0x100")
    );
    assert!(error("event=x").contains("no room"));
    for text in [
        "config",
        "config9:0",
        "config:7-0",
        "config:0-64",
        "config:a",
        "",
    ] {
        assert_eq!(Format::parse(text), None, "{text:?}");
        let (_dir, root) = unit("cpu", &[("type", "4"), ("format/event", text)]);
        let error = Pmu::read(&root, "cpu").unwrap_err().to_string();
        assert!(error.contains("format/event"), "{error}");
    }
    let (_dir, root) = unit("cpu", &[("type", "four")]);
    assert!(
        Pmu::read(&root, "cpu")
            .unwrap_err()
            .to_string()
            .contains("type")
    );
}

proptest! {
    #[test]
    fn a_value_comes_back_out_of_its_bits(
        low in 0u32..32, width in 1u32..16, gap in 1u32..8, more in 1u32..8, value: u64,
    ) {
        let (high, second) = (low + width - 1, low + width + gap - 1);
        let last = second + more - 1;
        let format = Format::parse(&format!("config:{low}-{high},{second}-{last}")).unwrap();
        let mut config = Config { words: [u64::MAX, 0, 0, 0] };
        let fits = value >> (width + more) == 0;
        prop_assert_eq!(format.put(value, &mut config), fits);
        let value = value & format.max();
        prop_assert!(format.put(value, &mut config));
        let word = config.words[0];
        let back = word >> low & ((1 << width) - 1) | (word >> second & ((1 << more) - 1)) << width;
        prop_assert_eq!(back, value);
        // Every other bit stays as it was.
        let mine = ((1u64 << width) - 1) << low | ((1u64 << more) - 1) << second;
        prop_assert_eq!(word | mine, u64::MAX);
    }

    #[test]
    fn any_text_is_a_format_or_not(text in "(config[0-9]?|:|-|,|[0-9]{1,9}){0,8}") {
        let _ = Format::parse(&text);
    }
}
