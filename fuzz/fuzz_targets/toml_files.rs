//! Scenarios, the configurations in them, and machines out of any text: a value, or an error that
//! names the file. The first corpus are the files of `scenarios`.
#![no_main]

use memtide_sim::scenario::Scenario;
use memtide_sim::spec::MachineSpec;
use memtide_sim::text::Source;

libfuzzer_sys::fuzz_target!(|text: &str| {
    // What a scenario names beside itself is this text once more.
    let mut other = |_: &str| Ok(text.to_owned());
    let file = "fuzz.toml";
    let scenario = Scenario::read(text, file, &mut other).err();
    let machine = MachineSpec::read(Source { file, text }, &mut other).err();
    for error in scenario.into_iter().chain(machine) {
        assert!(error.to_string().contains(".toml"), "{error}");
    }
});
