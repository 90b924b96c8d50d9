//! Memory traffic that no compiler leaves out: whole lines read and written.
//!
//! On x86-64 the loops are written in assembler, in loads and stores of 16
//! bytes, which every such processor has and which are wide enough to keep its
//! lines coming from memory (a loop is done with a line in four instructions).
//! Stores go around the cache: an ordinary one reads the line first, and what
//! was to be a stream of writes would be one of reads and writes, half of them
//! not counted.
//!
//! Other processors get volatile words and ordinary stores; most of them see
//! that whole lines are written and do not read them first.

use super::node_memory::Line;

/// What is written. Not zeros: writing those was measured a third faster on a
/// processor of 2022, which no program's data would be.
pub const PATTERN: u64 = 0x5aa5_3cc3_9669_f00f;

/// Reads every line.
pub fn read(from: &[Line]) {
    imp::read(from);
}

/// Writes [`PATTERN`] to every line.
pub fn write(to: &mut [Line]) {
    imp::write(to);
}

/// Reads each line of `from` and writes it to the line of `to` of the same
/// index: as much is read as is written.
///
/// # Panics
///
/// If the slices differ in length.
pub fn copy(from: &[Line], to: &mut [Line]) {
    assert_eq!(from.len(), to.len(), "a line for a line");
    imp::merge(from, from, to, false);
}

/// Reads a line of `one` and a line of `other` for each line that it writes to
/// `to`: twice as much is read as is written.
///
/// # Panics
///
/// If the slices differ in length.
pub fn merge(one: &[Line], other: &[Line], to: &mut [Line]) {
    assert_eq!(one.len(), to.len(), "a line for a line");
    assert_eq!(other.len(), to.len(), "a line for a line");
    imp::merge(one, other, to, true);
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use super::Line;
    use std::arch::asm;

    pub fn read(from: &[Line]) {
        if from.is_empty() {
            return;
        }
        let lines = from.as_ptr_range();
        // SAFETY: reads the lines of `from` one after another and writes no
        // memory; a line is aligned to 64 bytes, as `movaps` wants 16.
        unsafe {
            asm!(
                "2:",
                "movaps {a}, [{at}]",
                "movaps {b}, [{at} + 16]",
                "movaps {a}, [{at} + 32]",
                "movaps {b}, [{at} + 48]",
                "add {at}, 64",
                "cmp {at}, {end}",
                "jb 2b",
                at = inout(reg) lines.start => _,
                end = in(reg) lines.end,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                options(nostack, readonly),
            );
        }
    }

    pub fn write(to: &mut [Line]) {
        if to.is_empty() {
            return;
        }
        let lines = to.as_mut_ptr_range();
        // SAFETY: writes to the lines of `to` one after another, which
        // are borrowed mutably and aligned to 64 bytes. `sfence` makes the
        // stores visible before anyone else can see that we are done.
        unsafe {
            asm!(
                "movq {a}, {pattern}",
                "punpcklqdq {a}, {a}",
                "2:",
                "movntps [{at}], {a}",
                "movntps [{at} + 16], {a}",
                "movntps [{at} + 32], {a}",
                "movntps [{at} + 48], {a}",
                "add {at}, 64",
                "cmp {at}, {end}",
                "jb 2b",
                "sfence",
                at = inout(reg) lines.start => _,
                end = in(reg) lines.end,
                pattern = in(reg) super::PATTERN,
                a = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    /// Writes `one` or, with `both`, the bits that are set in either.
    pub fn merge(one: &[Line], other: &[Line], to: &mut [Line], both: bool) {
        if to.is_empty() {
            return;
        }
        let lines = to.as_mut_ptr_range();
        let (one, other) = (one.as_ptr(), other.as_ptr());
        if both {
            // SAFETY: the three slices have the same length (asserted by the
            // callers), and `to` is borrowed mutably, so it overlaps neither.
            unsafe {
                asm!(
                    "2:",
                    "movaps {a}, [{one}]",
                    "movaps {b}, [{one} + 16]",
                    "movaps {c}, [{one} + 32]",
                    "movaps {d}, [{one} + 48]",
                    "orps {a}, [{other}]",
                    "orps {b}, [{other} + 16]",
                    "orps {c}, [{other} + 32]",
                    "orps {d}, [{other} + 48]",
                    "movntps [{at}], {a}",
                    "movntps [{at} + 16], {b}",
                    "movntps [{at} + 32], {c}",
                    "movntps [{at} + 48], {d}",
                    "add {one}, 64",
                    "add {other}, 64",
                    "add {at}, 64",
                    "cmp {at}, {end}",
                    "jb 2b",
                    "sfence",
                    one = inout(reg) one => _,
                    other = inout(reg) other => _,
                    at = inout(reg) lines.start => _,
                    end = in(reg) lines.end,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    options(nostack),
                );
            }
        } else {
            // SAFETY: as above, with one slice less.
            unsafe {
                asm!(
                    "2:",
                    "movaps {a}, [{one}]",
                    "movaps {b}, [{one} + 16]",
                    "movaps {c}, [{one} + 32]",
                    "movaps {d}, [{one} + 48]",
                    "movntps [{at}], {a}",
                    "movntps [{at} + 16], {b}",
                    "movntps [{at} + 32], {c}",
                    "movntps [{at} + 48], {d}",
                    "add {one}, 64",
                    "add {at}, 64",
                    "cmp {at}, {end}",
                    "jb 2b",
                    "sfence",
                    one = inout(reg) one => _,
                    at = inout(reg) lines.start => _,
                    end = in(reg) lines.end,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    options(nostack),
                );
            }
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), test))]
#[cfg_attr(target_arch = "x86_64", allow(dead_code))]
mod portable {
    use super::Line;
    use std::ptr::{read_volatile, write_volatile};

    pub fn read(from: &[Line]) {
        for line in from {
            // SAFETY: a reference is valid to read.
            unsafe { read_volatile(line) };
        }
    }

    pub fn write(to: &mut [Line]) {
        for line in to {
            // SAFETY: a mutable reference is valid to write.
            unsafe { write_volatile(line, Line([super::PATTERN; 8])) };
        }
    }

    pub fn merge(one: &[Line], other: &[Line], to: &mut [Line], both: bool) {
        for ((one, other), to) in one.iter().zip(other).zip(to) {
            // SAFETY: references are valid to read and to write.
            unsafe {
                let mut line = read_volatile(one);
                if both {
                    let other = read_volatile(other);
                    line.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
                }
                write_volatile(to, line);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
use portable as imp;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize, first: u64) -> Vec<Line> {
        let words = |line: usize| std::array::from_fn(|word| first + (line * 8 + word) as u64);
        (0..count).map(|line| Line(words(line))).collect()
    }

    fn words(lines: &[Line]) -> Vec<u64> {
        lines.iter().flat_map(|line| line.0).collect()
    }

    #[test]
    fn every_word_of_every_line_is_written_and_none_beside() {
        for count in [0, 1, 2, 3, 7, 64] {
            let (one, other) = (lines(count, 1), lines(count, 1 << 40));
            let mut to = lines(count + 2, 77);
            let untouched = words(&to);
            let edges = |to: &[Line]| {
                assert_eq!(to[0].0[..], untouched[..8]);
                assert_eq!(to[count + 1].0[..], untouched[untouched.len() - 8..]);
            };
            read(&one);
            copy(&one, &mut to[1..=count]);
            assert_eq!(words(&to[1..=count]), words(&one));
            edges(&to);
            merge(&one, &other, &mut to[1..=count]);
            let both = words(&one).into_iter().zip(words(&other));
            let both: Vec<u64> = both.map(|(a, b)| a | b).collect();
            assert_eq!(words(&to[1..=count]), both);
            edges(&to);
            write(&mut to[1..=count]);
            assert!(words(&to[1..=count]).iter().all(|word| *word == PATTERN));
            edges(&to);
        }
    }

    #[test]
    fn the_portable_loops_do_the_same() {
        let (one, other) = (lines(5, 1), lines(5, 1 << 40));
        for both in [false, true] {
            let (mut here, mut there) = (lines(5, 0), lines(5, 0));
            imp::merge(&one, &other, &mut here, both);
            portable::merge(&one, &other, &mut there, both);
            assert_eq!(words(&here), words(&there));
        }
        let mut to = lines(5, 9);
        portable::read(&to);
        portable::write(&mut to);
        assert!(words(&to).iter().all(|word| *word == PATTERN));
    }

    #[test]
    #[should_panic(expected = "a line for a line")]
    fn slices_of_unequal_length_are_refused() {
        copy(&lines(2, 0), &mut lines(1, 0));
    }
}
