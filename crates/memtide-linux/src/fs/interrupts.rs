//! `/proc/interrupts`: how often processors interrupted each other.
//!
//! A line is `NAME: count-per-processor.. words`. Only one is read here, the
//! TLB shootdowns of x86. They are the whole machine's; there is no count by
//! process. Where the hardware tells other processors without an interrupt
//! (arm64) the line is missing.

use super::parse::{Parsed, lines, number, words};
use super::{Result, Root};

/// TLB shootdown interrupts of all processors since boot; `None` where the
/// kernel does not count them.
pub fn tlb_shootdowns(root: &Root) -> Result<Option<u64>> {
    Ok(root.parse("proc/interrupts", parse)?.flatten())
}

/// See [`tlb_shootdowns`].
pub fn parse(bytes: &[u8]) -> Parsed<Option<u64>> {
    for (line, content) in lines(bytes) {
        let mut fields = words(content);
        if fields.next() != Some(b"TLB:") {
            continue;
        }
        let counts = fields.take_while(|word| word.iter().all(u8::is_ascii_digit));
        let mut sum = 0u64;
        for count in counts {
            sum = sum.wrapping_add(number(count, line, "TLB")?);
        }
        return Ok(Some(sum));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_summed() {
        let text = b"     CPU0  CPU1\n  0:  5  0  IO-APIC  2-edge\nTLB:  12  30   TLB shootdowns\n";
        assert_eq!(parse(text).unwrap(), Some(42));
        assert_eq!(parse(b"IPI0:  1  2  Rescheduling\n").unwrap(), None);
        let error = parse(b"\nTLB: 99999999999999999999\n").unwrap_err();
        assert!(error.to_string().starts_with("2: TLB: "), "{error}");
    }
}
