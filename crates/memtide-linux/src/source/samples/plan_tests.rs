use super::*;
use std::fs;

const DEVICES: &str = "sys/bus/event_source/devices";

fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Options) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(DEVICES)).unwrap();
    for (file, text) in files {
        let path = dir.path().join(DEVICES).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let options = Options {
        root: Root::new(dir.path()),
        ..Options::default()
    };
    (dir, options)
}

/// As Linux 6.15 describes IBS on a Zen 5.
const ZEN5: &[(&str, &str)] = &[
    ("ibs_op/type", "11\n"),
    ("ibs_op/format/cnt_ctl", "config:19\n"),
    ("ibs_op/format/l3missonly", "config:16\n"),
    ("ibs_op/format/ldlat", "config1:0-11\n"),
    ("ibs_op/format/swfilt", "config2:0\n"),
    ("ibs_op/caps/zen4_ibs_extensions", "1\n"),
];

#[test]
fn ibs_takes_what_the_folder_offers() {
    let (_dir, options) = machine(ZEN5);
    let streams = streams(Kind::Ibs, &options).unwrap();
    let [stream] = &streams[..] else { panic!() };
    assert_eq!(stream.attr.type_, 11);
    // Bit 19 counts operations, bit 16 keeps misses of the last level.
    assert_eq!(stream.attr.config, 1 << 19 | 1 << 16);
    let words = [stream.attr.config1, stream.attr.config2];
    assert_eq!(words, [0, 1]);
    assert_eq!(
        (stream.attr.exclude_kernel(), stream.attr.exclude_hv()),
        (1, 0)
    );
    assert_eq!(stream.period(), 10_000);
    assert_eq!(stream.decoder.origin(), Origin::Ibs);
}

#[test]
fn an_ibs_without_filters_is_filtered_by_the_decoder() {
    let (_dir, options) = machine(&ZEN5[..2]);
    let stream = streams(Kind::Ibs, &options).unwrap().remove(0);
    let words = [stream.attr.config, stream.attr.config2];
    assert_eq!(words, [1 << 19, 0]);
    // Kernels before the filter refuse to leave anything out.
    assert_eq!(stream.attr.exclude_kernel(), 0);
}

#[test]
fn latencies_of_ibs_come_in_steps() {
    let (_dir, mut options) = machine(ZEN5);
    for (asked, given) in [(1, 128), (128, 128), (129, 256), (9999, 4095)] {
        options.latency_cycles = Some(asked);
        let stream = streams(Kind::Ibs, &options).unwrap().remove(0);
        assert_eq!({ stream.attr.config1 }, given, "{asked}");
    }
    options.cached_too = true;
    let stream = streams(Kind::Ibs, &options).unwrap().remove(0);
    assert_eq!({ stream.attr.config }, 1 << 19);
}

const SPR: &[(&str, &str)] = &[
    ("cpu/type", "4\n"),
    ("cpu/format/event", "config:0-7\n"),
    ("cpu/format/umask", "config:8-15\n"),
    ("cpu/format/ldlat", "config1:0-15\n"),
    ("cpu/caps/max_precise", "3\n"),
    ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
    ("cpu/events/mem-stores", "event=0xcd,umask=0x2\n"),
    ("cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n"),
];

#[test]
fn pebs_has_loads_behind_their_leader_and_stores() {
    let (_dir, options) = machine(SPR);
    let streams = streams(Kind::Pebs, &options).unwrap();
    let [loads, stores] = &streams[..] else {
        panic!()
    };
    assert_eq!(loads.name, "cpu/mem-loads/");
    let words = [loads.attr.config, loads.attr.config1];
    assert_eq!(words, [0x1cd, 30]);
    assert_eq!(
        (loads.attr.precise_ip(), loads.attr.exclude_kernel()),
        (2, 1)
    );
    let leader = loads.leader.as_ref().unwrap();
    assert_eq!({ leader.config }, 0x8203);
    assert_eq!((leader.disabled(), leader.sample_period), (1, 0));
    assert_eq!({ stores.attr.config }, 0x2cd);
    assert!(stores.leader.is_none());
    // Older processors have no such event and need no leader.
    let (_dir, options) = machine(&SPR[..7]);
    assert!(
        super::streams(Kind::Pebs, &options).unwrap()[0]
            .leader
            .is_none()
    );
}

#[test]
fn hybrid_processors_have_two_units() {
    let unit = |name: &str, kind: &str, cpus: &str, event: &str| -> Vec<(String, String)> {
        [
            ("type", kind),
            ("cpus", cpus),
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
            ("format/ldlat", "config1:0-15"),
            ("events/mem-loads", event),
        ]
        .map(|(file, text)| (format!("{name}/{file}"), text.to_owned()))
        .to_vec()
    };
    let mut files = unit("cpu_core", "4", "0-7", "event=0xcd,umask=0x1,ldlat=3");
    files.extend(unit(
        "cpu_atom",
        "8",
        "8-15",
        "event=0xd0,umask=0x5,ldlat=3",
    ));
    files.push((
        "cpu_core/events/mem-loads-aux".into(),
        "event=0x03,umask=0x82".into(),
    ));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(f, t)| (f.as_str(), t.as_str()))
        .collect();
    let (_dir, options) = machine(&files);
    let streams = streams(Kind::Pebs, &options).unwrap();
    let seen: Vec<_> = streams
        .iter()
        .map(|s| {
            (
                s.attr.type_,
                s.leader.is_some(),
                s.cpus.as_ref().unwrap().len(),
            )
        })
        .collect();
    assert_eq!(seen, [(8, false, 8), (4, true, 8)]);
    assert_eq!({ streams[0].attr.config }, 0x5d0);
}

#[test]
fn what_is_absent_is_named() {
    let (_dir, options) = machine(&[("software/type", "1\n")]);
    let error = streams(Kind::Ibs, &options).unwrap_err();
    assert_eq!(error.lack(), Lack::Absent);
    assert!(
        error.to_string().contains("devices/ibs_op: absent"),
        "{error}"
    );
    let error = streams(Kind::Pebs, &options).unwrap_err();
    assert_eq!(error.lack(), Lack::Absent);
    assert!(error.to_string().contains("virtual machine"), "{error}");
    // A virtual machine's unit that counts and cannot be precise.
    let mut files = SPR.to_vec();
    files[4].1 = "0\n";
    let (_dir, options) = machine(&files);
    let error = streams(Kind::Pebs, &options).unwrap_err();
    assert!(error.to_string().contains("caps/max_precise"), "{error}");
    // A format that makes no sense is breakage, not absence.
    let (_dir, options) = machine(&[("ibs_op/type", "11"), ("ibs_op/format/cnt_ctl", "x")]);
    assert_eq!(
        streams(Kind::Ibs, &options).unwrap_err().lack(),
        Lack::Broken
    );
    assert!(streams(Kind::Faults, &options).is_ok());
}

#[test]
fn without_the_right_to_physical_addresses_the_rest_stays() {
    let (_dir, options) = machine(SPR);
    let stream = streams(Kind::Pebs, &options).unwrap().remove(0);
    let less = stream.with_fewer_rights().unwrap();
    let difference = stream.attr.sample_type ^ less.attr.sample_type;
    assert_eq!(difference, u64::from(b::PERF_SAMPLE_PHYS_ADDR));
    assert_eq!(less.decoder.layout().sample_type(), less.attr.sample_type);
    assert!(less.with_fewer_rights().is_none());
    let faults = streams(Kind::Faults, &options).unwrap().remove(0);
    assert_eq!(faults.attr.exclude_kernel(), 0);
    let less = faults.with_fewer_rights().unwrap();
    assert_eq!(less.attr.exclude_kernel(), 1);
}

#[test]
fn periods_stay_within_their_bounds_and_steps() {
    let bounds = Bounds {
        min: 0x90,
        max: 0xf_fff0,
        step: 16,
    };
    for (asked, given) in [(0, 0x90), (10_007, 10_000), (u64::MAX, 0xf_fff0)] {
        assert_eq!(bounds.clamp(asked), given);
    }
}
