//! Type descriptions that the tests wrote, and this machine's own.

use super::*;

/// Writes type descriptions for tests.
#[derive(Default)]
pub(in super::super) struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    pub(in super::super) fn new() -> Writer {
        Writer {
            strings: vec![0],
            ..Writer::default()
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn push(&mut self, words: &[u32]) {
        self.types
            .extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }

    /// Adds a type with its trailing words and returns its id.
    pub(in super::super) fn add(&mut self, name: &str, info: u32, size: u32, rest: &[u32]) -> u32 {
        let name = self.name(name);
        self.push(&[name, info, size]);
        self.push(rest);
        self.count += 1;
        self.count
    }

    pub(in super::super) fn int(&mut self, name: &str, bytes: u32) -> u32 {
        self.add(name, INT << 24, bytes, &[bytes * 8])
    }

    /// A structure of (name, type, byte offset).
    pub(in super::super) fn structure(
        &mut self,
        name: &str,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        self.holder(STRUCT << 24, name, size, members)
    }

    fn holder(&mut self, info: u32, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let rest: Vec<u32> = members
            .iter()
            .flat_map(|&(name, id, offset)| [self.name(name), id, offset * 8])
            .collect();
        self.add(name, info | members.len() as u32, size, &rest)
    }

    pub(in super::super) fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let head = [u32::from(MAGIC) | 1 << 16, 24, 0, types, types, strings];
        let mut file: Vec<u8> = head.iter().flat_map(|w| w.to_le_bytes()).collect();
        file.extend(self.types);
        file.extend(self.strings);
        file
    }
}

#[test]
fn members_are_found_by_path_through_typedefs_and_nameless_unions() {
    let mut w = Writer::new();
    let int = w.int("int", 4);
    let long = w.int("long", 8);
    let pid_t = w.add("pid_t", TYPEDEF << 24, int, &[]);
    let constant = w.add("", CONST << 24, pid_t, &[]);
    let pointer = w.add("", PTR << 24, 0, &[]);
    let list = w.structure(
        "list_head",
        16,
        &[("next", pointer, 0), ("prev", pointer, 8)],
    );
    let union = w.holder(UNION << 24, "", 8, &[("a", long, 0), ("b", int, 4)]);
    let inner = w.structure(
        "",
        24,
        &[("x", int, 0), ("", union, 8), ("pgd", pointer, 16)],
    );
    w.structure(
        "task",
        64,
        &[("pid", constant, 4), ("", inner, 8), ("tasks", list, 40)],
    );
    let file = w.finish();
    let btf = Btf::parse(&file).unwrap();
    let at = |path: &str| btf.member(path).unwrap();
    assert_eq!(
        at("task.pid"),
        Member {
            offset: 4,
            size: Some(4)
        }
    );
    assert_eq!(
        at("task.tasks"),
        Member {
            offset: 40,
            size: Some(16)
        }
    );
    assert_eq!(
        at("task.tasks.prev"),
        Member {
            offset: 48,
            size: Some(8)
        }
    );
    // 8 for the nameless structure, 16 inside of it.
    assert_eq!(
        at("task.pgd"),
        Member {
            offset: 24,
            size: Some(8)
        }
    );
    // 8, 8 for the union, 4 inside of that.
    assert_eq!(
        at("task.b"),
        Member {
            offset: 20,
            size: Some(4)
        }
    );
    for path in ["task.none", "none.pid", "task.pid.x", "tas.pid"] {
        let error = btf.member(path).unwrap_err();
        assert_eq!(error, BtfError::Missing { path: path.into() });
    }
}

#[test]
fn a_structure_with_bit_fields_packs_its_offsets() {
    let mut w = Writer::new();
    let int = w.int("int", 4);
    let (flag, after) = (w.name("flag"), w.name("after"));
    // The width is in the upper 8 bits: 3 bits at bit 32, then bit 64.
    let rest = [flag, int, 3 << 24 | 32, after, int, 64];
    w.add("s", 1 << 31 | STRUCT << 24 | 2, 12, &rest);
    let file = w.finish();
    let btf = Btf::parse(&file).unwrap();
    assert_eq!(btf.member("s.flag").unwrap().offset, 4);
    assert_eq!(btf.member("s.after").unwrap().offset, 8);
}

#[test]
fn every_kind_is_stepped_over() {
    let mut w = Writer::new();
    let int = w.int("int", 4);
    for (kind, count, words) in [
        (PTR, 0, 0),
        (ARRAY, 0, 3),
        (ENUM, 2, 4),
        (FWD, 0, 0),
        (FUNC, 1, 0),
        (FUNC_PROTO, 2, 4),
        (VAR, 0, 1),
        (DATASEC, 2, 6),
        (FLOAT, 0, 0),
        (DECL_TAG, 0, 1),
        (TYPE_TAG, 0, 0),
        (ENUM64, 2, 6),
    ] {
        w.add("t", kind << 24 | count, 0, &vec![0; words]);
    }
    w.structure("last", 4, &[("m", int, 0)]);
    let file = w.finish();
    assert!(Btf::parse(&file).unwrap().member("last.m").is_ok());
}

#[test]
fn damaged_files_are_errors() {
    assert!(matches!(Btf::parse(b""), Err(BtfError::Malformed { .. })));
    assert!(matches!(
        Btf::parse(&[0; 64]),
        Err(BtfError::Malformed { .. })
    ));
    let mut w = Writer::new();
    w.add("odd", 30 << 24, 0, &[]);
    let file = w.finish();
    let error = Btf::parse(&file).unwrap_err();
    assert_eq!(error, BtfError::UnknownKind { id: 1, kind: 30 });
    let mut w = Writer::new();
    let int = w.int("int", 4);
    w.structure("s", 4, &[("m", int, 0)]);
    let whole = w.finish();
    for length in 0..whole.len() {
        assert!(Btf::parse(&whole[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn this_machines_kernel_is_readable_if_it_describes_itself() {
    let Ok(file) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        eprintln!("not tested: this kernel has no BTF");
        return;
    };
    let btf = Btf::parse(&file).unwrap();
    assert_eq!(btf.member("task_struct.pid").unwrap().size, Some(4));
    assert_eq!(btf.member("mm_struct.pgd").unwrap().size, Some(8));
    assert_eq!(btf.member("task_struct.tasks").unwrap().size, Some(16));
}
