//! Texts in, a configuration out.
//!
//! The reader of TOML gives each value its place. Each key is held against the struct that has it by
//! itself, so an error has the place of that key, whichever file it is in; what two keys say together
//! is checked at the end.

use super::{Configuration, Place, Settings};
use crate::shared::metrics_args::MetricsArgs;
use crate::shared::outside;
use anyhow::{anyhow, bail};
use memtide_loop::options::TierOptions;
use memtide_sim::text::friendly;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::{Spanned, Table, Value};

/// A file.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name, for people.
    pub file: String,
    /// What it holds.
    pub text: String,
}

type Keys = BTreeMap<Spanned<String>, Spanned<Value>>;

/// Joins the files; of a key that several set, the last one counts.
///
/// # Errors
/// The first thing that is wrong, in one line with file, line and column.
pub fn read(layers: &[Layer]) -> anyhow::Result<Configuration> {
    let mut merged = Table::new();
    let mut places = BTreeMap::new();
    for layer in layers {
        for (table, keys) in layer.tables()? {
            let name = table.get_ref();
            let check = match name.as_str() {
                "select" => one_key::<super::Select>,
                "tier" => one_key::<TierOptions>,
                "metrics" => one_key::<MetricsArgs>,
                _ => {
                    let known = super::TABLES.map(|table| format!("`{table}`")).join(", ");
                    let what = friendly(&format!("unknown field `{name}`, expected {known}"));
                    return Err(layer.wrong(table.span(), &what));
                }
            };
            for (key, value) in keys {
                check(key.get_ref(), value.get_ref()).map_err(|what| {
                    let (at, what) = match what.starts_with("unknown field") {
                        true => (key.span(), friendly(&what)),
                        false => (
                            value.span(),
                            format!("{}: {}", outside::outside(key.get_ref()), friendly(&what)),
                        ),
                    };
                    layer.wrong(at, &what)
                })?;
                let place = layer.place(value.span());
                places.insert((name.clone(), key.get_ref().clone()), place);
                let into = merged
                    .entry(name)
                    .or_insert_with(|| Value::Table(Table::new()));
                let into = into.as_table_mut().expect("a table each");
                into.insert(key.into_inner(), value.into_inner());
            }
        }
    }
    let settings: Settings = merged
        .try_into()
        .map_err(|error: toml::de::Error| anyhow!("{}", outside::message(error.message())))?;
    agree(settings, places)
}

/// What two keys say together.
fn agree(
    mut settings: Settings,
    mut places: BTreeMap<(String, String), Place>,
) -> anyhow::Result<Configuration> {
    let place = |key: &str| places.get(&("select".to_owned(), key.to_owned())).cloned();
    let select = &mut settings.select;
    match (place("cgroup"), place("all")) {
        (Some(cgroup), Some(all)) if select.all => bail!(
            "{cgroup}: cgroup: {all} selects every process; set all = false there, or leave one of both out"
        ),
        // Who names a cgroup does not mean all.
        (Some(cgroup), None) => {
            select.all = false;
            places.insert(("select".to_owned(), "all".to_owned()), cgroup);
        }
        (None, Some(all)) if !select.all => {
            bail!("{all}: all: nothing is selected; set cgroup, or leave this out")
        }
        _ => {}
    }
    Ok(Configuration { settings, places })
}

/// What `T` says of `key = value`.
fn one_key<T: DeserializeOwned>(key: &str, value: &Value) -> Result<(), String> {
    let one = Table::from_iter([(key.to_owned(), value.clone())]);
    match one.try_into::<T>() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.message().to_owned()),
    }
}

impl Layer {
    fn tables(&self) -> anyhow::Result<BTreeMap<Spanned<String>, Keys>> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let what = match error.message() {
                message if message.starts_with("invalid type") => {
                    "not below a table; write [select], [tier] or [metrics] above it"
                }
                message => message,
            };
            self.wrong(span, what)
        })
    }

    fn place(&self, at: Range<usize>) -> Place {
        let before = self.text.get(..at.start).unwrap_or("");
        let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
        Place {
            file: self.file.clone(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }

    fn wrong(&self, at: Range<usize>, what: &str) -> anyhow::Error {
        anyhow!("{}: {}", self.place(at), outside::message(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layers(texts: &[&str]) -> Vec<Layer> {
        let layer = |(number, text): (usize, &&str)| Layer {
            file: format!("{number}.toml"),
            text: (*text).to_owned(),
        };
        texts.iter().enumerate().map(layer).collect()
    }

    fn error(texts: &[&str]) -> String {
        read(&layers(texts)).unwrap_err().to_string()
    }

    #[test]
    fn later_files_win_key_by_key() {
        let texts = [
            "[tier]\nrate_limit = '1GiB'\nwindow = '2s'\n",
            "[tier]\nwindow = '3s'\n[select]\ncgroup = '/a'\n",
            "",
        ];
        let Configuration { settings, .. } = read(&layers(&texts)).unwrap();
        assert_eq!(settings.tier.rate_limit.to_string(), "1GiB");
        assert_eq!(settings.tier.window.to_string(), "3s");
        assert_eq!(settings.tier.headroom, TierOptions::DEFAULT.headroom);
        assert!(!settings.select.all);
        let place = |table, key| {
            let configuration = read(&layers(&texts)).unwrap();
            configuration.place(table, key).map(Place::to_string)
        };
        assert_eq!(place("tier", "rate_limit").unwrap(), "0.toml:2:14");
        assert_eq!(place("tier", "window").unwrap(), "1.toml:2:10");
        assert_eq!(place("tier", "gate"), None);
    }

    #[test]
    fn what_is_wrong_comes_with_its_place_and_the_nearest_word() {
        for (text, wanted) in [
            (
                "[teir]\nwindow = '5s'",
                "0.toml:1:2: unknown key or word `teir`; did you mean `tier`?",
            ),
            (
                "[tier]\n  rate-limit = '1GiB'",
                "0.toml:2:3: unknown key or word `rate-limit`; did you mean `rate_limit`?",
            ),
            (
                "[tier]\nsource = 'demon'",
                "0.toml:2:10: source: unknown key or word `demon`; did you mean `damon`?",
            ),
            (
                "[tier]\nwindow = 5",
                "0.toml:2:10: window: not a time with its unit; write it as 500ms or 10s",
            ),
            (
                "[tier]\nheadroom = 'lots'",
                "0.toml:2:12: headroom: not a size; write it as 64MiB or 1G",
            ),
            (
                "[tier]\nthreshold = 8",
                "0.toml:2:13: threshold: not a number from 1 to 7",
            ),
            (
                "[metrics]\nlisten = '0.0.0.0:9779'",
                "0.toml:2:10: listen: other machines could reach it",
            ),
            ("[select]\nall = 'yes'", "0.toml:2:7: all: invalid type"),
            ("window = '5s'", "0.toml:1:10: not below a table"),
            (
                "[tier]\nwindow = '5s'\nwindow = '6s'",
                "0.toml:3:1: duplicate key",
            ),
            ("[tier\n", "0.toml:1:6: "),
            (
                "[select]\nall = true\ncgroup = '/a'",
                "0.toml:3:10: cgroup: 0.toml:2:7 selects every process",
            ),
            (
                "[select]\nall = false",
                "0.toml:2:7: all: nothing is selected",
            ),
        ] {
            let said = error(&[text]);
            assert!(said.starts_with(wanted), "{text:?}: {said}");
        }
        let said = error(&["[select]\nall = true", "[select]\ncgroup = '/a'"]);
        assert!(
            said.starts_with("1.toml:2:10: cgroup: 0.toml:2:7 "),
            "{said}"
        );
    }

    #[test]
    fn characters_are_counted_and_not_bytes() {
        let said = error(&["[tier]\n'\u{e9}\u{e9}' = 1"]);
        assert!(said.starts_with("0.toml:2:1: unknown key"), "{said}");
        let said = error(&["select = { cgroup = '\u{e9}\u{e9}', al = 1 }"]);
        assert!(said.starts_with("0.toml:1:27: unknown key"), "{said}");
    }

    proptest! {
        /// A configuration, or one line that begins with its place.
        #[test]
        fn any_text_has_an_answer(text in "(\\[(tier|select|metrics|x)\\]\n|[a-z_]{1,8} ?= ?|'[^\n]{0,6}'|[0-9a-zG]{1,4}|\n|[\\PC\n]{0,3}){0,12}") {
            if let Err(error) = read(&layers(&[&text])) {
                let said = error.to_string();
                prop_assert!(said.starts_with("0.toml:"), "{said}");
                prop_assert_eq!(outside::message(&said).lines().count(), 1);
            }
        }
    }
}
