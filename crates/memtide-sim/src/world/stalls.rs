//! For how long programs wait for memory, as the kernel would tell it (PSI).
//!
//! Neither machine has programs wait: the engine's reclaim takes no time of theirs, and the machine of
//! rates has none. So who makes a world says when somebody waits.

use memtide_loop::world::{ClassId, Stalls};

/// A time in which some task waits now and then.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// From when, in milliseconds of the world.
    pub from_ms: u64,
    /// Until when.
    pub until_ms: u64,
    /// The part of the time in which some task of the machine waits, in thousandths.
    pub permille: u64,
    /// The class of these tasks, if they are of one.
    pub class: Option<ClassId>,
}

impl Waits {
    /// The time that was waited until `now_ms`, in µs.
    fn us(&self, now_ms: u64) -> u64 {
        let ms = now_ms.clamp(self.from_ms, self.until_ms) - self.from_ms;
        ms * self.permille
    }
}

/// What the kernel tells at `now_ms` of a machine with so many classes.
pub(super) fn until(waits: &[Waits], now_ms: u64, classes: usize) -> Stalls {
    let sum = |fit: &dyn Fn(&Waits) -> bool| {
        let those = waits.iter().filter(|waits| fit(waits));
        those.map(|waits| waits.us(now_ms)).sum()
    };
    let of_class = |class| sum(&|waits| waits.class == Some(ClassId(class)));
    Stalls {
        machine: Some(sum(&|_| true)),
        classes: (0..classes as u32).map(|n| Some(of_class(n))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_waits_the_machine_does() {
        let waits = |from_ms, until_ms, permille, class: Option<u32>| Waits {
            from_ms,
            until_ms,
            permille,
            class: class.map(ClassId),
        };
        let all = [waits(100, 300, 500, Some(1)), waits(400, 500, 10, None)];
        let at = |ms| {
            let stalls = until(&all, ms, 2);
            (stalls.machine, stalls.classes)
        };
        assert_eq!(at(50), (Some(0), vec![Some(0), Some(0)]));
        // Half of 100 ms.
        assert_eq!(at(200), (Some(50_000), vec![Some(0), Some(50_000)]));
        // Half of 200 ms, and a hundredth of 100.
        assert_eq!(at(9000), (Some(101_000), vec![Some(0), Some(100_000)]));
    }
}
