//! What users may choose, defined once.
//!
//! The command line and the files of scenarios speak of the same options: same
//! names (`--rate-limit` is `rate_limit`), same values, same defaults. Both are
//! derived from the structs here: clap's side with the feature `clap`, serde's
//! always. A quantity is a type of its own that cannot hold what the loop
//! cannot use, so there is nothing left to check.

mod agreement;
mod balance;
mod classes;
mod pattern;
mod pods;
mod quantities;
mod selectors;
mod sources;
mod tier;
mod weights;

pub use agreement::{Objection, agree, check_name, fit};
pub use balance::{BalanceOptions, BalanceSource, BalanceTasks};
pub use classes::{Amount, ClassOptions, Classes, FastOptions, Tiered, fast_bytes};
pub use pattern::Pattern;
pub use pods::{PodFolder, PodQos, PodUid};
pub use quantities::{CpuLimit, IdleTime, Percent, Rate, Size, Threshold, Window};
pub use selectors::{AnyOf, Depth, Fitting, Looks, Rules, Unit, User};
pub use sources::{TierSource, TierSources};
pub use tier::{IdleOnly, Pressure, TierGate, TierOptions};
pub use weights::{NodeWeights, in_words, pairs, weights};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_the_command_line_says() {
        let options: TierOptions = toml::from_str(
            "source = 'damon'\nsample_rate = 500\ngate = 'threshold-free'\nrate_limit = '1 GiB'\n\
             threshold = 1\nwindow = '2s'\nobserve_cpu = 10\ntiers = '0-1/2'",
        )
        .unwrap();
        let wanted = TierOptions {
            source: TierSources::one(TierSource::Damon),
            sample_rate: "500".parse().unwrap(),
            gate: TierGate::ThresholdFree,
            rate_limit: Size(1 << 30),
            threshold: "1".parse().unwrap(),
            window: "2s".parse().unwrap(),
            observe_cpu: "10".parse().unwrap(),
            tiers: Some("0,1/2".parse().unwrap()),
            ..TierOptions::DEFAULT
        };
        assert_eq!(options, wanted);
        let again: TierOptions = toml::from_str(&toml::to_string(&wanted).unwrap()).unwrap();
        assert_eq!(again, wanted);
        let options: BalanceOptions = toml::from_str("tasks = 'set'\ncpu_limit = 2.5").unwrap();
        assert_eq!(options.tasks, Some(BalanceTasks::Set));
        assert_eq!(options.cpu_limit.permille(), 25);
    }

    #[test]
    fn nothing_is_the_default_and_a_wrong_name_is_an_error() {
        assert_eq!(toml::from_str(""), Ok(TierOptions::DEFAULT));
        assert_eq!(toml::from_str(""), Ok(BalanceOptions::DEFAULT));
        for wrong in [
            "sauce = 'damon'",
            "threshold = 8",
            "window = '5'",
            "source = 'writes'",
            "tiers = '0'",
            "tiers = '0/0'",
        ] {
            assert!(toml::from_str::<TierOptions>(wrong).is_err(), "{wrong}");
        }
    }
}
