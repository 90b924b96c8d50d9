//! Sizes, times and rates as text with units: "128 GiB", "110 ns", "300 GB/s".
//!
//! A bare number in a machine's description is a trap: 300 of what? So every quantity is text with
//! its unit, and an error says which units there are. Binary and decimal prefixes mean what they
//! say: a GiB is 2^30 bytes, a GB 10^9.

use serde::de::{self, Deserialize, Deserializer};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Nanos(pub f64);

/// A rate in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

/// What is wrong with a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No unit, or one that does not exist.
    #[error("\"{text}\" has {problem}; write a number and one of {units}, as in \"{example}\"")]
    Unit {
        /// As given.
        text: String,
        /// "no unit", or which one is unknown.
        problem: String,
        /// The units there are.
        units: String,
        /// A right one.
        example: &'static str,
    },
    /// Not a number, or a negative one, or too large.
    #[error("\"{text}\" does not begin with a number of at least 0; write it as in \"{example}\"")]
    Number {
        /// As given.
        text: String,
        /// A right one.
        example: &'static str,
    },
}

const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
const TIMES: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 6e10),
];
const RATES: &[(&str, f64)] = &[
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("MiB/s", 1_048_576.0),
    ("GiB/s", 1_073_741_824.0),
];

fn quantity(
    text: &str,
    units: &'static [(&'static str, f64)],
    example: &'static str,
) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let unit_at = trimmed
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | ',')))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(unit_at);
    let number = number.replace(['_', ','], "");
    let wrong_number = || UnitError::Number {
        text: text.to_owned(),
        example,
    };
    let number: f64 = number.parse().map_err(|_| wrong_number())?;
    let unit = unit.trim();
    match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) if number * factor < 1e19 => Ok(number * factor),
        Some(_) => Err(wrong_number()),
        None => Err(UnitError::Unit {
            text: text.to_owned(),
            problem: match unit {
                "" => "no unit".to_owned(),
                _ => format!("the unknown unit {unit}"),
            },
            units: units
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", "),
            example,
        }),
    }
}

impl std::str::FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        Ok(Bytes(quantity(text, SIZES, "128 GiB")?.round() as u64))
    }
}

impl std::str::FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Nanos, UnitError> {
        quantity(text, TIMES, "110 ns").map(Nanos)
    }
}

impl std::str::FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Rate, UnitError> {
        quantity(text, RATES, "300 GB/s").map(Rate)
    }
}

macro_rules! from_text {
    ($($kind:ident $example:literal,)*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$kind, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $kind;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "text with a unit, as in \"{}\"", $example)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$kind, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$kind, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$kind, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    )*};
}

from_text! {
    Bytes "128 GiB",
    Nanos "110 ns",
    Rate "300 GB/s",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_what_their_units_say() {
        assert_eq!("128 GiB".parse(), Ok(Bytes(128 << 30)));
        assert_eq!("640MB".parse(), Ok(Bytes(640_000_000)));
        assert_eq!("128,460 MB".parse(), Ok(Bytes(128_460_000_000)));
        assert_eq!("1.5 us".parse(), Ok(Nanos(1500.0)));
        assert_eq!("2 min".parse(), Ok(Nanos(120e9)));
        assert_eq!("298.8 GB/s".parse(), Ok(Rate(298.8e9)));
    }

    #[test]
    fn a_missing_or_unknown_unit_names_the_units() {
        let error = "110".parse::<Nanos>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"110\" has no unit; write a number and one of ns, us, ms, s, min, as in \"110 ns\""
        );
        let error = "300 Gb/s".parse::<Rate>().unwrap_err().to_string();
        assert!(error.contains("the unknown unit Gb/s"), "{error}");
        for text in ["", "GiB", "-1 GiB", "1e400 GiB", "99999999999 TiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
