//! A headless Chromium that tests talk to.
//!
//! Chromium speaks its DevTools protocol over two pipes (`--remote-debugging-pipe`): it reads commands from
//! descriptor 3 and writes answers and events to descriptor 4, each a line of JSON that ends with a zero
//! byte. So there is no port, no library, and it ends when its input does. A shell gives it the two
//! descriptors. Its profile is a temporary folder, and it looks no name up.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long one answer may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take to end.
const END: Duration = Duration::from_secs(10);

/// The program, by its names in distributions.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all = names.iter().flat_map(|name| {
        let folders = std::env::split_paths(&path).collect::<Vec<_>>();
        folders.into_iter().map(move |folder| folder.join(name))
    });
    all.into_iter().find(|file| file.is_file())
}

/// A running browser; it ends with this value, and so does every process of its group.
pub struct Browser {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    sent: u64,
    /// Events that came: of which tab, and what.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// A tab.
#[derive(Clone)]
pub struct Tab {
    session: String,
    url: String,
}

/// How a page is shown.
#[derive(Clone, Copy)]
pub struct View {
    pub width: u32,
    pub dark: bool,
}

impl Browser {
    /// Starts one; where there is none that is said, and the test is one that was skipped.
    pub fn start() -> Option<Browser> {
        let Some(program) = program() else {
            println!("skipped: chromium is not installed");
            eprintln!("skipped: chromium is not installed");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(program)
            // Root may not use the sandbox, and what is shown is ours.
            .args(["--headless", "--no-sandbox", "--remote-debugging-pipe"])
            .args([
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args(["--no-first-run", "--disable-sync", "--disable-extensions"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args(["--force-color-profile=srgb", "--password-store=basic"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = child.stdout.take().unwrap();
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                bytes.pop();
                let Ok(value) = serde_json::from_slice(&bytes) else {
                    break;
                };
                if send.send(value).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        Some(Browser {
            child,
            input,
            answers,
            sent: 0,
            events: Vec::new(),
            _profile: profile,
        })
    }

    fn send(&mut self, session: &str, method: &str, params: Value) {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        let input = self.input.as_mut().expect("the browser was not ended");
        input.write_all(&bytes).expect("the browser listens");
    }

    fn next(&mut self, until: Instant, what: &str) -> Value {
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.answers.recv_timeout(left);
        answer.unwrap_or_else(|error| panic!("{what}: the browser does not answer: {error}"))
    }

    fn call(&mut self, session: &str, method: &str, params: Value) -> Value {
        self.send(session, method, params);
        let (id, until) = (self.sent, Instant::now() + PATIENCE);
        loop {
            let mut answer = self.next(until, method);
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    /// Opens a file in a tab of its own, and waits until it is loaded and drawn.
    pub fn open(&mut self, file: &Path, view: View) -> Tab {
        self.open_url(&format!("file://{}", file.display()), view)
    }

    pub fn open_url(&mut self, url: &str, view: View) -> Tab {
        let target = self.call("", "Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("", "Target.attachToTarget", attach);
        let tab = Tab {
            session: attached["sessionId"].as_str().unwrap().to_owned(),
            url: url.to_owned(),
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.on(&tab, &format!("{domain}.enable"), json!({}));
        }
        let telephone = view.width < 600;
        self.on(
            &tab,
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": view.width, "height": 844, "deviceScaleFactor": 1, "mobile": telephone }),
        );
        let touch = json!({ "enabled": telephone });
        self.on(&tab, "Emulation.setTouchEmulationEnabled", touch);
        let scheme = if view.dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.on(
            &tab,
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
        self.on(&tab, "Page.navigate", json!({ "url": url }));
        let until = Instant::now() + PATIENCE;
        let loaded = |event: &Value| {
            event["method"] == "Page.loadEventFired" && event["sessionId"] == *tab.session
        };
        while !self.events.iter().any(loaded) {
            let event = self.next(until, url);
            self.events.push(event);
        }
        self.settle(&tab);
        tab
    }

    /// A command to a tab.
    pub fn on(&mut self, tab: &Tab, method: &str, params: Value) -> Value {
        self.call(&tab.session, method, params)
    }

    /// What an expression is in the page; a promise is waited for.
    pub fn ask(&mut self, tab: &Tab, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.on(tab, "Runtime.evaluate", params);
        let wrong = &answer["exceptionDetails"];
        assert!(wrong.is_null(), "{expression}: {wrong}");
        answer["result"]["value"].take()
    }

    /// Waits until what changed was drawn.
    pub fn settle(&mut self, tab: &Tab) {
        self.ask(
            tab,
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))",
        );
    }

    /// The whole page as a PNG file in base64.
    pub fn picture(&mut self, tab: &Tab) -> String {
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.on(tab, "Page.captureScreenshot", params);
        picture["data"].as_str().unwrap().to_owned()
    }

    pub fn mouse(&mut self, tab: &Tab, x: f64, y: f64) {
        let params = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.on(tab, "Input.dispatchMouseEvent", params);
    }

    pub fn tap(&mut self, tab: &Tab, x: f64, y: f64) {
        let point = json!([{ "x": x, "y": y }]);
        let start = json!({ "type": "touchStart", "touchPoints": point });
        self.on(tab, "Input.dispatchTouchEvent", start);
        let end = json!({ "type": "touchEnd", "touchPoints": [] });
        self.on(tab, "Input.dispatchTouchEvent", end);
    }

    pub fn key(&mut self, tab: &Tab, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let params =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.on(tab, "Input.dispatchKeyEvent", params);
        }
    }

    /// What the tab wrote to its console, the exceptions that nobody caught, and what it asked the network
    /// for beside its own file.
    pub fn complaints(&self, tab: &Tab) -> Vec<String> {
        let mine = self.events.iter();
        let mine = mine.filter(|event| event["sessionId"] == *tab.session);
        let bad = mine.filter(|event| match event["method"].as_str() {
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Network.requestWillBeSent") => event["params"]["request"]["url"] != *tab.url,
            _ => false,
        });
        bad.map(Value::to_string).collect()
    }

    pub fn close(&mut self, tab: &Tab) {
        self.on(tab, "Page.close", json!({}));
        self.events
            .retain(|event| event["sessionId"] != *tab.session);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when nobody can tell it anything any more.
        self.input = None;
        let until = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Those that it started are in its group, which is ours.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
