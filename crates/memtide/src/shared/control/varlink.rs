//! Varlink, as far as one service needs it: messages, calls and replies.
//!
//! A message is a JSON object, and a NUL byte ends it. A call names a method; a reply has parameters or
//! an error. Replies come in the order of calls. [`Incoming`] cuts bytes into messages, [`Call::read`]
//! makes a call of one. Neither knows a socket, so that any bytes can be tried on them. What comes is
//! bounded: a message has [`LONGEST`] bytes at most.
//!
//! Source: varlink.org, "Method Call" and "Service".

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest call, in bytes.
pub const LONGEST: usize = 64 << 10;

/// Keys and values of a call, a reply or an error.
pub type Parameters = Map<String, Value>;

/// Bytes that came, up to the end of the last message that was taken.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    /// Where nobody has looked for an end yet.
    searched: usize,
}

/// A message that does not end where it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Incoming {
    /// Bytes, as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message without its NUL byte, if it is there; of `longest` bytes at most.
    ///
    /// # Errors
    /// It is longer.
    pub fn next(&mut self, longest: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let unseen = &self.bytes[self.searched..];
        let end = unseen.iter().position(|byte| *byte == 0);
        let length = end.map_or(self.bytes.len(), |end| self.searched + end);
        if length > longest {
            return Err(TooLong);
        }
        if end.is_none() {
            self.searched = length;
            return Ok(None);
        }
        let rest = self.bytes.split_off(length + 1);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.truncate(length);
        self.searched = 0;
        Ok(Some(message))
    }
}

/// A wish.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its interface, a dot, and its name.
    pub method: String,
    /// What it is to be done with.
    pub parameters: Parameters,
    /// No reply is wanted.
    pub oneway: bool,
    /// Many replies are wanted.
    pub more: bool,
    /// Another protocol is to follow.
    pub upgrade: bool,
}

/// A call on its way. What is absent may also be null.
#[derive(Debug, Serialize, Deserialize)]
struct Wire {
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Parameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oneway: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade: Option<bool>,
}

impl Call {
    /// A call without parameters, with one reply or many.
    pub fn of(method: &str, more: bool) -> Call {
        Call {
            method: method.to_owned(),
            parameters: Parameters::new(),
            oneway: false,
            more,
            upgrade: false,
        }
    }

    /// What a message says; none if it is no call.
    pub fn read(message: &[u8]) -> Option<Call> {
        let wire: Wire = serde_json::from_slice(message).ok()?;
        Some(Call {
            method: wire.method,
            parameters: wire.parameters.unwrap_or_default(),
            oneway: wire.oneway.unwrap_or(false),
            more: wire.more.unwrap_or(false),
            upgrade: wire.upgrade.unwrap_or(false),
        })
    }

    /// The message that says it.
    pub fn message(&self) -> Vec<u8> {
        let set = |flag: bool| flag.then_some(true);
        let parameters = self.parameters.clone();
        message(&Wire {
            method: self.method.clone(),
            parameters: Some(parameters).filter(|parameters| !parameters.is_empty()),
            oneway: set(self.oneway),
            more: set(self.more),
            upgrade: set(self.upgrade),
        })
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What went wrong, if something did: an interface, a dot, and a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The result, or what there is to say of the error.
    #[serde(default)]
    pub parameters: Option<Parameters>,
    /// Whether another one follows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continues: bool,
}

fn is_false(is: &bool) -> bool {
    !is
}

impl Reply {
    /// A result.
    pub fn done(parameters: Parameters) -> Reply {
        Reply {
            parameters: Some(parameters),
            ..Reply::default()
        }
    }

    /// An error, and one thing to say of it.
    pub fn wrong(error: &str, key: &str, value: &str) -> Reply {
        Reply {
            error: Some(error.to_owned()),
            parameters: Some(Map::from_iter([(key.to_owned(), value.into())])),
            continues: false,
        }
    }

    /// The message that says it.
    pub fn message(&self) -> Vec<u8> {
        message(self)
    }
}

/// JSON writes no NUL byte as it is.
fn message(content: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(content).expect("plain data");
    bytes.push(0);
    bytes
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_cut_at_their_ends() {
        let mut incoming = Incoming::default();
        incoming.push(b"ab");
        assert_eq!(incoming.next(3), Ok(None));
        incoming.push(b"c\0\0de");
        assert_eq!(incoming.next(3), Ok(Some(b"abc".to_vec())));
        assert_eq!(incoming.next(3), Ok(Some(b"".to_vec())));
        assert_eq!(incoming.next(3), Ok(None));
        // The fourth byte is one too many, whether the end has come or not.
        incoming.push(b"fg");
        assert_eq!(incoming.next(3), Err(TooLong));
        incoming.push(b"\0");
        assert_eq!(incoming.next(3), Err(TooLong));
    }

    #[test]
    fn a_call_has_what_is_absent_by_default() {
        for text in [
            r#"{"method":"a.B"}"#,
            r#"{"method":"a.B","parameters":{}}"#,
            r#"{"method":"a.B","parameters":null,"more":null,"new":[1]}"#,
        ] {
            assert_eq!(
                Call::read(text.as_bytes()),
                Some(Call::of("a.B", false)),
                "{text}"
            );
        }
        let all =
            br#"{"method":"a.B","parameters":{"x":1},"oneway":true,"more":true,"upgrade":true}"#;
        let call = Call::read(all).unwrap();
        assert!(call.oneway && call.more && call.upgrade);
        assert_eq!(call.parameters["x"], 1);
        for text in [
            "",
            "1",
            "[]",
            "{}",
            r#"{"method":1}"#,
            r#"{"method":"a","more":1}"#,
            r#"{"method":"a","method":"b"}"#,
            r#"{"method":"a","parameters":[]}"#,
            r#"{"method":"a"} {}"#,
        ] {
            assert_eq!(Call::read(text.as_bytes()), None, "{text}");
        }
    }

    /// The nearest number that there is, also of many digits: of this one a library was off by one.
    #[test]
    fn numbers_are_what_was_written() {
        let digits = format!("1{}", "3".repeat(122));
        let text = format!(r#"{{"method":"a.B","parameters":{{"x":{digits}}}}}"#);
        let call = Call::read(text.as_bytes()).unwrap();
        assert_eq!(call.parameters["x"].as_f64(), digits.parse().ok());
    }

    #[test]
    fn a_reply_says_only_what_there_is() {
        let text = |reply: Reply| String::from_utf8(reply.message()).unwrap();
        assert_eq!(
            text(Reply::done(Parameters::new())),
            "{\"parameters\":{}}\0"
        );
        assert_eq!(
            text(Reply::wrong("a.B", "why", "\0")),
            "{\"error\":\"a.B\",\"parameters\":{\"why\":\"\\u0000\"}}\0"
        );
    }

    proptest! {
        /// However bytes are cut on their way, the messages are the same, and a call is what it says.
        #[test]
        fn bytes_may_be_cut_anywhere(bytes in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..200), cut in 0usize..200) {
            let all = |parts: &[&[u8]]| {
                let mut incoming = Incoming::default();
                let mut messages = Vec::new();
                for part in parts {
                    incoming.push(part);
                    while let Ok(Some(message)) = incoming.next(1000) {
                        messages.push(message);
                    }
                }
                messages
            };
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(all(&[&bytes]), all(&[head, tail]));
        }

        /// What is said is what is heard.
        #[test]
        fn a_call_is_read_as_it_was_written(method in "\\PC{0,20}", key in "\\PC{0,5}", value in "\\PC{0,5}", flags in 0..8) {
            let call = Call {
                method,
                parameters: Map::from_iter([(key, value.into())]),
                oneway: flags & 1 > 0,
                more: flags & 2 > 0,
                upgrade: flags & 4 > 0,
            };
            let mut incoming = Incoming::default();
            incoming.push(&call.message());
            let message = incoming.next(LONGEST).unwrap().unwrap();
            prop_assert_eq!(Call::read(&message), Some(call));
        }
    }
}
