//! Texts in, a configuration out.
//!
//! The reader of TOML gives each value its place. Each key is held against the struct that has it by
//! itself, so an error has the place of that key, whichever file it is in; what two keys say together
//! is checked at the end.

use super::{CLASS, Configuration, Place, Settings, classes};
use crate::shared::control_args::ControlArgs;
use crate::shared::metrics_args::MetricsArgs;
use crate::shared::outside;
use crate::shared::pagers_options::PagersOptions;
use crate::shared::weights_options::WeightsOptions;
use anyhow::{anyhow, bail};
use memtide_loop::options::{BalanceOptions, ClassOptions, FastOptions, TierOptions};
use memtide_sim::text::friendly;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// A file.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name, for people.
    pub file: String,
    /// What it holds.
    pub text: String,
}

type Places = BTreeMap<(String, String), Place>;
type Keys = BTreeMap<Spanned<String>, Spanned<Value>>;

/// Joins the files; of a key that several set, the last one counts.
///
/// # Errors
/// The first thing that is wrong, in one line with file, line and column.
pub fn read(layers: &[Layer]) -> anyhow::Result<Configuration> {
    let mut merged = Table::new();
    let mut places = Places::new();
    for layer in layers {
        for (table, keys) in layer.tables()? {
            let name = table.get_ref();
            if name == CLASS {
                layer.classes(&mut merged, &mut places)?;
                continue;
            }
            let check = match name.as_str() {
                "select" => one_key::<super::Select>,
                "tier" => one_key::<TierOptions>,
                "balance" => one_key::<BalanceOptions>,
                "weights" => one_key::<WeightsOptions>,
                "pagers" => one_key::<PagersOptions>,
                "metrics" => one_key::<MetricsArgs>,
                "control" => one_key::<ControlArgs>,
                _ => {
                    let known = super::TABLES.iter().chain([&CLASS]);
                    let known: Vec<_> = known.map(|table| format!("`{table}`")).collect();
                    let known = known.join(", ");
                    let what = friendly(&format!("unknown field `{name}`, expected {known}"));
                    return Err(layer.wrong(table.span(), &what));
                }
            };
            for (key, value) in keys {
                let named = (&**key.get_ref(), key.span());
                layer.check(check, named, (value.get_ref(), value.span()))?;
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
    let place = |table: &str, key: &str| places.get(&(table.to_owned(), key.to_owned())).cloned();
    classes::agree(&settings, &place)?;
    agree(settings, places)
}

/// What two keys say together.
fn agree(mut settings: Settings, mut places: Places) -> anyhow::Result<Configuration> {
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

/// The tables in a table of tables; of anything else nothing.
fn below_table(value: DeValue<'_>) -> DeTable<'_> {
    match value {
        DeValue::Table(table) => table,
        _ => DeTable::new(),
    }
}

/// A value that holds no others, or a list of such ones.
fn plain(value: DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Boolean(is) => Value::Boolean(is),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix());
            Value::Integer(number.map_err(|error| error.to_string())?)
        }
        DeValue::Array(all) => {
            let one = |one: Spanned<DeValue<'_>>| match one.into_inner() {
                DeValue::Array(_) => Err("a list in a list".to_owned()),
                one => plain(one),
            };
            Value::Array(all.into_iter().map(one).collect::<Result<_, _>>()?)
        }
        _ => return Err("neither a text, a number nor a list of texts".to_owned()),
    })
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
    /// Holds one key against the struct that has it.
    fn check(
        &self,
        check: fn(&str, &Value) -> Result<(), String>,
        (key, key_at): (&str, Range<usize>),
        (value, value_at): (&Value, Range<usize>),
    ) -> anyhow::Result<()> {
        check(key, value).map_err(|what| match what.starts_with("unknown field") {
            true => self.wrong(key_at, &friendly(&what)),
            false => {
                let what = format!("{}: {}", outside::outside(key), friendly(&what));
                self.wrong(value_at, &what)
            }
        })
    }

    /// Joins the tables below `class`, key by key.
    fn classes(&self, merged: &mut Table, places: &mut Places) -> anyhow::Result<()> {
        // What is below a table has its place only here.
        let document = DeTable::parse(&self.text).map_err(|error| self.unreadable(&error))?;
        let document = document.into_inner();
        let tables = document
            .into_iter()
            .filter(|(key, _)| **key.get_ref() == *CLASS);
        for (class, below) in tables.flat_map(|(_, below)| below_table(below.into_inner())) {
            let name = class.get_ref().to_string();
            classes::check_name(&name).map_err(|what| {
                let what = format!("{}: {what}", outside::outside(&name));
                self.wrong(class.span(), &what)
            })?;
            let (table, at) = (classes::table(&name), below.span());
            let head = self.place(class.span());
            places.entry((table.clone(), String::new())).or_insert(head);
            let DeValue::Table(keys) = below.into_inner() else {
                return Err(self.wrong(at, &format!("{name}: not a table; write [{table}]")));
            };
            let all = merged
                .entry(CLASS)
                .or_insert_with(|| Value::Table(Table::new()));
            let into = all.as_table_mut().expect("a table of tables");
            let into = into
                .entry(&name)
                .or_insert_with(|| Value::Table(Table::new()));
            let into = into.as_table_mut().expect("a table each");
            for (key, value) in keys {
                let (fast, name) = (**key.get_ref() == *"fast", key.get_ref().to_string());
                let at = value.span();
                if !fast {
                    let value =
                        plain(value.into_inner()).map_err(|what| self.wrong(at.clone(), &what))?;
                    self.check(
                        one_key::<ClassOptions>,
                        (&name, key.span()),
                        (&value, at.clone()),
                    )?;
                    places.insert((table.clone(), name.clone()), self.place(at));
                    into.insert(name, value);
                    continue;
                }
                let DeValue::Table(amounts) = value.into_inner() else {
                    let what = "fast: not an amount; write fast.low or fast.high";
                    return Err(self.wrong(at, what));
                };
                let into = into
                    .entry("fast")
                    .or_insert_with(|| Value::Table(Table::new()));
                let into = into.as_table_mut().expect("a table");
                for (key, value) in amounts {
                    let (name, at) = (key.get_ref().to_string(), value.span());
                    let value =
                        plain(value.into_inner()).map_err(|what| self.wrong(at.clone(), &what))?;
                    self.check(
                        one_key::<FastOptions>,
                        (&name, key.span()),
                        (&value, at.clone()),
                    )?;
                    places.insert((table.clone(), format!("fast.{name}")), self.place(at));
                    into.insert(name, value);
                }
            }
        }
        Ok(())
    }

    fn unreadable(&self, error: &toml::de::Error) -> anyhow::Error {
        self.wrong(error.span().unwrap_or(0..0), error.message())
    }

    fn tables(&self) -> anyhow::Result<BTreeMap<Spanned<String>, Keys>> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let what = match error.message() {
                message if message.starts_with("invalid type") => {
                    "not below a table; write [select], [tier], [balance], [weights], [pagers], [metrics], [control] or [class.NAME] above it"
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
                "[balance]\nsource = 'wirtes'",
                "0.toml:2:10: source: unknown key or word `wirtes`; did you mean `writes`?",
            ),
            (
                "[balance]\n  cpu-limit = 2",
                "0.toml:2:3: unknown key or word `cpu-limit`; did you mean `cpu_limit`?",
            ),
            (
                "[balance]\ncpu_limit = 0",
                "0.toml:2:13: cpu_limit: not a percentage from",
            ),
            ("[balance]\ntasks = true", "0.toml:2:9: tasks: "),
            (
                "[balance]\nenabled = true",
                "0.toml:2:1: unknown key or word `enabled`",
            ),
            (
                "[select]\nbalance = 'yes'",
                "0.toml:2:11: balance: invalid type",
            ),
            (
                "[class.db]\ncgroup = '/a'\nbalance = 'yes'",
                "0.toml:3:11: balance: invalid type",
            ),
            (
                "[class.db]\ncgroup = '/a'\nleave_alone = true\nbalance = true",
                "0.toml:4:11: balance: nothing moves of a class with leave_alone",
            ),
            (
                "[class.db]\ncgroup = '/a'\ntier = false\nfast.high = '1GiB'",
                "0.toml:4:13: fast.high: the class is not tiered; set tier = true in it",
            ),
            (
                "[select]\ntier = false\n[class.db]\ncgroup = '/a'\ndemote = true",
                "0.toml:5:10: demote: the class is not tiered; set tier = true in it",
            ),
            (
                "[class.db]\ncgroup = '/a'\nweights = '0=3,1=1'",
                "0.toml:3:11: weights: the class is tiered, and tiering would move its pages elsewhere; set tier = false",
            ),
            (
                "[select]\ntier = false\nbalance = true\n[class.db]\ncgroup = '/a'\nweights = '0=3,1=1'",
                "0.toml:6:11: weights: the class is balanced, ",
            ),
            (
                "[class.db]\ncgroup = '/a'\nweights = '0:3'",
                "0.toml:3:11: weights: \"0:3\" is not NODE=WEIGHT",
            ),
            (
                "[class.db]\ncgroup = '/a'\ndemote_idle = true",
                "0.toml:3:15: demote_idle: nothing says after how long; set demote_idle in [tier]",
            ),
            (
                "[weights]\ntable = 'auto'",
                "0.toml:2:9: table: neither \"compute\" nor weights by node; write these as",
            ),
            (
                "[weights]\ntable = '0=9,2=256'",
                "0.toml:2:9: table: \"256\" in \"2=256\" is no weight from 1 to 255",
            ),
            (
                "[weights]\ntabel = 'compute'",
                "0.toml:2:1: unknown key or word `tabel`; did you mean `table`?",
            ),
            (
                "[metrics]\nlisten = '0.0.0.0:9779'",
                "0.toml:2:10: listen: other machines could reach it",
            ),
            (
                "[metrics]\nfile = ''",
                "0.toml:2:8: file: not the path of a file that begins with /",
            ),
            (
                "[metrics]\nfile = 'memtide.prom'",
                "0.toml:2:8: file: not the path of a file that begins with /",
            ),
            (
                "[control]\ngroup = 'a b'",
                "0.toml:2:9: group: not the name or the number of a group",
            ),
            (
                "[control]\nenabled = 'no'",
                "0.toml:2:11: enabled: invalid type",
            ),
            ("[select]\nall = 'yes'", "0.toml:2:7: all: invalid type"),
            (
                "[select]\ncgroup = ''",
                "0.toml:2:10: cgroup: not a path that begins with /",
            ),
            (
                "[select]\ncgroup = '/a/../b'",
                "0.toml:2:10: cgroup: not a path that begins with / and has no \"..\"",
            ),
            (
                "[select]\ncgroup = 'db.slice'",
                "0.toml:2:10: cgroup: not a path that begins with /",
            ),
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
            (
                "[class.db]\nfast.low = '1GiB'",
                "0.toml:1:8: class db: names no processes; set cgroup, unit, user, executable or a pod_ key",
            ),
            (
                "[class.db]\ncgroup = '/a'\nfast.hihg = '1GiB'",
                "0.toml:3:6: unknown key or word `hihg`; did you mean `high`?",
            ),
            (
                "[class.db]\ncgorup = '/a'",
                "0.toml:2:1: unknown key or word `cgorup`; did you mean `cgroup`?",
            ),
            (
                "[class.db]\ncgroup = '/a'\nfast.high = 50",
                "0.toml:3:13: high: not an amount with its unit; write it as 8GiB",
            ),
            (
                "[class.db]\ncgroup = '/a'\n[class.db.fast]\nhigh = '101%'",
                "0.toml:4:8: high: not a percentage from 1% to 100%",
            ),
            (
                "[class.db]\ncgroup = '/a'\nfast = '1GiB'",
                "0.toml:3:8: fast: not an amount; write fast.low or fast.high",
            ),
            (
                "[class.db]\ncgroup = '/a'\nfast = { low = '2GiB', high = '1GiB' }",
                "0.toml:3:16: fast.low: 2GiB is more than fast.high, 1GiB (0.toml:3:31)",
            ),
            (
                "[class.db]\ncgroup = '/a'\n[class.db]\ncgroup = '/b'",
                "0.toml:3:",
            ),
            (
                "[class.a]\ncgroup = '/a'\n[class.b]\ncgroup = '/sys/fs/cgroup/a/'",
                "0.toml:3:8: class b: a process may fit this class and a (0.toml:1:8) equally well",
            ),
            (
                "[class.a]\ncgroup = '/a'\nfast.low = '60%'\n[class.b]\ncgroup = '/b'\nfast.low = '41%'",
                "0.toml:6:12: fast.low: all classes up to b together protect more than 100%",
            ),
            (
                "[class.a]\ncgroup = '/a**'",
                "0.toml:2:10: cgroup: ** stands for whole names",
            ),
            (
                "[class.a]\nunit = 'redis'",
                "0.toml:2:8: unit: not the name of a unit; write it as redis.service",
            ),
            (
                "[class.a]\nuser = 'a b'",
                "0.toml:2:8: user: not the name or the number of a user",
            ),
            (
                "[class.a]\nuser = 7",
                "0.toml:2:8: user: invalid type: integer `7`, expected a text or a list of texts",
            ),
            (
                "[class.a]\nexecutable = ['/a', 'b']",
                "0.toml:2:14: executable: not a path that begins with /",
            ),
            (
                "[class.a]\nexecutable = [['/a']]",
                "0.toml:2:14: a list in a list",
            ),
            (
                "[class.a]\nunit = []",
                "0.toml:2:8: unit: a list has 1 to 64 texts",
            ),
            (
                "[class.a]\ncgroup = '/a'\nleave-alone = true",
                "0.toml:3:1: unknown key or word `leave-alone`; did you mean `leave_alone`?",
            ),
            (
                "[class.a]\ncgroup = '/a'\npriority = 'high'",
                "0.toml:3:12: priority: invalid type",
            ),
            (
                "[class.a]\ncgroup = '/a'\nleave_alone = true\nfast.low = '1GiB'",
                "0.toml:4:12: fast.low: nothing moves of a class with leave_alone",
            ),
            (
                "[class.a]\nuser = 'a'\nfast.high = '1GiB'",
                "0.toml:3:13: fast.high: what a class uses is known of whole cgroups only",
            ),
            (
                "[class.a]\nuser = 'a'\n[class.b]\nexecutable = '/b'",
                "0.toml:3:8: class b: a process may fit this class and a (0.toml:1:8)",
            ),
            (
                "[class.a]\ncgroup = 'a'",
                "0.toml:2:10: cgroup: not a path that begins with /",
            ),
            (
                "[class.'a b']\ncgroup = '/a'",
                "0.toml:1:8: a b: no name of a class",
            ),
            (
                "[class]\ndb = 1",
                "0.toml:2:6: db: not a table; write [class.db]",
            ),
            (
                "[class.a]\ncgroup = [1]",
                "0.toml:2:10: cgroup: invalid type: integer `1`, expected a string",
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
    fn classes_of_several_files_are_joined_key_by_key() {
        let texts = [
            "[class.db]\ncgroup = '/db'\nfast.low = '1GiB'\n[class.web]\ncgroup = '/web'",
            "[class.db]\nfast.low = '2GiB'\nfast.high = '50%'\n[class.batch]\ncgroup = '/batch'",
        ];
        let both = read(&layers(&texts)).unwrap();
        let names: Vec<_> = both.settings.class.keys().collect();
        assert_eq!(names, ["batch", "db", "web"]);
        let db = &both.settings.class["db"];
        assert_eq!(
            db.cgroup.as_ref().map(|all| all.all()[0].to_string()),
            Some("/db".to_owned())
        );
        assert_eq!(db.fast.low.map(|low| low.to_string()).unwrap(), "2GiB");
        let place = |key| both.place("class.db", key).unwrap().to_string();
        assert_eq!(place("fast.low"), "1.toml:2:12");
        assert_eq!(place("cgroup"), "0.toml:2:10");
        // What is comparable only on a machine: half of 4 GiB is enough, of 3 GiB is not.
        assert!(both.fits(4 << 30).is_ok());
        let said = both.fits(3 << 30).unwrap_err().to_string();
        assert!(
            said.starts_with("1.toml:2:12: fast.low: 2GiB is more than fast.high, 50%"),
            "{said}"
        );
        let said = both.fits(1 << 30).unwrap_err().to_string();
        assert!(said.starts_with("1.toml:2:12: fast.low: "), "{said}");
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
        fn any_text_has_an_answer(text in "(\\[(tier|balance|weights|select|metrics|control|class.db|class|x)\\]\n|(cgroup|fast.low|fast) ?= ?|[a-z_]{1,8} ?= ?|'[^\n]{0,6}'|[0-9a-zG]{1,4}|\n|[\\PC\n]{0,3}){0,12}") {
            if let Err(error) = read(&layers(&[&text])) {
                let said = error.to_string();
                prop_assert!(said.starts_with("0.toml:"), "{said}");
                prop_assert_eq!(outside::message(&said).lines().count(), 1);
            }
        }
    }
}
