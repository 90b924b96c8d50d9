//! Kernel memory, read through `/proc/kcore`.
//!
//! The file looks like a core dump of the running kernel: ELF64, one program
//! header for every stretch of the kernel's address space, whose bytes are
//! copied from memory at the moment of the read. Segments of RAM (the *direct
//! map*) and the kernel's own image carry their physical address, the others
//! carry -1. So the file itself says where physical memory is mapped, whatever
//! the kernel randomised at boot, and which physical addresses exist.
//!
//! Every read is checked against the segments. An address that comes from
//! memory which changed under us (a freed page table) is then refused, or at
//! worst names other RAM; it can never fault.
//!
//! Adding memory to the machine adds segments, and may shift the file offsets
//! of all others: see [`Kcore::refresh`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// `e_machine` of x86-64.
pub const X86_64: u16 = 62;

/// Where the kernel's image and modules begin on x86-64: never direct map.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// The lowest kernel address with 4-level tables. With 5 levels the direct map
/// lies below it.
const LOWEST_4_LEVEL: u64 = 0xffff_8000_0000_0000;

const LOAD: u32 = 1;

/// Why kernel memory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KcoreError {
    /// The file could not be opened or read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Not what a kernel gives.
    #[error("{path}: {what}; it is not a kernel's memory file")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// A stretch of the kernel's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    virtual_start: u64,
    physical: u64,
    offset: u64,
    bytes: u64,
}

/// An open kernel memory file.
#[derive(Debug)]
pub struct Kcore {
    path: PathBuf,
    file: File,
    machine: u16,
    headers: Vec<u8>,
    /// By virtual address.
    segments: Vec<Segment>,
    /// The direct map, by physical address.
    direct: Vec<Segment>,
}

impl Kcore {
    /// Opens the file and reads its headers.
    pub fn open(path: &Path) -> Result<Kcore, KcoreError> {
        let file = File::open(path).map_err(|error| KcoreError::Io {
            path: path.to_owned(),
            error,
        })?;
        let mut kcore = Kcore {
            path: path.to_owned(),
            file,
            machine: 0,
            headers: Vec::new(),
            segments: Vec::new(),
            direct: Vec::new(),
        };
        kcore.headers = kcore.read_headers()?;
        kcore.parse();
        Ok(kcore)
    }

    /// Takes note if the list of segments changed under the open file. Two
    /// small reads if not.
    pub fn refresh(&mut self) -> Result<(), KcoreError> {
        if self.read_headers()? != self.headers {
            self.reopen()?;
        }
        Ok(())
    }

    /// Opens the file anew, which is when the kernel lists memory that came or
    /// went.
    pub fn reopen(&mut self) -> Result<(), KcoreError> {
        *self = Kcore::open(&self.path)?;
        Ok(())
    }

    /// The `e_machine` of the headers.
    pub fn machine(&self) -> u16 {
        self.machine
    }

    /// Whether this x86-64 kernel uses page tables of five levels; `None` if
    /// the file shows no direct map.
    pub fn five_levels(&self) -> Option<bool> {
        Some(self.direct.first()?.virtual_start < LOWEST_4_LEVEL)
    }

    /// Fills `out` from a kernel address. False if that is no memory.
    pub fn read_virtual(&self, address: u64, out: &mut [u8]) -> bool {
        self.read(
            &self.segments,
            address,
            |segment| segment.virtual_start,
            out,
        )
    }

    /// Fills `out` from a physical address. False if that is no RAM.
    pub fn read_physical(&self, address: u64, out: &mut [u8]) -> bool {
        self.read(&self.direct, address, |segment| segment.physical, out)
    }

    /// The physical address of a kernel address in the direct map.
    pub fn physical(&self, address: u64) -> Option<u64> {
        let segment = find(&self.segments, address, |segment| segment.virtual_start)?;
        is_direct(segment).then(|| segment.physical + (address - segment.virtual_start))
    }

    fn read(
        &self,
        segments: &[Segment],
        address: u64,
        start: impl Fn(&Segment) -> u64,
        out: &mut [u8],
    ) -> bool {
        let Some(segment) = find(segments, address, &start) else {
            return false;
        };
        let inside = address - start(segment);
        out.len() as u64 <= segment.bytes - inside
            && self
                .file
                .read_exact_at(out, segment.offset + inside)
                .is_ok()
    }

    fn read_headers(&self) -> Result<Vec<u8>, KcoreError> {
        let read = |bytes: usize| {
            let mut headers = vec![0; bytes];
            match self.file.read_exact_at(&mut headers, 0) {
                Ok(()) => Ok(headers),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(self.malformed("the headers are cut off"))
                }
                Err(error) => Err(KcoreError::Io {
                    path: self.path.clone(),
                    error,
                }),
            }
        };
        let elf = read(64)?;
        // Class 64, little-endian.
        if elf[..6] != *b"\x7fELF\x02\x01" {
            return Err(self.malformed("no ELF64 header"));
        }
        // They stand behind this header.
        let table = u64_at(&elf, 32);
        if u16_at(&elf, 54) != 56 || !(64..=1 << 20).contains(&table) {
            return Err(self.malformed("odd program headers"));
        }
        read(table as usize + usize::from(u16_at(&elf, 56)) * 56)
    }

    fn parse(&mut self) {
        let headers = &self.headers;
        self.machine = u16_at(headers, 18);
        let table = &headers[u64_at(headers, 32) as usize..];
        self.segments = table
            .chunks_exact(56)
            .filter(|header| u32_at(header, 0) == LOAD)
            .map(|header| Segment {
                offset: u64_at(header, 8),
                virtual_start: u64_at(header, 16),
                physical: u64_at(header, 24),
                bytes: u64_at(header, 32),
            })
            .filter(|s| s.bytes > 0 && s.virtual_start.checked_add(s.bytes - 1).is_some())
            .filter(|s| s.offset.checked_add(s.bytes).is_some())
            .collect();
        self.segments.sort_unstable_by_key(|s| s.virtual_start);
        self.direct = self.segments.iter().copied().filter(is_direct).collect();
        self.direct.sort_unstable_by_key(|s| s.physical);
    }

    fn malformed(&self, what: &'static str) -> KcoreError {
        KcoreError::Malformed {
            path: self.path.clone(),
            what,
        }
    }
}

fn is_direct(segment: &Segment) -> bool {
    segment.physical.checked_add(segment.bytes).is_some() && segment.virtual_start < IMAGE
}

fn find(segments: &[Segment], address: u64, start: impl Fn(&Segment) -> u64) -> Option<&Segment> {
    let after = segments.partition_point(|segment| start(segment) <= address);
    let segment = segments[..after].last()?;
    (address - start(segment) < segment.bytes).then_some(segment)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write;

    pub(in super::super) const DIRECT_4: u64 = 0xffff_9180_0000_0000;
    pub(in super::super) const DIRECT_5: u64 = 0xff12_3400_0000_0000;
    pub(in super::super) const IMAGE_START: u64 = 0xffff_ffff_8100_0000;

    /// A kernel memory file: segments of (virtual, physical, bytes).
    pub(in super::super) fn image(machine: u16, segments: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64 + 56 * segments.len(), 0);
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        for (n, (address, physical, bytes)) in segments.iter().enumerate() {
            let (at, offset) = (64 + 56 * n, file.len() as u64);
            let words = [
                u64::from(LOAD),
                offset,
                *address,
                *physical,
                bytes.len() as u64,
            ];
            for (n, word) in words.iter().enumerate() {
                file[at + 8 * n..][..8].copy_from_slice(&word.to_le_bytes());
            }
            file.extend(*bytes);
        }
        file
    }

    pub(in super::super) fn open_image(file: &[u8]) -> Kcore {
        let mut temporary = tempfile::NamedTempFile::new().unwrap();
        temporary.write_all(file).unwrap();
        Kcore::open(temporary.path()).unwrap()
    }

    #[test]
    fn headers_within_the_first_header_are_refused() {
        let mut file = image(X86_64, &[]);
        file[32..40].copy_from_slice(&6u64.to_le_bytes());
        let mut temporary = tempfile::NamedTempFile::new().unwrap();
        temporary.write_all(&file).unwrap();
        let error = Kcore::open(temporary.path()).unwrap_err();
        assert!(error.to_string().contains("odd program headers"), "{error}");
    }

    #[test]
    fn memory_is_found_by_virtual_and_by_physical_address() {
        let kcore = open_image(&image(
            X86_64,
            &[
                (IMAGE_START, 0x100, b"image"),
                (DIRECT_4 + 0x5000, 0x5000, b"upper"),
                (DIRECT_4 + 0x1000, 0x1000, b"lower"),
                (0xffff_c900_0000_0000, u64::MAX, b"vmalloc"),
            ],
        ));
        let mut two = [0; 2];
        assert!(kcore.read_virtual(IMAGE_START + 1, &mut two));
        assert_eq!(&two, b"ma");
        assert!(kcore.read_virtual(0xffff_c900_0000_0000, &mut two));
        assert_eq!(&two, b"vm");
        assert!(kcore.read_physical(0x5003, &mut two));
        assert_eq!(&two, b"er");
        assert_eq!(kcore.physical(DIRECT_4 + 0x1002), Some(0x1002));
        // The image has a physical address but is not the direct map.
        assert_eq!(kcore.physical(IMAGE_START), None);
        assert!(!kcore.read_physical(0x100, &mut two));
        assert_eq!(
            (kcore.machine(), kcore.five_levels()),
            (X86_64, Some(false))
        );
    }

    #[test]
    fn what_is_not_wholly_inside_of_a_segment_is_refused() {
        let kcore = open_image(&image(X86_64, &[(DIRECT_5, 0x1000, b"12345678")]));
        let mut four = [0; 4];
        for (address, readable) in [
            (0, false),
            (0xfff, false),
            (0x1000, true),
            (0x1004, true),
            (0x1005, false),
            (0x1008, false),
            (u64::MAX, false),
        ] {
            assert_eq!(
                kcore.read_physical(address, &mut four),
                readable,
                "{address:#x}"
            );
        }
        assert_eq!(kcore.five_levels(), Some(true));
    }

    #[test]
    fn a_segment_that_ends_beyond_any_file_is_none() {
        let mut file = image(X86_64, &[(DIRECT_4, 0, b"0123")]);
        // The offset and the length of the first segment.
        file[64 + 8..][..8].copy_from_slice(&(u64::MAX - 2).to_le_bytes());
        file[64 + 32..][..8].copy_from_slice(&64u64.to_le_bytes());
        let kcore = open_image(&file);
        assert!(!kcore.read_virtual(DIRECT_4 + 8, &mut [0; 4]));
    }

    #[test]
    fn files_that_are_not_kernel_memory_are_named() {
        for bytes in [&b""[..], &[0; 64], b"\x7fELF\x02\x01\x01"] {
            let mut temporary = tempfile::NamedTempFile::new().unwrap();
            temporary.write_all(bytes).unwrap();
            let error = Kcore::open(temporary.path()).unwrap_err();
            assert!(matches!(error, KcoreError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn memory_that_was_added_is_seen_after_a_refresh() {
        let mut temporary = tempfile::NamedTempFile::new().unwrap();
        let one = image(X86_64, &[(DIRECT_4, 0, b"0000")]);
        temporary.write_all(&one).unwrap();
        let mut kcore = Kcore::open(temporary.path()).unwrap();
        let two = image(
            X86_64,
            &[(DIRECT_4, 0, b"0000"), (DIRECT_4 + 64, 64, b"1111")],
        );
        std::fs::write(temporary.path(), two).unwrap();
        kcore.refresh().unwrap();
        let mut four = [0; 4];
        assert!(kcore.read_physical(64, &mut four) && &four == b"1111");
        assert!(kcore.read_physical(0, &mut four) && &four == b"0000");
    }
}
