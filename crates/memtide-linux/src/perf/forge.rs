//! Records as the kernel writes them, made by hand from the documented layouts.
//!
//! For tests and benchmarks: machines with IBS or PEBS are rarely at hand, so
//! their records are built bit by bit and go the same way through ring and
//! decoder as true ones.
#![allow(missing_docs)]

use perf_event_open_sys::bindings as b;

/// A record: header (kind, misc, size including itself), then the body.
pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).expect("a record is shorter than 64 KiB");
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// A sample's fields; [`Fields::body`] puts those that are asked for in order.
#[derive(Clone, Debug)]
pub struct Fields {
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub addr: u64,
    pub cpu: u32,
    pub period: u64,
    pub raw: Vec<u8>,
    pub weight: u64,
    pub data_src: u64,
    pub phys_addr: u64,
}

impl Default for Fields {
    /// A thread of process 100 on CPU 3, a user address, a local page.
    fn default() -> Fields {
        Fields {
            pid: 100,
            tid: 101,
            time: 5_000,
            addr: 0x7f00_1234_5678,
            cpu: 3,
            period: 10_000,
            raw: Vec::new(),
            weight: 0,
            data_src: 0,
            phys_addr: 0x1_2345_6678,
        }
    }
}

impl Fields {
    /// The body of a sample with the fields of `sample_type`, in the kernel's order.
    pub fn body(&self, sample_type: u64) -> Vec<u8> {
        let mut body = Vec::new();
        let has = |bit: u32| sample_type & u64::from(bit) != 0;
        let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
        let mut put = |bit: u32, value: u64| {
            if has(bit) {
                body.extend(value.to_ne_bytes());
            }
        };
        put(b::PERF_SAMPLE_IDENTIFIER, 77);
        put(b::PERF_SAMPLE_IP, 0x40_0000);
        put(b::PERF_SAMPLE_TID, pair(self.pid, self.tid));
        put(b::PERF_SAMPLE_TIME, self.time);
        put(b::PERF_SAMPLE_ADDR, self.addr);
        put(b::PERF_SAMPLE_ID, 77);
        put(b::PERF_SAMPLE_STREAM_ID, 78);
        put(b::PERF_SAMPLE_CPU, pair(self.cpu, 0));
        put(b::PERF_SAMPLE_PERIOD, self.period);
        if has(b::PERF_SAMPLE_RAW) {
            body.extend((self.raw.len() as u32).to_ne_bytes());
            body.extend(&self.raw);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let mut put = |bits: u32, value: u64| {
            if has(bits) {
                body.extend(value.to_ne_bytes());
            }
        };
        put(
            b::PERF_SAMPLE_WEIGHT | b::PERF_SAMPLE_WEIGHT_STRUCT,
            self.weight,
        );
        put(b::PERF_SAMPLE_DATA_SRC, self.data_src);
        put(b::PERF_SAMPLE_PHYS_ADDR, self.phys_addr);
        body
    }

    /// The whole record, taken in user mode.
    pub fn record(&self, sample_type: u64) -> Vec<u8> {
        let misc = b::PERF_RECORD_MISC_USER as u16;
        record(b::PERF_RECORD_SAMPLE, misc, &self.body(sample_type))
    }
}

/// The registers of an IBS op, as bits of op data 2 and 3.
#[derive(Clone, Copy, Debug)]
pub struct IbsOp {
    pub caps: u32,
    pub data2: u64,
    pub data3: u64,
    pub linear: u64,
    pub physical: u64,
}

impl Default for IbsOp {
    /// A load on a Zen 4 that local DRAM answered after 300 cycles: load (0), DC
    /// miss (7), linear (17) and physical address (18) valid, L2 miss (20).
    fn default() -> IbsOp {
        IbsOp {
            caps: 0xbff,
            data2: 3,
            data3: 1 | 1 << 7 | 1 << 17 | 1 << 18 | 1 << 20 | 300 << 32,
            linear: 0x7f00_1234_5678,
            physical: 0x1_2345_6678,
        }
    }
}

impl IbsOp {
    /// The raw bytes: capabilities, seven registers, and those that the
    /// capabilities add.
    pub fn raw(&self) -> Vec<u8> {
        let mut raw = self.caps.to_ne_bytes().to_vec();
        let registers = [
            0x4_0000,
            0x40_0000,
            9,
            self.data2,
            self.data3,
            self.linear,
            self.physical,
        ];
        for register in registers {
            raw.extend(u64::to_ne_bytes(register));
        }
        for bit in [5, 10] {
            if self.caps & 1 << bit != 0 {
                raw.extend([0xee; 8]);
            }
        }
        raw
    }
}
