//! Documents in which no object names a key twice.
//!
//! Of two equal keys one reader of JSON takes the last, another the first. What
//! the writer meant nobody knows, so memtide refuses both: it reads a document
//! as [`KeysOnce`] before it reads it as what it is.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// How the error about a key that is there twice begins; the key follows in quotes.
pub const TWICE: &str = "two values for ";

/// Characters of a key that an error shows.
const LONGEST: usize = 200;

/// Any document whose objects, at any depth, name each key once. Nothing of its
/// content is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysOnce;

impl<'de> Deserialize<'de> for KeysOnce {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<KeysOnce, D::Error> {
        from.deserialize_any(KeysOnce)
    }
}

impl<'de> Visitor<'de> for KeysOnce {
    type Value = KeysOnce;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_unit<E: de::Error>(self) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<KeysOnce, A::Error> {
        while from.next_element::<KeysOnce>()?.is_some() {}
        Ok(KeysOnce)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<KeysOnce, A::Error> {
        let mut named = BTreeSet::new();
        while let Some(key) = from.next_key::<String>()? {
            if named.contains(&key) {
                let shown: String = key.chars().take(LONGEST).collect();
                return Err(de::Error::custom(format!("{TWICE}{shown:?}")));
            }
            named.insert(key);
            from.next_value::<KeysOnce>()?;
        }
        Ok(KeysOnce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
    use std::iter::Copied;
    use std::slice::Iter;

    type Fields<'a> = Copied<Iter<'a, (&'a str, u64)>>;

    fn object<'a>(fields: &'a [(&'a str, u64)]) -> MapDeserializer<'a, Fields<'a>, Error> {
        MapDeserializer::new(fields.iter().copied())
    }

    fn error<'a>(document: impl Deserializer<'a, Error = Error>) -> String {
        KeysOnce::deserialize(document).unwrap_err().to_string()
    }

    #[test]
    fn a_key_is_named_once_in_each_object() {
        let twice = [("a", 1), ("b", 1), ("a", 1)];
        assert_eq!(error(object(&twice)), r#"two values for "a""#);
        let deep = [object(&[("b", 1)]), object(&[("b", 1), ("b", 2)])];
        let deep = SeqDeserializer::new(deep.into_iter());
        assert_eq!(error(deep), r#"two values for "b""#);
        let good = [object(&[("b", 1), ("c", 1)]), object(&[("b", 1)])];
        let good = SeqDeserializer::<_, Error>::new(good.into_iter());
        assert_eq!(KeysOnce::deserialize(good), Ok(KeysOnce));
    }

    #[test]
    fn a_key_in_an_error_is_one_short_line() {
        let key = format!("\x1b\n{}", "x".repeat(100_000));
        let said = error(object(&[(&key, 1), (&key, 2)]));
        assert!(said.starts_with(r#"two values for "\u{1b}\nxxx"#), "{said}");
        assert!(said.len() < 300, "{} bytes", said.len());
    }
}
