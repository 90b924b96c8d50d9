//! Which sources of accesses tiering listens to.
//!
//! One text for the command line and for files: `auto`, or names with commas
//! between them, as in `damon,ibs`. A file may give a list of names instead.
//! What one source saw counts together with what the others saw: all of them
//! feed one store, as in *mm: Hot page tracking and promotion infrastructure*.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What tells of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TierSource {
    /// DAMON.
    Damon,
    /// NUMA hint faults.
    HintFaults,
    /// memtide's own scans of the page tables.
    PageTable,
    /// AMD's samples.
    Ibs,
    /// Intel's samples.
    Pebs,
}

/// The text of no choice.
const AUTO: &str = "auto";
/// What `memtide balance` calls hint faults.
const FAULTS: &str = "faults";
/// All words, as they are listed where one is wrong.
const WORDS: &[&str] = &[
    AUTO,
    TierSource::Damon.name(),
    TierSource::HintFaults.name(),
    TierSource::PageTable.name(),
    TierSource::Ibs.name(),
    TierSource::Pebs.name(),
    FAULTS,
];

impl TierSource {
    /// All.
    pub const ALL: [TierSource; 5] = [
        TierSource::Damon,
        TierSource::HintFaults,
        TierSource::PageTable,
        TierSource::Ibs,
        TierSource::Pebs,
    ];

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            TierSource::Damon => "damon",
            TierSource::HintFaults => "hint-faults",
            TierSource::PageTable => "page-table",
            TierSource::Ibs => "ibs",
            TierSource::Pebs => "pebs",
        }
    }

    /// What it is, for `--help`.
    pub const fn about(self) -> &'static str {
        match self {
            TierSource::Damon => "DAMON: accessed bits, kept intact for reclaim",
            TierSource::HintFaults => {
                "NUMA hint faults; needs kernel.numa_balancing; faults is the same"
            }
            TierSource::PageTable => {
                "Accessed bits read from the page tables; fastest, hides them from reclaim"
            }
            TierSource::Ibs => "AMD's instruction-based sampling: hot pages, not idle ones",
            TierSource::Pebs => "Intel's load latency sampling: hot pages, not idle ones",
        }
    }

    /// Whether it is hardware that samples.
    pub fn samples(self) -> bool {
        matches!(self, TierSource::Ibs | TierSource::Pebs)
    }

    fn of(word: &str) -> Option<TierSource> {
        match word {
            FAULTS => Some(TierSource::HintFaults),
            word => (TierSource::ALL.into_iter()).find(|source| source.name() == word),
        }
    }
}

impl fmt::Display for TierSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Sources that are listened to at once, in the order in which they were named;
/// or what nobody chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierSources {
    /// None: the best that work.
    named: Vec<TierSource>,
}

/// Why words are no choice of sources.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    Word(String),
    Together(&'static str),
}

impl TierSources {
    /// The best that work.
    pub const AUTO: TierSources = TierSources { named: Vec::new() };

    /// Only `source`.
    pub fn one(source: TierSource) -> TierSources {
        TierSources {
            named: vec![source],
        }
    }

    /// Whether nobody chose.
    pub fn is_auto(&self) -> bool {
        self.named.is_empty()
    }

    /// Those that were named.
    pub fn named(&self) -> &[TierSource] {
        &self.named
    }

    fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<TierSources, Wrong> {
        let words: Vec<&str> = words.into_iter().map(str::trim).collect();
        if words == [AUTO] {
            return Ok(TierSources::AUTO);
        }
        let mut named = Vec::new();
        for word in words {
            if word == AUTO {
                return Err(Wrong::Together(
                    "auto stands alone; name the sources, or leave them to auto",
                ));
            }
            let source = TierSource::of(word).ok_or_else(|| Wrong::Word(word.to_owned()))?;
            if named.contains(&source) {
                return Err(Wrong::Together("a source is named twice"));
            }
            named.push(source);
        }
        let both = [TierSource::Damon, TierSource::PageTable];
        if both.iter().all(|source| named.contains(source)) {
            return Err(Wrong::Together(
                "damon and page-table would clear the accessed bits for each other; name one of them",
            ));
        }
        match named.is_empty() {
            true => Err(Wrong::Together(
                "no source is named; auto takes the best that work",
            )),
            false => Ok(TierSources { named }),
        }
    }
}

impl FromStr for TierSources {
    type Err = String;

    fn from_str(text: &str) -> Result<TierSources, String> {
        TierSources::of(text.split(',')).map_err(|wrong| match wrong {
            Wrong::Word(_) => format!("possible values: {}, with commas between", WORDS.join(", ")),
            Wrong::Together(what) => what.to_owned(),
        })
    }
}

impl fmt::Display for TierSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.named.iter().map(|source| source.name()).collect();
        match names.is_empty() {
            true => f.write_str(AUTO),
            false => f.write_str(&names.join(",")),
        }
    }
}

impl Serialize for TierSources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TierSources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TierSources, D::Error> {
        deserializer.deserialize_any(Words)
    }
}

struct Words;

fn read<'a, E: Error>(words: impl IntoIterator<Item = &'a str>) -> Result<TierSources, E> {
    TierSources::of(words).map_err(|wrong| match wrong {
        Wrong::Word(word) => E::unknown_variant(&word, WORDS),
        Wrong::Together(what) => E::custom(what),
    })
}

impl<'de> Visitor<'de> for Words {
    type Value = TierSources;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names of sources, in a string or a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TierSources, E> {
        read(text.split(','))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TierSources, A::Error> {
        let mut words: Vec<String> = Vec::new();
        while let Some(word) = list.next_element()? {
            words.push(word);
        }
        read(words.iter().map(String::as_str))
    }
}

#[cfg(feature = "clap")]
mod arguments {
    use super::{AUTO, TierSource, TierSources};
    use clap::builder::{
        PossibleValue, StringValueParser, TypedValueParser, ValueParser, ValueParserFactory,
    };

    /// Reads [`TierSources`]; help and completions list the single names.
    #[derive(Clone)]
    struct Named;

    impl TypedValueParser for Named {
        type Value = TierSources;

        fn parse_ref(
            &self,
            command: &clap::Command,
            argument: Option<&clap::Arg>,
            value: &std::ffi::OsStr,
        ) -> Result<TierSources, clap::Error> {
            let parser = StringValueParser::new();
            let parser = parser.try_map(|text: String| text.parse::<TierSources>());
            parser.parse_ref(command, argument, value)
        }

        fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
            let auto = PossibleValue::new(AUTO).help("The best that work here, except page-table");
            let one = |source: TierSource| PossibleValue::new(source.name()).help(source.about());
            Some(Box::new(
                std::iter::once(auto).chain(TierSource::ALL.into_iter().map(one)),
            ))
        }
    }

    impl ValueParserFactory for TierSources {
        type Parser = ValueParser;

        fn value_parser() -> ValueParser {
            ValueParser::new(Named)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        source: TierSources,
    }

    fn sources(text: &str) -> Result<TierSources, String> {
        text.parse()
    }

    #[test]
    fn a_list_and_a_string_say_the_same() {
        let wanted = sources("damon,pebs").unwrap();
        assert_eq!(wanted.named(), [TierSource::Damon, TierSource::Pebs]);
        for text in [
            "source = 'damon,pebs'",
            "source = 'damon, pebs'",
            "source = ['damon', 'pebs']",
        ] {
            let file: File = toml::from_str(text).unwrap();
            assert_eq!(file.source, wanted, "{text}");
        }
        let text = toml::to_string(&File { source: wanted }).unwrap();
        assert_eq!(text.trim(), r#"source = "damon,pebs""#);
    }

    #[test]
    fn auto_is_nobodys_choice_and_stands_alone() {
        assert_eq!(sources("auto"), Ok(TierSources::AUTO));
        assert_eq!(TierSources::default().to_string(), "auto");
        let file: File = toml::from_str("source = ['auto']").unwrap();
        assert!(file.source.is_auto());
        for text in ["auto,damon", "ibs,auto"] {
            assert!(sources(text).unwrap_err().starts_with("auto stands alone"));
        }
    }

    #[test]
    fn page_faults_have_two_names() {
        let one = TierSources::one(TierSource::HintFaults);
        assert_eq!(sources("faults"), Ok(one.clone()));
        assert_eq!(sources("hint-faults"), Ok(one));
        assert!(sources("faults,hint-faults").unwrap_err().contains("twice"));
    }

    #[test]
    fn what_cannot_be_says_why() {
        for (text, wanted) in [
            ("x", "possible values: auto, damon"),
            ("", "possible values"),
            ("damon,", "possible values"),
            ("Damon", "possible values"),
            ("damon,damon", "twice"),
            ("page-table,damon", "accessed bits"),
        ] {
            let error = sources(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let error = toml::from_str::<File>("source = []").unwrap_err();
        assert!(error.message().starts_with("no source is named"), "{error}");
        let error = toml::from_str::<File>("source = 'demon'").unwrap_err();
        assert!(
            error.message().starts_with("unknown variant `demon`"),
            "{error}"
        );
    }
}
