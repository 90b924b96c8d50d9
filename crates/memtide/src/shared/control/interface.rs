//! What can be asked: each call's answer, or who has to give it.
//!
//! A call is answered here as far as it can be without knowing how things stand, so that the whole of it
//! can be tried with any call: who may do what, which methods there are, which parameters they take.

use super::varlink::{Call, Parameters, Reply};
use memtide_loop::report::ProcessOrder;
use serde_json::{Value, json};

/// Our interface.
pub const NAME: &str = "io.memtide";
/// Where things stand.
pub const STATUS: &str = "io.memtide.Status";
/// Reads the configuration again.
pub const RELOAD: &str = "io.memtide.Reload";
/// Pages of a class stay where they are.
pub const PAUSE: &str = "io.memtide.Pause";
/// They move again.
pub const RESUME: &str = "io.memtide.Resume";
/// Where processes stand.
pub const PROCESSES: &str = "io.memtide.Processes";
/// Why a page is where it is.
pub const EXPLAIN: &str = "io.memtide.Explain";
/// There is no class of this name.
pub const NO_CLASS: &str = "io.memtide.NoSuchClass";
/// Nothing is known of a page.
pub const UNKNOWN: &str = "io.memtide.NotKnown";
/// The new configuration was refused.
pub const REFUSED: &str = "io.memtide.ConfigurationRefused";
/// There is no status yet.
pub const NOT_READY: &str = "io.memtide.NotReady";
/// The socket closes, and the call had no effect.
pub const CLOSING: &str = "io.memtide.Closing";
/// Its description.
pub const DESCRIPTION: &str = include_str!("io.memtide.varlink");

/// The interface of every service.
const SERVICE: &str = "org.varlink.service";
/// The caller may not do that.
pub const DENIED: &str = "org.varlink.service.PermissionDenied";
const SERVICE_DESCRIPTION: &str = "\
# What every varlink service answers.
interface org.varlink.service

method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)

method GetInterfaceDescription(interface: string) -> (description: string)

error InterfaceNotFound (interface: string)

error MethodNotFound (method: string)

error MethodNotImplemented (method: string)

error InvalidParameter (parameter: string)

error PermissionDenied ()

error ExpectedMore ()
";

/// The most processes that are told of, and how many if the caller does not say.
const PROCESSES_MOST: (u64, u64) = (1000, 100);

/// What is to be done about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// This is all.
    Reply(Reply),
    /// The status; again and again, if `stream`.
    Status {
        /// Whether many replies are wanted.
        stream: bool,
    },
    /// A reload, and what came of it.
    Reload,
    /// What the loop does, and what came of it.
    Wish(Wish),
}

/// What only the loop can do, between two turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Has the pages of a class stay, or move again.
    Pause {
        /// Its name.
        class: String,
        /// Whether they stay.
        paused: bool,
    },
    /// Says where processes stand. The only one that everybody may have.
    Processes {
        /// Which come first.
        order: ProcessOrder,
        /// How many.
        most: usize,
    },
    /// Says why a page is where it is.
    Explain {
        /// Its process.
        pid: u32,
        /// An address in it.
        address: u64,
    },
}

/// What came of a wish.
pub type Granted = Result<Parameters, Reply>;

/// The answer to `call` of somebody who may change things, or who may not.
pub fn answer(call: &Call, may_change: bool) -> Answer {
    let wrong = |error: &str, key: &str, value: &str| {
        Answer::Reply(Reply::wrong(&format!("{SERVICE}.{error}"), key, value))
    };
    let Some((interface, _)) = call.method.rsplit_once('.') else {
        return wrong("MethodNotFound", "method", &call.method);
    };
    if ![NAME, SERVICE].contains(&interface) {
        return wrong("InterfaceNotFound", "interface", interface);
    }
    let takes: &[&str] = match call.method.as_str() {
        "org.varlink.service.GetInfo" | STATUS | RELOAD => &[],
        "org.varlink.service.GetInterfaceDescription" => &["interface"],
        PAUSE | RESUME => &["class"],
        EXPLAIN => &["pid", "address"],
        PROCESSES => &["order", "most"],
        _ => return wrong("MethodNotFound", "method", &call.method),
    };
    if call.upgrade {
        return wrong("MethodNotImplemented", "method", &call.method);
    }
    let unknown = |key: &&String| !takes.contains(&key.as_str());
    if let Some(key) = call.parameters.keys().find(unknown) {
        return wrong("InvalidParameter", "parameter", key);
    }
    match call.method.as_str() {
        STATUS => Answer::Status {
            stream: call.more && !call.oneway,
        },
        RELOAD | PAUSE | RESUME | EXPLAIN if !may_change => Answer::Reply(Reply {
            error: Some(DENIED.to_owned()),
            parameters: Some(Parameters::new()),
            continues: false,
        }),
        RELOAD => Answer::Reload,
        PAUSE | RESUME => match call.parameters.get("class").and_then(Value::as_str) {
            Some(class) => Answer::Wish(Wish::Pause {
                class: class.to_owned(),
                paused: call.method == PAUSE,
            }),
            None => wrong("InvalidParameter", "parameter", "class"),
        },
        EXPLAIN => {
            let number = |key| call.parameters.get(key).and_then(Value::as_u64);
            match (number("pid").map(u32::try_from), number("address")) {
                (Some(Ok(pid)), Some(address)) => Answer::Wish(Wish::Explain { pid, address }),
                (Some(Ok(_)), None) => wrong("InvalidParameter", "parameter", "address"),
                _ => wrong("InvalidParameter", "parameter", "pid"),
            }
        }
        PROCESSES => match processes(&call.parameters) {
            Ok(wish) => Answer::Wish(wish),
            Err(key) => wrong("InvalidParameter", "parameter", key),
        },
        "org.varlink.service.GetInfo" => done(&json!({
            "vendor": "memtide",
            "product": "memtide",
            "version": env!("CARGO_PKG_VERSION"),
            "url": "",
            "interfaces": [SERVICE, NAME],
        })),
        _ => match call.parameters.get("interface").and_then(Value::as_str) {
            Some(NAME) => done(&json!({ "description": DESCRIPTION })),
            Some(SERVICE) => done(&json!({ "description": SERVICE_DESCRIPTION })),
            Some(other) => wrong("InterfaceNotFound", "interface", other),
            None => wrong("InvalidParameter", "parameter", "interface"),
        },
    }
}

/// Of a call for processes; or which of its parameters makes no sense.
fn processes(parameters: &Parameters) -> Result<Wish, &'static str> {
    let given = |key| parameters.get(key).filter(|value| !value.is_null());
    let order = given("order").map(|order| serde_json::from_value(order.clone()));
    let most = given("most").map(Value::as_u64);
    let most = most.unwrap_or(Some(PROCESSES_MOST.1)).ok_or("most")?;
    Ok(Wish::Processes {
        order: order.transpose().map_err(|_| "order")?.unwrap_or_default(),
        most: most.min(PROCESSES_MOST.0) as usize,
    })
}

fn done(parameters: &Value) -> Answer {
    let parameters = parameters.as_object().cloned().unwrap_or_default();
    Answer::Reply(Reply::done(parameters))
}

/// Any bytes, for the fuzz target: messages and calls, and each call has an answer that can be read.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    use super::varlink::{Incoming, LONGEST};
    let mut incoming = Incoming::default();
    for part in bytes.chunks(7) {
        incoming.push(part);
        while let Ok(Some(message)) = incoming.next(LONGEST) {
            let Some(call) = Call::read(&message) else {
                continue;
            };
            let again = call.message();
            assert_eq!(again.last(), Some(&0));
            assert_eq!(Call::read(&again[..again.len() - 1]).as_ref(), Some(&call));
            let changes = match answer(&call, false) {
                Answer::Reload => true,
                Answer::Wish(wish) => !matches!(wish, Wish::Processes { .. }),
                _ => false,
            };
            assert!(!changes);
            if let Answer::Reply(reply) = answer(&call, true) {
                let said = reply.message();
                assert_eq!(
                    said.iter().position(|byte| *byte == 0),
                    Some(said.len() - 1)
                );
                let heard: Reply =
                    serde_json::from_slice(&said[..said.len() - 1]).expect("a reply");
                assert_eq!(heard, reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        match answer(&Call::read(text.as_bytes()).unwrap(), true) {
            Answer::Reply(reply) => reply,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_call_has_its_answer() {
        let call = |method: &str, more| Call::of(method, more);
        assert_eq!(
            answer(&call(STATUS, true), false),
            Answer::Status { stream: true }
        );
        assert_eq!(
            answer(&call(STATUS, false), false),
            Answer::Status { stream: false }
        );
        assert_eq!(answer(&call(RELOAD, false), true), Answer::Reload);
        let denied = answer(&call(RELOAD, false), false);
        assert!(matches!(denied, Answer::Reply(reply) if reply.error.as_deref() == Some(DENIED)));
        let info = reply(r#"{"method":"org.varlink.service.GetInfo"}"#);
        let info = info.parameters.unwrap();
        assert_eq!(info["product"], "memtide");
        assert_eq!(info["interfaces"], json!([SERVICE, NAME]));
    }

    #[test]
    fn wishes_are_for_who_may_change_things() {
        let call = |text: &str| Call::read(text.as_bytes()).unwrap();
        for (text, wish) in [
            (
                r#"{"method":"io.memtide.Pause","parameters":{"class":"db"}}"#,
                Wish::Pause {
                    class: "db".to_owned(),
                    paused: true,
                },
            ),
            (
                r#"{"method":"io.memtide.Resume","parameters":{"class":"db"}}"#,
                Wish::Pause {
                    class: "db".to_owned(),
                    paused: false,
                },
            ),
            (
                r#"{"method":"io.memtide.Explain","parameters":{"pid":7,"address":140737488351232}}"#,
                Wish::Explain {
                    pid: 7,
                    address: 0x7fff_ffff_f000,
                },
            ),
        ] {
            assert_eq!(answer(&call(text), true), Answer::Wish(wish));
            let denied = answer(&call(text), false);
            assert!(
                matches!(denied, Answer::Reply(reply) if reply.error.as_deref() == Some(DENIED))
            );
        }
        for (text, key) in [
            (r#"{"method":"io.memtide.Pause"}"#, "class"),
            (
                r#"{"method":"io.memtide.Pause","parameters":{"class":1}}"#,
                "class",
            ),
            (
                r#"{"method":"io.memtide.Explain","parameters":{"pid":-1}}"#,
                "pid",
            ),
            (
                r#"{"method":"io.memtide.Explain","parameters":{"pid":4294967296,"address":0}}"#,
                "pid",
            ),
            (
                r#"{"method":"io.memtide.Explain","parameters":{"pid":1,"address":"0x1"}}"#,
                "address",
            ),
        ] {
            let reply = reply(text);
            assert_eq!(reply.parameters.unwrap()["parameter"], key, "{text}");
        }
    }

    #[test]
    fn everybody_may_ask_for_processes() {
        let asked = |parameters: &str| {
            let text = format!(r#"{{"method":"io.memtide.Processes","parameters":{parameters}}}"#);
            answer(&Call::read(text.as_bytes()).unwrap(), false)
        };
        let wish = |order, most| Answer::Wish(Wish::Processes { order, most });
        assert_eq!(asked("{}"), wish(ProcessOrder::Fast, 100));
        assert_eq!(
            asked(r#"{"order":"demoted","most":1000000}"#),
            wish(ProcessOrder::Demoted, 1000)
        );
        assert_eq!(
            asked(r#"{"order":null,"most":null}"#),
            wish(ProcessOrder::Fast, 100)
        );
        for (parameters, key) in [
            (r#"{"order":"name"}"#, "order"),
            (r#"{"most":-1}"#, "most"),
            (r#"{"most":"9"}"#, "most"),
        ] {
            let Answer::Reply(reply) = asked(parameters) else {
                panic!("{parameters}");
            };
            assert_eq!(reply.parameters.unwrap()["parameter"], key);
        }
    }

    #[test]
    fn what_cannot_be_asked_has_the_error_of_every_service() {
        for (text, error, key, value) in [
            (
                r#"{"method":"Status"}"#,
                "MethodNotFound",
                "method",
                "Status",
            ),
            (
                r#"{"method":"io.memtide.Stats"}"#,
                "MethodNotFound",
                "method",
                "io.memtide.Stats",
            ),
            (
                r#"{"method":"io.systemd.Status"}"#,
                "InterfaceNotFound",
                "interface",
                "io.systemd",
            ),
            (
                r#"{"method":"io.memtide.Status","parameters":{"x":1}}"#,
                "InvalidParameter",
                "parameter",
                "x",
            ),
            (
                r#"{"method":"io.memtide.Status","upgrade":true}"#,
                "MethodNotImplemented",
                "method",
                "io.memtide.Status",
            ),
            (
                r#"{"method":"org.varlink.service.GetInterfaceDescription"}"#,
                "InvalidParameter",
                "parameter",
                "interface",
            ),
            (
                r#"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"a.b"}}"#,
                "InterfaceNotFound",
                "interface",
                "a.b",
            ),
        ] {
            let reply = reply(text);
            assert_eq!(
                reply.error,
                Some(format!("{SERVICE}.{error}")),
                "{text}: {reply:?}"
            );
            assert_eq!(reply.parameters.unwrap()[key], value, "{text}");
        }
    }

    #[test]
    fn the_description_names_what_there_is() {
        let words = r#"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"io.memtide"}}"#;
        let description = reply(words).parameters.unwrap()["description"].clone();
        let description = description.as_str().unwrap();
        for name in [STATUS, PROCESSES, RELOAD, PAUSE, RESUME, EXPLAIN] {
            let name = name.strip_prefix("io.memtide.").unwrap();
            assert!(description.contains(&format!("\nmethod {name}(")), "{name}");
        }
        for name in [REFUSED, NOT_READY, CLOSING, NO_CLASS, UNKNOWN] {
            let name = name.strip_prefix("io.memtide.").unwrap();
            assert!(description.contains(&format!("\nerror {name} (")), "{name}");
        }
    }
}
