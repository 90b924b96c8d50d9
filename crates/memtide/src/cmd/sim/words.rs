//! Figures and findings in words.

use super::comparison::{Measure, MeasureKind, Outcome};

/// What the best configuration gains, in one line.
pub fn summary(measure: &Measure, outcomes: &[Outcome]) -> String {
    let better = |a: &f64, b: &f64| match measure.kind {
        MeasureKind::Time => a.total_cmp(b),
        MeasureKind::Score | MeasureKind::Pages => b.total_cmp(a),
    };
    if measure.kind == MeasureKind::Pages {
        return "Where the pages lie is the result; nothing is faster or slower.".to_owned();
    }
    let Some(first) = outcomes.first() else {
        return "Nothing was run.".to_owned();
    };
    // Over several seeds, what may as well be chance is no gain.
    let differs = |outcome: &&Outcome| {
        std::ptr::eq(*outcome, first) || outcome.confidence.is_alike() != Some(true)
    };
    let best = outcomes
        .iter()
        .filter(|outcome| !outcome.bound)
        .filter(differs)
        .min_by(|a, b| better(&a.shown_value(), &b.shown_value()));
    let Some(best) = best else {
        return "Only bounds were run; there is nothing to compare them with.".to_owned();
    };
    let oracle = outcomes
        .iter()
        .find(|outcome| outcome.run.configuration == "oracle")
        .and_then(|oracle| room(measure, best.shown_value(), oracle));
    let value = |of: &Outcome| amount(of.shown_value(), &measure.unit);
    let name = &best.run.configuration;
    let against = &first.run.configuration;
    let as_good = |ratio: f64| (ratio - 1.0).abs() < 0.005;
    let finding = match (best.shown_ratio(), measure.kind) {
        (ratio, _) if std::ptr::eq(best, first) || ratio.is_some_and(as_good) => {
            match outcomes.iter().filter(|outcome| !outcome.bound).count() {
                1 => format!("{name}: {}", value(best)),
                _ => format!("Nothing gains over {against} here: {}", value(first)),
            }
        }
        (Some(ratio), MeasureKind::Time) => format!(
            "Best: {name} takes {}, {} less time than {against}",
            value(best),
            percent(1.0 - ratio)
        ),
        (Some(ratio), _) => format!(
            "Best: {name} reaches {}, {} more than {against}",
            value(best),
            percent(ratio - 1.0)
        ),
        (None, _) => format!("Best: {name} with {}", value(best)),
    };
    match oracle {
        Some(room) => format!("{finding}; {room}."),
        None => format!("{finding}."),
    }
}

/// How far the best is from the oracle.
fn room(measure: &Measure, best: f64, oracle: &Outcome) -> Option<String> {
    let (oracle, estimate) = (oracle.shown_value(), &oracle.run.estimate);
    if best <= 0.0 || oracle <= 0.0 {
        return None;
    }
    let left = match measure.kind {
        MeasureKind::Time => best / oracle - 1.0,
        MeasureKind::Score | MeasureKind::Pages => 1.0 - best / oracle,
    };
    let bound = match estimate {
        None => "the oracle, a bound on what placing pages by their rates can reach".to_owned(),
        Some(why) => {
            format!(
                "the oracle, an estimate of what placing pages by their rates could reach ({why})"
            )
        }
    };
    Some(match (left, measure.kind) {
        (left, MeasureKind::Time) if left < -0.005 => {
            format!("{} shorter than {bound}", percent(-left))
        }
        (left, _) if left < -0.005 => format!("{} above {bound}", percent(-left)),
        (left, _) if left < 0.005 => format!("it is as good as {bound}"),
        (left, MeasureKind::Time) => format!("{} longer than {bound}", percent(left)),
        (left, _) => format!("{} below {bound}", percent(left)),
    })
}

/// From here on a figure is written with its power of ten: files can hold 10^308.
const ABSURD: f64 = 1e15;

/// `29 %`, with a decimal below ten.
pub fn percent(share: f64) -> String {
    match (share * 100.0).abs() {
        small if small < 9.95 => format!("{:.1} %", share * 100.0),
        absurd if absurd >= ABSURD => format!("{:.1e} %", share * 100.0),
        _ => format!("{:.0} %", share * 100.0),
    }
}

/// A value with its unit: three digits at least.
pub fn amount(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    match value.abs() >= 100_000.0 {
        true => format!("{} {unit}", grouped(value.round() as u64)),
        false => format!("{value:.digits$} {unit}"),
    }
}

/// A ratio: `0.713`.
pub fn ratio(ratio: f64) -> String {
    match ratio.abs() {
        absurd if absurd >= ABSURD => format!("{ratio:.3e}"),
        large if large >= 10.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.3}"),
    }
}

/// A count with commas: `6,561,136`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds of CPU time in seconds.
pub fn cpu_seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        0.0 => "0".to_owned(),
        small if small < 0.01 => "<0.01".to_owned(),
        large if large >= 100.0 => grouped(large.round() as u64),
        other => format!("{other:.2}"),
    }
}

/// Bytes with a binary unit.
pub fn bytes(bytes: u64) -> String {
    let (divisor, unit) = match bytes {
        size if size >= 1 << 40 => (1u64 << 40, "TiB"),
        size if size >= 1 << 30 => (1 << 30, "GiB"),
        size if size >= 1 << 20 => (1 << 20, "MiB"),
        _ => (1 << 10, "KiB"),
    };
    let value = bytes as f64 / divisor as f64;
    match value.fract() == 0.0 {
        true => format!("{value} {unit}"),
        false => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::comparison::samples;
    use super::*;
    use memtide_sim::scenario::confidence::{Confidence, Spread};

    #[test]
    fn the_best_configuration_in_words() {
        // 45 s against 60 s is 25 % less; 45 / 40 is 12.5 % over the oracle.
        assert_eq!(
            samples::comparison().cases[0].summary,
            "Best: pghot-hwhints takes 45.00 s, 25 % less time than NUMAB0; \
             12 % longer than the oracle, a bound on what placing pages by their rates can reach."
        );
    }

    /// The table shows medians: the finding is theirs, and not that of the first seed.
    #[test]
    fn the_best_over_several_seeds() {
        let comparison = samples::comparison();
        let case = &comparison.cases[0];
        let spread = |median: f64, low, high| Spread { median, low, high };
        let sure = |name: &str, value: f64, ratio: Spread| {
            let of = |outcome: &&Outcome| outcome.run.configuration == name;
            let outcome = case.configurations.iter().find(of).unwrap().clone();
            outcome.sure(Confidence {
                value: Some(spread(value, value - 1.0, value + 1.0)),
                ratio: Some(ratio),
                ..Confidence::default()
            })
        };
        let first = sure("NUMAB0", 60.0, spread(1.0, 1.0, 1.0));
        let slower = sure("pghot-hwhints", 63.0, spread(1.05, 1.01, 1.09));
        let said = summary(&case.measure, &[first.clone(), slower]);
        assert_eq!(said, "Nothing gains over NUMAB0 here: 60.00 s.");
        let unsure = sure("pghot-hwhints", 53.0, spread(0.9, 0.7, 1.1));
        let said = summary(&case.measure, &[first.clone(), unsure.clone()]);
        assert_eq!(said, "Nothing gains over NUMAB0 here: 60.00 s.");
        let faster = sure("pghot-hwhints", 54.0, spread(0.9, 0.85, 0.95));
        let said = summary(&case.measure, &[first, unsure, faster]);
        assert_eq!(
            said,
            "Best: pghot-hwhints takes 54.00 s, 10 % less time than NUMAB0."
        );
    }

    #[test]
    fn figures() {
        assert_eq!(grouped(6_561_136), "6,561,136");
        assert_eq!(grouped(999), "999");
        assert_eq!(amount(63.0361, "s"), "63.04 s");
        assert_eq!(amount(1_234_567.0, "accesses/s"), "1,234,567 accesses/s");
        assert_eq!(percent(0.0345), "3.5 %");
        assert_eq!(percent(0.291), "29 %");
        assert_eq!(cpu_seconds(1_500_000_000), "1.50");
        assert_eq!(bytes(128 << 30), "128 GiB");
    }
}
