//! Numbers as people write them: digits and nothing else.
//!
//! The standard library reads `+5` as 5, also after a `0x`. A sign in the midst of
//! a list or before a number of nodes is a slip of the hand, and a search for
//! two equal keys must not meet three ways to write one number. So what users and
//! files give is read here: a sign is refused everywhere, and leading zeros are fine.

use std::str::FromStr;

/// A decimal number; `None` if it is none, has a sign, or `N` cannot hold it.
pub fn decimal<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Digits with at most one point among them; `None` if it is anything else, as `1e6`.
pub fn fraction(text: &str) -> Option<f64> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let number = text.bytes().all(plain).then(|| text.parse().ok())?;
    number.filter(|number: &f64| number.is_finite())
}

/// Whether it is a [`fraction`] of at most 20 digits, without zeros before it, with nothing but a
/// unit behind it, as `1.5 GiB`. Libraries that read units take signs and exponents, too, and one
/// overflows where the first 20 of more digits are those of 2⁶⁴ - 1.
pub fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let digits = number.bytes().filter(u8::is_ascii_digit);
    fraction(number).is_some() && digits.skip_while(|digit| *digit == b'0').count() <= 20
}

/// Hexadecimal digits, without `0x`; `None` as of [`decimal`].
pub fn hexadecimal(digits: &str) -> Option<u64> {
    let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_no_digits_and_zeros_are() {
        assert_eq!(decimal("007"), Some(7u8));
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
        assert_eq!(hexadecimal("00fF"), Some(255));
        for text in ["", "+1", "-1", "+", " 1", "1 ", "1_0", "0x1", "\u{661}"] {
            assert_eq!(decimal::<u64>(text), None, "{text}");
            assert_eq!(hexadecimal(text), None, "{text}");
        }
        assert_eq!(decimal::<u8>("256"), None);
        assert_eq!(hexadecimal("10000000000000000"), None);
    }

    #[test]
    fn a_fraction_has_one_point_and_no_exponent() {
        assert_eq!([fraction("01"), fraction("22.5")], [Some(1.0), Some(22.5)]);
        assert_eq!([fraction(".5"), fraction("5.")], [Some(0.5), Some(5.0)]);
        for text in [
            "", ".", "1.2.3", "+1", "-1", "1e6", "1e+6", "inf", "nan", "1_0", " 1",
        ] {
            assert_eq!(fraction(text), None, "{text}");
        }
        assert_eq!(fraction(&"9".repeat(400)), None);
        assert!(["1.5 GiB", "2G", "7"].into_iter().all(is_quantity));
        assert!(is_quantity("0000018446744073709551615GiB"));
        assert!(!is_quantity("0.000184467440737095516158"));
        assert!(
            !["1e+6MiB", "1e6", "GiB", "", "-1G"]
                .into_iter()
                .any(is_quantity)
        );
    }
}
