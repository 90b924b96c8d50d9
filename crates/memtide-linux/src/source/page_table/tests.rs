//! The scanner over a machine that the tests wrote: kernel memory, types and
//! symbols in files.

use super::btf::tests::Writer;
use super::kcore::tests::{DIRECT_5, IMAGE_START, image};
use super::walk::tests::{MAP, Ram, root};
use super::*;

const INIT_TASK: u64 = IMAGE_START + 0x40;
/// Two tasks and an address space in the direct map, before the tables.
const SHELL: u64 = DIRECT_5 + 0x100;
const VICTIM: u64 = DIRECT_5 + 0x200;
const MM: u64 = DIRECT_5 + 0x300;

const VICTIM_PROCESS: Process = Process {
    pid: 300,
    start_ticks: 77,
};

/// The files of a machine with one victim.
struct Machine {
    root: tempfile::TempDir,
    ram: Ram,
    kernel: Vec<u8>,
}

impl Machine {
    fn new() -> Machine {
        let ram = Ram::default();
        assert_eq!(ram.table(), 0);
        let tables = root(&ram, 5);
        for (vpn, accessed) in [(10, true), (11, false)] {
            ram.map(tables, vpn, 1, 0x7000 | MAP | u64::from(accessed) << 5);
        }
        let mut machine = Machine {
            root: tempfile::tempdir().unwrap(),
            ram,
            kernel: vec![0; 0x80],
        };
        machine.kernel[0x40..0x60].copy_from_slice(&task(SHELL, 0, 0, 0));
        machine.put(SHELL, &task(VICTIM, 200, 55, 0));
        machine.put(VICTIM, &task(INIT_TASK, 300, 77, MM));
        machine.put(MM + 16, &(DIRECT_5 + tables.table).to_le_bytes());
        for folder in ["proc/300", "sys/kernel/btf", "sys/kernel/security"] {
            std::fs::create_dir_all(machine.root.path().join(folder)).unwrap();
        }
        machine.file("sys/kernel/btf/vmlinux", &types());
        machine.file(
            "proc/kallsyms",
            format!("{IMAGE_START:016x} T _text\n{INIT_TASK:016x} D init_task\n").as_bytes(),
        );
        machine.file("proc/300/clear_refs", b"");
        machine.write_memory();
        machine
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        let at = (address - DIRECT_5) as usize;
        self.ram.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn file(&self, path: &str, bytes: &[u8]) {
        std::fs::write(self.root.path().join(path), bytes).unwrap();
    }

    fn write_memory(&self) {
        let ram = self.ram.bytes.borrow();
        let segments = [
            (DIRECT_5, 0, &ram[..]),
            (IMAGE_START, 1 << 40, &self.kernel[..]),
        ];
        self.file("proc/kcore", &image(kcore::X86_64, &segments));
    }

    fn open(&self) -> Result<PageTableScan, Unavailable> {
        PageTableScan::open(self.root.path())
    }
}

/// A task: the next one's link, pid and 4 bytes of something, start, memory.
fn task(next: u64, pid: i32, ticks: u64, mm: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&next.to_le_bytes());
    bytes[8..12].copy_from_slice(&pid.to_le_bytes());
    bytes[12..16].copy_from_slice(&[0xee; 4]);
    bytes[16..24].copy_from_slice(&(ticks * 10_000_000 + 123).to_le_bytes());
    bytes[24..].copy_from_slice(&mm.to_le_bytes());
    bytes
}

fn types() -> Vec<u8> {
    let mut w = Writer::new();
    let int = w.int("int", 4);
    let long = w.int("long", 8);
    let list = w.structure("list_head", 16, &[("next", long, 0), ("prev", long, 8)]);
    w.structure(
        "task_struct",
        64,
        &[
            ("tasks", list, 0),
            ("tgid", int, 8),
            ("start_boottime", long, 16),
            ("mm", long, 24),
        ],
    );
    let inner = w.structure("", 24, &[("pgd", long, 16)]);
    w.structure("mm_struct", 24, &[("", inner, 0)]);
    w.finish()
}

fn scan(scanner: &mut PageTableScan) -> Result<Vec<(u64, u64, bool)>, ScanError> {
    let mut runs = Vec::new();
    let whole = std::slice::from_ref(&(0..u64::MAX));
    scanner.scan(VICTIM_PROCESS, whole, |run| {
        runs.push((run.vpn, run.pages, run.accessed))
    })?;
    Ok(runs)
}

#[test]
fn a_process_is_found_cleared_and_scanned() {
    let machine = Machine::new();
    let mut scanner = machine.open().unwrap();
    scanner.attach(VICTIM_PROCESS).unwrap();
    scanner.clear(VICTIM_PROCESS).unwrap();
    let cleared = std::fs::read(machine.root.path().join("proc/300/clear_refs")).unwrap();
    assert_eq!(cleared, b"1");
    assert_eq!(scan(&mut scanner).unwrap(), [(10, 1, true), (11, 1, false)]);
}

#[test]
fn a_later_process_of_the_same_number_is_another() {
    let machine = Machine::new();
    let mut scanner = machine.open().unwrap();
    let other = Process {
        start_ticks: 78,
        ..VICTIM_PROCESS
    };
    assert!(matches!(
        scanner.attach(other),
        Err(ScanError::Gone { pid: 300, .. })
    ));
    scanner.attach(VICTIM_PROCESS).unwrap();
    // The task is freed, and its place taken.
    machine.put(VICTIM, &task(INIT_TASK, 300, 99, MM));
    machine.write_memory();
    assert!(matches!(scan(&mut scanner), Err(ScanError::Gone { .. })));
}

#[test]
fn a_process_whose_task_moved_is_found_again() {
    let machine = Machine::new();
    let mut scanner = machine.open().unwrap();
    scanner.attach(VICTIM_PROCESS).unwrap();
    // The old task has given its memory up; another one took its identity.
    let moved = SHELL + 0x40;
    machine.put(VICTIM, &task(INIT_TASK, 300, 77, 0));
    machine.put(SHELL, &task(moved, 200, 55, 0));
    machine.put(moved, &task(INIT_TASK, 300, 77, MM));
    machine.write_memory();
    assert_eq!(scan(&mut scanner).unwrap().len(), 2);
}

#[test]
fn a_process_without_memory_and_a_broken_list_are_named() {
    let machine = Machine::new();
    let mut scanner = machine.open().unwrap();
    let shell = Process {
        pid: 200,
        start_ticks: 55,
    };
    std::fs::create_dir(machine.root.path().join("proc/200")).unwrap();
    machine.file("proc/200/clear_refs", b"");
    assert!(matches!(
        scanner.attach(shell),
        Err(ScanError::NoMemory { pid: 200 })
    ));
    for (next, pid) in [
        (0, 200),
        (5, 200),
        (u64::MAX, 200),
        (VICTIM, -7),
        (VICTIM, i32::MAX),
    ] {
        machine.put(SHELL, &task(next, pid, 55, 0));
        machine.write_memory();
        let error = scanner.attach(VICTIM_PROCESS).unwrap_err();
        assert!(matches!(error, ScanError::Gone { .. }), "{error}");
    }
}

#[test]
fn a_page_table_outside_of_memory_is_a_change() {
    let machine = Machine::new();
    let mut scanner = machine.open().unwrap();
    scanner.attach(VICTIM_PROCESS).unwrap();
    machine.put(MM + 16, &(DIRECT_5 - 4096).to_le_bytes());
    machine.write_memory();
    assert!(matches!(
        scan(&mut scanner),
        Err(ScanError::Changed { pid: 300 })
    ));
}

#[test]
fn what_is_not_attached_is_not_touched() {
    let machine = Machine::new();
    let mut scanner = machine.open().unwrap();
    assert!(matches!(
        scanner.clear(VICTIM_PROCESS),
        Err(ScanError::NotAttached { .. })
    ));
    assert!(matches!(
        scan(&mut scanner),
        Err(ScanError::NotAttached { .. })
    ));
    let absent = Process {
        pid: 9,
        start_ticks: 1,
    };
    assert!(matches!(
        scanner.attach(absent),
        Err(ScanError::Gone { pid: 9, .. })
    ));
}

#[test]
fn each_missing_piece_is_named() {
    let remove = |path: &str| {
        let machine = Machine::new();
        std::fs::remove_file(machine.root.path().join(path)).unwrap();
        machine.open().unwrap_err()
    };
    for (path, wanted) in [
        ("proc/kcore", "CONFIG_PROC_KCORE"),
        ("proc/kallsyms", "CONFIG_KALLSYMS_ALL"),
        ("sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"),
    ] {
        match remove(path) {
            Unavailable::NotBuilt { option, .. } => assert_eq!(option, wanted),
            other => panic!("{other}"),
        }
    }
    let machine = Machine::new();
    machine.file("proc/kallsyms", b"0000000000000000 D init_task\n");
    assert!(matches!(
        machine.open(),
        Err(Unavailable::SymbolsHidden { .. })
    ));
    machine.file("proc/kallsyms", b"ffffffff81000000 T _text\n");
    assert!(matches!(machine.open(), Err(Unavailable::NoSymbol { .. })));
    machine.file("proc/kcore", &image(183, &[(DIRECT_5, 0, &[0; 8])]));
    assert!(matches!(
        machine.open(),
        Err(Unavailable::UnknownMachine { machine: 183 })
    ));
    machine.file("proc/kcore", &image(kcore::X86_64, &[]));
    assert!(matches!(machine.open(), Err(Unavailable::Memory(_))));
}

#[test]
fn lockdown_is_told_from_a_lack_of_rights() {
    let machine = Machine::new();
    let root = machine.root.path();
    assert_eq!(lockdown(root), None);
    machine.file(
        "sys/kernel/security/lockdown",
        b"none [integrity] confidentiality\n",
    );
    assert_eq!(lockdown(root), None);
    machine.file(
        "sys/kernel/security/lockdown",
        b"none integrity [confidentiality]\n",
    );
    assert_eq!(lockdown(root).as_deref(), Some("confidentiality"));
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let error = unreadable("proc/kcore".into(), denied, "CAP_SYS_RAWIO", "x");
    assert_eq!(
        error.to_string(),
        "proc/kcore: not permitted; run with CAP_SYS_RAWIO"
    );
}
