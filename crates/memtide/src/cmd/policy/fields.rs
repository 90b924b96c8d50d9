//! The fields of one JSON object, each taken once and none left over.
//!
//! The lines of a replay are written by programs and by hand; a word that is
//! misspelt must not pass as one left out. So every reader takes the fields
//! that it knows, and what then is left is an error. Errors name the field.

use crate::shared::outside::{outside, quoted};
use memtide_core::keys::{KeysOnce, TWICE};
use memtide_core::numbers::hexadecimal;
use serde_json::{Map, Value};
use std::fmt;

/// What is wrong with a line, without its place.
#[derive(Debug, PartialEq, Eq)]
pub struct LineError(pub String);

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LineError {}

/// The result of reading a line or a part of it.
pub type Result<T> = std::result::Result<T, LineError>;

/// An error with this text.
pub fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(LineError(text.into()))
}

/// The fields that nobody took yet.
#[derive(Debug)]
pub struct Fields {
    /// What the object is, for errors.
    what: String,
    left: Map<String, Value>,
}

impl Fields {
    /// Of one line.
    pub fn parse(line: &str) -> Result<Fields> {
        let once = serde_json::from_str::<KeysOnce>(line);
        match once.and_then(|KeysOnce| serde_json::from_str(line)) {
            Ok(Value::Object(left)) => Ok(Fields::new("line", left)),
            Ok(_) => wrong("not a JSON object"),
            Err(error) => {
                let error = error.to_string();
                match without_place(&error) {
                    twice if twice.starts_with(TWICE) => wrong(twice),
                    other => wrong(format!("not JSON: {other}")),
                }
            }
        }
    }

    /// Of an object that is called `what`.
    pub fn new(what: &str, left: Map<String, Value>) -> Fields {
        let what = what.to_owned();
        Fields { what, left }
    }

    /// From now on the object is called so.
    pub fn is(&mut self, what: &str) {
        what.clone_into(&mut self.what);
    }

    /// Whether a field is there.
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// An error about a field.
    pub fn wrong<T>(&self, name: &str, text: &str) -> Result<T> {
        wrong(format!("{}: {name:?}: {text}", self.what))
    }

    /// Takes a field that may be left out; null is a value.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name)
    }

    /// Takes a field that must be there, and makes something of it. `as_what`
    /// says what it must be.
    pub fn must<T>(
        &mut self,
        name: &str,
        as_what: &str,
        make: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T> {
        match self.may(name, as_what, make)? {
            Some(made) => Ok(made),
            None => self.wrong(name, &format!("missing; give {as_what}")),
        }
    }

    /// The same for a field that may be left out.
    pub fn may<T>(
        &mut self,
        name: &str,
        as_what: &str,
        make: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match make(&value) {
            Some(made) => Ok(Some(made)),
            None => {
                let value = value.to_string();
                self.wrong(name, &format!("{} is not {as_what}", outside(&value)))
            }
        }
    }

    /// A number from 0 to 2^64-1.
    pub fn number(&mut self, name: &str) -> Result<u64> {
        self.must(name, "a number from 0 to 2^64-1", Value::as_u64)
    }

    /// A number that is 0 if it is left out.
    pub fn number_or_0(&mut self, name: &str) -> Result<u64> {
        let number = self.may(name, "a number from 0 to 2^64-1", Value::as_u64)?;
        Ok(number.unwrap_or(0))
    }

    /// A number below 2^32.
    pub fn small(&mut self, name: &str) -> Result<u32> {
        self.must(name, "a number below 2^32", |value| {
            value.as_u64()?.try_into().ok()
        })
    }

    /// `true` or `false`.
    pub fn truth(&mut self, name: &str) -> Result<bool> {
        self.must(name, "true or false", Value::as_bool)
    }

    /// A text.
    pub fn text(&mut self, name: &str) -> Result<String> {
        let make = |value: &Value| value.as_str().map(str::to_owned);
        self.must(name, "a text", make)
    }

    /// Complains about a field that nobody took.
    pub fn end(self) -> Result<()> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => wrong(format!("{}: {}: unknown", self.what, quoted(name))),
        }
    }
}

/// A word such as `"0x3f"`.
pub fn word(value: &Value) -> Option<u64> {
    hexadecimal(value.as_str()?.strip_prefix("0x")?)
}

/// The parser's words without its line, which is always 1.
fn without_place(error: &str) -> &str {
    error.split(" at line ").next().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_taken_once_and_none_is_left() {
        let mut fields = Fields::parse(r#"{"a":1,"b":"x","c":null}"#).unwrap();
        assert_eq!(fields.number("a"), Ok(1));
        let error = |result: Result<u64>| result.unwrap_err().to_string();
        assert_eq!(
            error(fields.number("a")),
            r#"line: "a": missing; give a number from 0 to 2^64-1"#
        );
        assert_eq!(
            error(fields.number("b")),
            r#"line: "b": "x" is not a number from 0 to 2^64-1"#
        );
        fields.is("touch");
        assert_eq!(
            fields.end(),
            wrong(r#"touch: "c": unknown"#),
            "what is left"
        );
    }

    #[test]
    fn what_is_no_object_is_said_shortly() {
        let error = |line| Fields::parse(line).unwrap_err().to_string();
        assert_eq!(error("[]"), "not a JSON object");
        assert_eq!(error("{"), "not JSON: EOF while parsing an object");
    }

    #[test]
    fn a_key_stands_once_at_any_depth() {
        let error = |line| Fields::parse(line).unwrap_err().to_string();
        assert_eq!(error(r#"{"a":1,"a":1}"#), r#"two values for "a""#);
        let deep = r#"{"a":[{"b":{"c":1,"\u0063":2}}]}"#;
        assert_eq!(error(deep), r#"two values for "c""#);
        let all = r#"{"a":[1,-1,1.5,null,true,"x",{}],"b":{"a":18446744073709551615}}"#;
        let fields = Fields::parse(all).unwrap();
        assert_eq!(
            Value::Object(fields.left),
            serde_json::from_str::<Value>(all).unwrap()
        );
    }

    #[test]
    fn words_are_hexadecimal() {
        assert_eq!(word(&Value::from("0xff")), Some(255));
        let wrong = [
            "ff",
            "0x",
            "0x10000000000000000",
            "-0x1",
            "0x+1",
            "0x-1",
            "0x 1",
        ];
        for text in wrong {
            assert_eq!(word(&Value::from(text)), None, "{text}");
        }
        assert_eq!(word(&Value::from(3)), None);
    }
}
