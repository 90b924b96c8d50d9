//! Axes: where their marks are, and how Grafana writes values of each unit.

/// An axis from 0 to its last mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The values at the marks, from 0 on.
    pub marks: Vec<f64>,
    /// What stands beside each.
    pub words: Vec<String>,
}

/// Marks above 0, at most.
const MARKS: f64 = 4.0;
const IEC: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
const SI_A_SECOND: [&str; 5] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];

impl Scale {
    /// For values of this unit up to `most`.
    ///
    /// # Panics
    /// The unit is one that the picture does not have.
    pub fn new(unit: &str, most: f64) -> Scale {
        let most = if most > 0.0 { most } else { 1.0 };
        let (factor, suffix) = match unit {
            "bytes" => prefixed(most, 1024.0, &IEC),
            "Bps" => prefixed(most, 1000.0, &SI_A_SECOND),
            "percentunit" => (0.01, "%"),
            "short" | "none" => (1.0, ""),
            other => panic!("the picture has no unit {other}"),
        };
        let step = step(most / factor);
        let count = (most / factor / step).ceil() as usize;
        let decimals = (0..6).find(|&n| (step * 10f64.powi(n)).fract().abs() < 1e-6);
        let decimals = decimals.unwrap_or(6) as usize;
        let word = |n: usize| {
            let value = n as f64 * step;
            let blank = if suffix.len() > 1 { " " } else { "" };
            format!("{value:.decimals$}{blank}{suffix}")
        };
        Scale {
            marks: (0..=count).map(|n| n as f64 * step * factor).collect(),
            words: (0..=count).map(word).collect(),
        }
    }

    /// The last mark.
    pub fn top(&self) -> f64 {
        self.marks.last().copied().unwrap_or(1.0)
    }
}

/// The largest unit of which `most` has one.
fn prefixed(most: f64, base: f64, suffixes: &[&'static str]) -> (f64, &'static str) {
    let mut factor = 1.0;
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next().expect("a suffix");
    for next in suffixes {
        if most < factor * base {
            break;
        }
        factor *= base;
        suffix = next;
    }
    (factor, suffix)
}

/// 1, 2 or 5 times a power of ten, so that few are enough.
fn step(most: f64) -> f64 {
    let least = most / MARKS;
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
    // An error of rounding is no reason for a mark more.
    let fits = steps
        .into_iter()
        .find(|step| step * MARKS >= most * (1.0 - 1e-9));
    fits.unwrap_or(10.0 * power)
}

#[test]
fn marks_are_round_and_few() {
    let words = |unit, most| Scale::new(unit, most).words.join(", ");
    assert_eq!(
        words("bytes", 7.3 * 1024f64.powi(3)),
        "0 GiB, 2 GiB, 4 GiB, 6 GiB, 8 GiB"
    );
    assert_eq!(words("bytes", 900.0 * 1024.0), "0 KiB, 500 KiB, 1000 KiB");
    assert_eq!(
        words("Bps", 268_435_456.0),
        "0 MB/s, 100 MB/s, 200 MB/s, 300 MB/s"
    );
    assert_eq!(words("percentunit", 1.0), "0%, 50%, 100%");
    assert_eq!(words("percentunit", 0.053), "0%, 2%, 4%, 6%");
    assert_eq!(words("short", 0.35), "0.0, 0.1, 0.2, 0.3, 0.4");
    assert_eq!(words("none", 0.0), "0.0, 0.5, 1.0");
}

#[test]
fn the_last_mark_is_no_less_than_the_most() {
    for most in [0.0001, 0.9, 1.0, 3.0, 17.0, 999.0, 1024.0, 123_456_789.0] {
        for unit in ["bytes", "Bps", "percentunit", "short", "none"] {
            let scale = Scale::new(unit, most);
            assert!(
                scale.top() >= most * (1.0 - 1e-9),
                "{unit} {most} {scale:?}"
            );
            assert!(scale.marks.len() <= 6, "{scale:?}");
        }
    }
}
