use super::*;
use crate::perf::access::{Level, Operation, Refusal};
use crate::perf::forge::{Fields, IbsOp, record};
use proptest::prelude::*;
use std::io::Cursor;

const IBS: u64 = (b::PERF_SAMPLE_IDENTIFIER
    | b::PERF_SAMPLE_TID
    | b::PERF_SAMPLE_TIME
    | b::PERF_SAMPLE_ADDR
    | b::PERF_SAMPLE_CPU
    | b::PERF_SAMPLE_PERIOD
    | b::PERF_SAMPLE_RAW
    | b::PERF_SAMPLE_WEIGHT
    | b::PERF_SAMPLE_DATA_SRC
    | b::PERF_SAMPLE_PHYS_ADDR) as u64;

/// An event's entry: a description of 128 bytes and the section of its ids.
fn entry(kind: u32, config: u64, sample_type: u64, ids: (u64, u64)) -> Vec<u8> {
    let mut entry = vec![0; 128];
    entry[..4].copy_from_slice(&kind.to_ne_bytes());
    entry[4..8].copy_from_slice(&128u32.to_ne_bytes());
    entry[8..16].copy_from_slice(&config.to_ne_bytes());
    entry[24..32].copy_from_slice(&sample_type.to_ne_bytes());
    entry.extend(ids.0.to_ne_bytes());
    entry.extend(ids.1.to_ne_bytes());
    entry
}

/// A counted text, padded to a multiple of four.
fn text(text: &str) -> Vec<u8> {
    let padded = (text.len() + 1).next_multiple_of(4);
    let mut bytes = (padded as u32).to_ne_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(4 + padded, 0);
    bytes
}

/// A file: header, one id, entries, records, and the features' sections.
fn file(events: &[(u32, u64, u64)], records: &[u8], features: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<u8> = (events.iter())
        .flat_map(|(kind, config, fields)| entry(*kind, *config, *fields, (104, 8)))
        .collect();
    let data = 112 + entries.len() as u64;
    let mut bits = [0u64; 4];
    for (bit, _) in features {
        bits[*bit as usize / 64] |= 1 << (bit % 64);
    }
    let mut file = b"PERFILE2".to_vec();
    let sizes = [
        104,
        144,
        112,
        entries.len() as u64,
        data,
        records.len() as u64,
        0,
        0,
    ];
    for word in sizes.into_iter().chain(bits) {
        file.extend(word.to_ne_bytes());
    }
    // The forge's samples carry the id 77.
    file.extend(77u64.to_ne_bytes());
    file.extend(entries);
    file.extend(records);
    let mut at = file.len() + 16 * features.len();
    for (_, body) in features {
        file.extend((at as u64).to_ne_bytes());
        file.extend((body.len() as u64).to_ne_bytes());
        at += body.len();
    }
    features.iter().for_each(|(_, body)| file.extend(body));
    file
}

fn units() -> (u32, Vec<u8>) {
    let mut units = 2u32.to_ne_bytes().to_vec();
    for (number, name) in [(1u32, "software"), (11, "ibs_op")] {
        units.extend(number.to_ne_bytes());
        units.extend(text(name));
    }
    (16, units)
}

fn read(file: Vec<u8>) -> Result<(Vec<MemoryAccess>, Summary), RecordingError> {
    let mut accesses = Vec::new();
    let summary = Recording::new(Cursor::new(file))?.read(|access| accesses.push(*access))?;
    Ok((accesses, summary))
}

fn sample(time: u64, tid: u32) -> Vec<u8> {
    let fields = Fields {
        time,
        tid,
        raw: IbsOp::default().raw(),
        ..Fields::default()
    };
    fields.record(IBS)
}

fn round() -> Vec<u8> {
    record(perfs_own::FINISHED_ROUND, 0, &[])
}

#[test]
fn raw_ibs_recorded_elsewhere() {
    let mut records = Vec::new();
    let mut comm = [100u32, 100].map(u32::to_ne_bytes).concat();
    comm.extend(b"redis-server\0\0\0\0");
    records.extend(record(b::PERF_RECORD_COMM, 0, &comm));
    // The first CPU's ring, then the second's, in which a record is older.
    records.extend([sample(10, 1), sample(30, 1), sample(20, 2), round()].concat());
    records.extend([sample(40, 1), sample(50, 2), sample(35, 2), round()].concat());
    let ibs = (11, 1 << 19, IBS);
    let (accesses, summary) = read(file(&[ibs], &records, &[units()])).unwrap();
    let times: Vec<_> = accesses.iter().map(|a| (a.time_ns, a.tid)).collect();
    assert_eq!(
        times,
        [(10, 1), (20, 2), (30, 1), (35, 2), (40, 1), (50, 2)]
    );
    assert_eq!(accesses[0].level, Level::Dram);
    assert_eq!(accesses[0].latency_cycles, Some(300));
    assert_eq!(accesses[0].operation, Operation::Load);
    assert_eq!((summary.accesses, summary.late), (6, 0));
    assert_eq!(&*summary.names[&100], "redis-server");
    assert_eq!(summary.by_process[&100], 6);
}

#[test]
fn the_processor_is_the_one_that_recorded() {
    // Family 25 = 0x19, model 1, and a prefetch: erratum 1293.
    let op = IbsOp {
        data3: IbsOp::default().data3 | 1 << 21,
        ..IbsOp::default()
    };
    let fields = Fields {
        raw: op.raw(),
        ..Fields::default()
    };
    let ibs = [(11, 1 << 19, IBS)];
    let on = |cpu: &str| {
        let features = [(9, text(cpu)), units()];
        read(file(&ibs, &fields.record(IBS), &features)).unwrap().1
    };
    let ill = on("AuthenticAMD,25,1,1");
    assert_eq!((ill.accesses, ill.refused.of(Refusal::Erratum)), (0, 1));
    assert_eq!(on("AuthenticAMD,25,17,1").accesses, 1);
    assert_eq!(on("nonsense").accesses, 1);
}

#[test]
fn a_true_recording_of_page_faults() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/minor-faults.perf.data");
    let mut recording = Recording::open(&path).unwrap();
    assert_eq!(recording.events()[0].name.as_deref(), Some("minor-faults"));
    let mut pages = Vec::new();
    let mut last = 0;
    let summary = recording
        .read(|access| {
            assert!(access.time_ns >= last);
            last = access.time_ns;
            pages.push(access.address >> 12);
        })
        .unwrap();
    // As `perf script` counts them, kernel addresses apart.
    assert_eq!(summary.accesses + summary.refused.total(), 112);
    assert_eq!(summary.accesses, 112, "{summary:?}");
    assert_eq!((summary.walk.lost, summary.late), (0, 0));
    assert_eq!(
        summary
            .names
            .values()
            .map(|name| &**name)
            .collect::<Vec<_>>(),
        ["dd"]
    );
    // dd's buffer of 128 KiB, read into once, page after page.
    let run = pages
        .windows(33)
        .any(|w| w.windows(2).all(|p| p[1] == p[0] + 1));
    assert!(run, "{pages:x?}");
}

#[test]
fn events_are_told_apart_by_their_ids() {
    let other = (1, 9, IBS & !u64::from(b::PERF_SAMPLE_ADDR));
    let ibs = (11, 1 << 19, IBS);
    // Id 77 is in both entries' sections; the later event counts.
    let (accesses, summary) = read(file(&[other, ibs], &sample(1, 1), &[units()])).unwrap();
    assert_eq!((accesses.len(), summary.other_samples), (1, 0));
    let (accesses, summary) = read(file(&[ibs, other], &sample(1, 1), &[units()])).unwrap();
    assert_eq!((accesses.len(), summary.other_samples), (0, 1));
    let plain = IBS & !u64::from(b::PERF_SAMPLE_IDENTIFIER);
    let error = read(file(&[(1, 9, 7), (11, 0, plain)], &[0; 8], &[units()])).unwrap_err();
    assert!(matches!(error, RecordingError::Ambiguous));
}

#[test]
fn what_cannot_be_read_is_said_in_a_line() {
    let ibs = [(11, 1 << 19, IBS)];
    let whole = file(&ibs, &sample(1, 1), &[units()]);
    let error = |bytes: Vec<u8>| {
        let text = read(bytes).unwrap_err().to_string();
        assert_eq!(text.lines().count(), 1);
        text
    };
    let changed = |at: usize, word: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        bytes
    };
    assert!(error(b"ELF".to_vec()).contains("no perf.data"));
    assert!(error(Vec::new()).contains("no perf.data"));
    assert!(error(changed(0, u64::from_be_bytes(*b"PERFILE2"))).contains("byte order"));
    assert!(error(changed(8, 16)).contains("pipe"));
    assert!(error(changed(16, 0)).contains("too short"));
    assert!(error(changed(16, u64::MAX)).contains("is empty"));
    assert!(error(changed(24, u64::MAX)).contains("beyond"));
    assert!(error(changed(48, 0)).contains("did not finish"));
    assert!(error(changed(48, 1 << 40)).contains("beyond"));
    assert!(error(whole[..whole.len() - 1].to_vec()).contains("beyond"));
    let compressed = record(perfs_own::COMPRESSED, 0, &[0; 16]);
    assert!(error(file(&ibs, &compressed, &[])).contains("without -z"));
    assert!(error(file(&ibs, &[1, 0, 0, 0, 0, 0, 0, 0], &[])).contains("size"));
    let stack = IBS | u64::from(b::PERF_SAMPLE_STACK_USER);
    assert!(error(file(&[(11, 0, stack)], &[0; 8], &[])).contains("0x2000"));
    let cycles = [(0, 0, 0x107)];
    assert!(error(file(&cycles, &[0; 8], &[])).contains("type 0 config 0x0"));
}

#[test]
fn losses_and_late_records_are_counted() {
    let mut lost = 1u64.to_ne_bytes().to_vec();
    lost.extend(9u64.to_ne_bytes());
    let mut records = [sample(30, 1), round(), sample(40, 1), round()].concat();
    records.extend(record(b::PERF_RECORD_LOST, 0, &lost));
    // 20 should have been in a round before.
    records.extend([sample(20, 2), sample(50, 1)].concat());
    let (accesses, summary) = read(file(&[(11, 0, IBS)], &records, &[units()])).unwrap();
    let times: Vec<_> = accesses.iter().map(|a| (a.time_ns, a.tid)).collect();
    assert_eq!(times, [(30, 1), (30, 2), (40, 1), (50, 1)]);
    assert_eq!((summary.walk.lost, summary.late), (9, 1));
}

proptest! {
    #[test]
    fn damaged_files_give_accesses_or_one_error(
        changes in proptest::collection::vec((0usize..800, any::<u8>()), 1..12),
        cut in 0usize..2000,
    ) {
        let records = [sample(1, 1), round(), sample(2, 1)].concat();
        let mut bytes = file(&[(11, 0, IBS), (1, 2, IBS)], &records, &[(9, text("x")), units()]);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        if let Err(error) = read(bytes) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}

/// Names come in records of up to 64 KiB, and each fork copies one: what is kept
/// must not grow faster than the file.
#[test]
fn forks_do_not_copy_what_a_file_calls_a_name() {
    let mut records = Vec::new();
    let mut comm = [100u32, 100].map(u32::to_ne_bytes).concat();
    comm.extend([b'x'; 60_000]);
    records.extend(record(b::PERF_RECORD_COMM, 0, &comm));
    for child in 0..20_000u32 {
        let fork = [1000 + child, 100, 1000 + child, 100, 0, 0].map(u32::to_ne_bytes);
        records.extend(record(b::PERF_RECORD_FORK, 0, &fork.concat()));
    }
    records.extend(sample(5, 100));
    let file = file(&[(11, 0, IBS)], &records, &[units()]);
    let (_, summary) = read(file).unwrap();
    assert_eq!(summary.names.len(), 20_001);
    // All have the one name.
    let first = summary.names.values().next().unwrap();
    assert!(summary.names.values().all(|name| Arc::ptr_eq(name, first)));
    assert!(first.len() <= LONGEST_NAME * 3);
}
