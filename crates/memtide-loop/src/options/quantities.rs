//! Quantities as people write them.
//!
//! Each reads and prints its own text, and is a string or a whole number in a
//! file. What it holds is within its bounds.

use super::classes::Amount;
use super::weights::NodeWeights;
use memtide_core::hotness::{Config, Layout};
use memtide_core::numbers;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

/// Bytes: `64MiB`, `1G`, in powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// How far apart two accesses may be to count together: `5s`, `1500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(u32);

/// How long nobody touches a page that leaves: `10m`, `1h 30m`; 10 s to 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTime(u32);

/// How many accesses make a page hot: 1 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold(u8);

/// A share: 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(u8);

/// A share of a CPU from 0.1 to 100 percent, with at most one decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit(u32);

/// So many a second: 1 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u32);

impl Window {
    /// `ms`, if the records of accesses can tell so long a time.
    pub fn from_ms(ms: u32) -> Result<Window, String> {
        match Config::new(Layout::Precise).with_window_ms(ms) {
            Ok(_) => Ok(Window(ms)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// In milliseconds.
    pub fn ms(self) -> u32 {
        self.0
    }

    pub(crate) const fn new(ms: u32) -> Window {
        Window(ms)
    }
}

impl IdleTime {
    /// In milliseconds.
    pub fn ms(self) -> u64 {
        u64::from(self.0)
    }
}

impl Threshold {
    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    pub(crate) const fn new(accesses: u8) -> Threshold {
        Threshold(accesses)
    }
}

impl Percent {
    /// In thousandths.
    pub fn permille(self) -> u32 {
        u32::from(self.0) * 10
    }

    pub(crate) const fn new(percent: u8) -> Percent {
        Percent(percent)
    }
}

impl CpuLimit {
    /// In thousandths.
    pub fn permille(self) -> u32 {
        self.0
    }

    pub(crate) const fn new(permille: u32) -> CpuLimit {
        CpuLimit(permille)
    }
}

impl Rate {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    pub(crate) const fn new(a_second: u32) -> Rate {
        Rate(a_second)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        if !numbers::is_quantity(text) {
            return Err("not a size; write it as 64MiB or 1G".to_owned());
        }
        parse_size::Config::new()
            .with_binary()
            .parse_size(text)
            .map(Size)
            .map_err(|error| match error {
                parse_size::Error::PosOverflow => "more than there can be".to_owned(),
                _ => "not a size; write it as 64MiB or 1G".to_owned(),
            })
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Window, String> {
        let time = humantime::parse_duration(text)
            .map_err(|_| "not a time with its unit; write it as 500ms or 10s".to_owned())?;
        Window::from_ms(u32::try_from(time.as_millis()).unwrap_or(u32::MAX))
    }
}

impl FromStr for IdleTime {
    type Err = String;

    fn from_str(text: &str) -> Result<IdleTime, String> {
        let time = humantime::parse_duration(text)
            .map_err(|_| "not a time with its unit; write it as 90s or 10m".to_owned())?;
        let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        match ms {
            10_000..=2_592_000_000 => Ok(IdleTime(ms)),
            _ => Err("not a time from 10s to 30days".to_owned()),
        }
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        match numbers::decimal(text) {
            Some(threshold @ 1..=7) => Ok(Threshold(threshold)),
            _ => Err("not a number from 1 to 7".to_owned()),
        }
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        match numbers::decimal(text) {
            Some(percent @ 1..=100) => Ok(Percent(percent)),
            _ => Err("not a number from 1 to 100, without a sign".to_owned()),
        }
    }
}

impl FromStr for CpuLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuLimit, String> {
        let bad = || "not a percentage from 0.1 to 100, with at most one decimal".to_owned();
        let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
        let whole: u32 = numbers::decimal(whole).ok_or_else(bad)?;
        let one = Some(tenth).filter(|tenth| tenth.len() == 1);
        let tenth: u32 = one.and_then(numbers::decimal).ok_or_else(bad)?;
        match whole.saturating_mul(10).saturating_add(tenth) {
            permille @ 1..=1000 => Ok(CpuLimit(permille)),
            _ => Err(bad()),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        match numbers::decimal(text) {
            Some(rate @ 1..=1_000_000) => Ok(Rate(rate)),
            _ => Err("not a number from 1 to 1000000".to_owned()),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let exact = self.0.trailing_zeros() / 10;
        let unit = if self.0 == 0 { 0 } else { exact.min(6) };
        write!(f, "{}{}", self.0 >> (10 * unit), UNITS[unit as usize])
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}s", self.0 / 1000),
            _ => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Display for IdleTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_millis(self.ms());
        humantime::format_duration(time).fmt(f)
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}", self.0 / 10),
            tenth => write!(f, "{}.{tenth}", self.0 / 10),
        }
    }
}

macro_rules! as_number {
    ($($type:ident),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

as_number!(Threshold, Percent, Rate);

macro_rules! as_text {
    ($($type:ident),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(Text(PhantomData))
            }
        }
    )*};
}

as_text!(
    Size,
    Window,
    IdleTime,
    Threshold,
    Percent,
    CpuLimit,
    Rate,
    Amount,
    NodeWeights
);

/// Reads a quantity from its text, or from the number of its own unit.
struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity, in a string or as a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        let size = |text: &str| text.parse::<Size>();
        assert_eq!(size("64MiB"), Ok(Size(64 << 20)));
        assert_eq!(size("8 GiB"), Ok(Size(8 << 30)));
        assert_eq!(size("1G"), Ok(Size(1 << 30)));
        assert!(size("-1").is_err());
        assert!(
            size("much")
                .unwrap_err()
                .ends_with("write it as 64MiB or 1G")
        );
        for text in ["0", "1", "4GiB", "1536MiB", "16MiB", "16EiB"] {
            match size(text) {
                Ok(size) => assert_eq!(size.to_string(), text),
                // 2^64 is one more than there can be.
                Err(error) => assert_eq!((text, &*error), ("16EiB", "more than there can be")),
            }
        }
    }

    #[test]
    fn a_window_must_fit_the_records() {
        let window = |text: &str| text.parse::<Window>();
        assert_eq!(window("5s").map(Window::ms), Ok(5000));
        assert_eq!(window("1500ms").unwrap().to_string(), "1500ms");
        assert!(window("5").is_err());
        for text in ["0s", "999ms", "17s", "100years"] {
            let error = window(text).unwrap_err();
            assert!(error.contains("1000 to 16383 ms"), "{error}");
        }
    }

    #[test]
    fn an_idle_time_is_one_that_observations_can_tell() {
        let ms = |text: &str| text.parse::<IdleTime>().map(IdleTime::ms);
        assert_eq!(ms("10m"), Ok(600_000));
        assert_eq!(ms("1h 30m"), Ok(5_400_000));
        for text in ["9999ms", "0s", "31days", "100years"] {
            assert_eq!(ms(text), Err("not a time from 10s to 30days".into()));
        }
        assert!(ms("600").unwrap_err().ends_with("write it as 90s or 10m"));
        for text in ["10s", "10m", "1h 30m", "1day"] {
            assert_eq!(text.parse::<IdleTime>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn shares_of_a_cpu_have_one_decimal() {
        let permille = |text: &str| text.parse::<CpuLimit>().map(CpuLimit::permille);
        assert_eq!(permille("5"), Ok(50));
        assert_eq!(permille("0.1"), Ok(1));
        assert_eq!(permille("100.0"), Ok(1000));
        for wrong in [
            "0",
            "0.0",
            "100.1",
            "-1",
            "1.25",
            ".5",
            "5%",
            "",
            "99999999999",
        ] {
            assert!(permille(wrong).is_err(), "{wrong}");
        }
        assert_eq!(CpuLimit(55).to_string(), "5.5");
    }

    #[test]
    fn no_quantity_has_a_sign() {
        assert!("+2".parse::<Threshold>().is_err());
        assert!("+5".parse::<Percent>().is_err());
        assert!("+5".parse::<Rate>().is_err());
        assert!("+5".parse::<CpuLimit>().is_err() && "5.+".parse::<CpuLimit>().is_err());
        for text in ["+50%", "50+%", "+1GiB"] {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
        assert!("+1GiB".parse::<Size>().is_err() && "+5s".parse::<Window>().is_err());
        assert!("+10m".parse::<IdleTime>().is_err());
        for text in [
            "1e+6MiB", "1e6MiB", "1e6", "1e-1GiB", "1_000MiB", "1.5.2G", ".", "-1G", " 1G",
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.starts_with("not a size"), "{text}: {error}");
        }
        assert_eq!("1.5 GiB".parse(), Ok(Size(3 << 29)));
        assert_eq!("1e".parse(), Ok(Size(1 << 60)));
        assert_eq!("02".parse(), Ok(Threshold(2)));
    }

    #[test]
    fn whole_numbers_are_bounded() {
        assert!("0".parse::<Threshold>().is_err() && "8".parse::<Threshold>().is_err());
        assert!("0".parse::<Percent>().is_err() && "101".parse::<Percent>().is_err());
        assert!("0".parse::<Rate>().is_err() && "1000001".parse::<Rate>().is_err());
        assert_eq!("7".parse(), Ok(Threshold(7)));
        assert_eq!("100".parse::<Percent>().map(Percent::permille), Ok(1000));
        assert_eq!("1000".parse(), Ok(Rate(1000)));
    }
}
