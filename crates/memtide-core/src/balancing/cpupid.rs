//! Who touched a page last, in a few bits of the page's flags.
//!
//! A *cpupid* holds the low bits of the toucher's process id (its thread's, as
//! the kernel numbers threads) and its CPU. All ones mean that nobody was noted.
//! The process bits alone being all ones count as empty as well, so one thread
//! in 256 is never recognised at 8 bits: that is the kernel's price for the room,
//! and ours.
//!
//! In tiering mode the same bits of a page in slow memory hold a time instead:
//! when a scan armed it, or when a hint fault last found it.

use serde::Serialize;

/// How many bits each part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpupidFormat {
    cpu_bits: u32,
    pid_bits: u32,
    cpus: u32,
}

/// Bits that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cpupid of {cpu_bits} CPU bits and {pid_bits} pid bits for {cpus} CPUs: need 12 to 31 bits in \
     all, at least 1 of pid, and CPU bits that number every CPU"
)]
pub struct CpupidError {
    cpu_bits: u32,
    pid_bits: u32,
    cpus: u32,
}

/// What a page's bits say; see [`CpupidFormat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Cpupid(pub u32);

impl CpupidFormat {
    /// The kernel's 8 bits of pid, and as many of CPU as given, for `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// See [`CpupidError`]. At least 12 bits are needed for times.
    pub fn new(cpu_bits: u32, pid_bits: u32, cpus: u32) -> Result<CpupidFormat, CpupidError> {
        let bits = cpu_bits.saturating_add(pid_bits);
        let good = (12..32).contains(&bits) && pid_bits > 0 && u64::from(cpus) <= 1 << cpu_bits;
        let format = CpupidFormat {
            cpu_bits,
            pid_bits,
            cpus,
        };
        good.then_some(format).ok_or(CpupidError {
            cpu_bits,
            pid_bits,
            cpus,
        })
    }

    /// Nobody was noted.
    #[must_use]
    pub fn none(&self) -> Cpupid {
        Cpupid((1 << (self.cpu_bits + self.pid_bits)) - 1)
    }

    /// Thread `pid` on `cpu`, cut to the bits.
    #[must_use]
    pub fn pack(&self, cpu: u32, pid: u32) -> Cpupid {
        let cpu = cpu & ((1 << self.cpu_bits) - 1);
        Cpupid(cpu << self.pid_bits | pid & self.pid_mask())
    }

    /// The CPU; meaningless if [`CpupidFormat::is_valid`] is false.
    #[must_use]
    pub fn cpu(&self, cpupid: Cpupid) -> u32 {
        (cpupid.0 & self.none().0) >> self.pid_bits
    }

    /// Whether the CPU exists. A time in the same bits may pass for one.
    #[must_use]
    pub fn is_valid(&self, cpupid: Cpupid) -> bool {
        self.cpu(cpupid) < self.cpus
    }

    /// Whether nobody was noted, by the pid bits.
    #[must_use]
    pub fn is_empty(&self, cpupid: Cpupid) -> bool {
        cpupid.0 & self.pid_mask() == self.pid_mask()
    }

    /// Whether the pid bits are those of `pid`.
    #[must_use]
    pub fn matches(&self, cpupid: Cpupid, pid: u32) -> bool {
        cpupid.0 & self.pid_mask() == pid & self.pid_mask()
    }

    /// `now_ms` as the bits hold it.
    #[must_use]
    pub fn time(&self, now_ms: u64) -> Cpupid {
        Cpupid(now_ms as u32 & self.none().0)
    }

    /// Milliseconds since the noted time, modulo the range of the bits.
    #[must_use]
    pub fn since_ms(&self, noted: Cpupid, now_ms: u64) -> u32 {
        (now_ms as u32).wrapping_sub(noted.0) & self.none().0
    }

    fn pid_mask(&self) -> u32 {
        (1 << self.pid_bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_come_back_and_nobody_is_nobody() {
        let format = CpupidFormat::new(9, 8, 128).unwrap();
        // CPU 5, pid 0x1234: its low byte 0x34. 5 * 256 + 0x34 = 0x534.
        let who = format.pack(5, 0x1234);
        assert_eq!(who, Cpupid(0x534));
        assert_eq!(format.cpu(who), 5);
        assert!(format.is_valid(who) && !format.is_empty(who));
        assert!(format.matches(who, 0x1234) && format.matches(who, 0x9934));
        assert!(!format.matches(who, 0x1235));
        // None: CPU 511 of 128 is no CPU.
        let none = format.none();
        assert_eq!(none, Cpupid(0x1_ffff));
        assert!(format.is_empty(none) && !format.is_valid(none));
        // The thread whose low byte is all ones looks empty on any CPU.
        assert!(format.is_empty(format.pack(5, 0xff)) && format.is_valid(format.pack(5, 0xff)));
    }

    #[test]
    fn times_wrap_at_the_width() {
        // 12 bits: a range of 4096 ms.
        let format = CpupidFormat::new(4, 8, 16).unwrap();
        assert_eq!(format.since_ms(format.time(4000), 5000), 1000);
        assert_eq!(format.since_ms(format.time(4000), 4000 + 4096 + 7), 7);
    }

    #[test]
    fn impossible_widths_are_refused() {
        assert!(CpupidFormat::new(3, 8, 8).is_err()); // 11 bits
        assert!(CpupidFormat::new(4, 8, 17).is_err()); // CPU 16 needs 5 bits
        assert!(CpupidFormat::new(24, 8, 8).is_err()); // 32 bits
        let message = CpupidFormat::new(12, 0, 8).unwrap_err().to_string();
        assert!(message.contains("at least 1 of pid"), "{message}");
    }

    proptest! {
        #[test]
        fn packing_loses_only_high_bits(cpu in 0u32..512, pid in any::<u32>(), now in any::<u64>()) {
            let format = CpupidFormat::new(9, 8, 512).unwrap();
            let who = format.pack(cpu, pid);
            prop_assert_eq!(format.cpu(who), cpu);
            prop_assert!(format.matches(who, pid) && format.is_valid(who));
            prop_assert_eq!(format.since_ms(format.time(now), now), 0);
            prop_assert_eq!(format.since_ms(format.time(now), now.wrapping_add(131_071)), 131_071);
        }
    }
}
