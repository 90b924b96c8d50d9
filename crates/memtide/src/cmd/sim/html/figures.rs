//! Figures of charts: exact ones for values, short ones for axes, and where an axis has its lines.

use crate::cmd::sim::words::grouped;

/// A value as it is shown beside its point: counts whole, others with six digits that count.
pub fn exact(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", grouped(size as u64));
    }
    let power = size.log10().floor();
    match power {
        large if large >= 15.0 => format!("{value:.5e}"),
        large if large >= 5.0 => exact(value.round()),
        small if small < -5.0 => format!("{value:.5e}"),
        _ => {
            let digits = (5.0 - power) as usize;
            trimmed(format!("{value:.digits$}"))
        }
    }
}

/// A figure with three digits that count and a suffix: `1.25 M`.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e15 => return format!("{value:.1e}"),
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        size if size < 1e-3 && size > 0.0 => return format!("{value:.0e}"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 2,
        _ => 4,
    };
    format!("{}{suffix}", trimmed(format!("{scaled:.digits$}")))
}

fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Round figures from 0 to `top`, at most `most` steps of 1, 2, 2.5 or 5 times a power of ten.
pub fn ticks(top: f64, most: usize) -> Vec<f64> {
    let least = top / most as f64;
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|&step| step >= least * 0.999_999);
    let step = step.unwrap_or(power * 10.0);
    if !step.is_finite() || step <= 0.0 {
        return vec![0.0];
    }
    let count = (top / step + 1e-6).floor() as usize;
    (0..=count.min(most)).map(|n| n as f64 * step).collect()
}

/// Powers of ten, and where there are few of them twos and fives, within a range.
pub fn powers(from: f64, to: f64) -> Vec<f64> {
    let first = from.log10().floor() as i32;
    let last = to.log10().ceil() as i32;
    let of = |times: &[f64]| -> Vec<f64> {
        let all = (first..=last).flat_map(|power| times.iter().map(move |t| t * 10f64.powi(power)));
        all.filter(|at| (from..=to).contains(at)).collect()
    };
    let tens = of(&[1.0]);
    match tens.len() {
        0..=2 => of(&[1.0, 2.0, 5.0]),
        few @ 3..=6 => tens[..few].to_vec(),
        many => tens.into_iter().step_by(many.div_ceil(5)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact_or_short() {
        for (value, text) in [
            (0.0, "0"),
            (6_561_136.0, "6,561,136"),
            (0.776_872_535_4, "0.776873"),
            (63.036_149, "63.0361"),
            (320_000.5, "320,001"),
            (0.000_012_345_678, "0.0000123457"),
            (1e-9, "1.00000e-9"),
            (1.5e300, "1.50000e300"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(exact(value), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (0.005, "0.005"),
            (63.04, "63"),
            (1234.0, "1234"),
            (20_000.0, "20 k"),
            (6_561_136.0, "6.56 M"),
            (2e9, "2 G"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn axes_have_round_figures() {
        assert_eq!(ticks(54.0, 5), [0.0, 20.0, 40.0]);
        assert_eq!(ticks(100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(powers(0.5, 2000.0), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(powers(3.0, 60.0), [5.0, 10.0, 20.0, 50.0]);
        for top in [0.0, f64::MIN_POSITIVE, 1e-300, 1e300, f64::MAX] {
            assert!(ticks(top, 5).len() <= 6);
        }
    }
}
