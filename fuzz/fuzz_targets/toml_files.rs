//! Scenarios, the configurations in them, and machines out of any text: a value, or an error that
//! names the file. The first corpus are the files of `scenarios`.
#![no_main]

use memtide_sim::scenario::Scenario;
use memtide_sim::spec::MachineSpec;
use memtide_sim::text::Source;

libfuzzer_sys::fuzz_target!(|text: &str| {
    // What a scenario names beside itself is this text once more.
    let mut named: Vec<String> = Vec::new();
    let mut other = |name: &str| {
        named.push(name.to_owned());
        Ok(text.to_owned())
    };
    let file = "fuzz.toml";
    let scenario = Scenario::read(text, file, &mut other).err();
    let machine = MachineSpec::read(Source { file, text }, &mut other).err();
    for error in scenario.into_iter().chain(machine) {
        let error = error.to_string();
        // A name that is long, or not plain, is shown cut and written out.
        let shown = |b: u8| b.is_ascii_graphic() && !b"\\\"'".contains(&b);
        let plain = |name: &str| name.len() < 100 && name.bytes().all(shown);
        let names = |name: &String| error.contains(name.as_str()) || !plain(name);
        assert!(error.contains(file) || named.iter().any(names), "{error}");
    }
});
