//! The service's side and a client's over a socket, with a loop that the tests play.

use super::client::Client;
use super::interface::{PROCESSES, RELOAD, STATUS};
use super::server::{KEPT, LISTS, MOST, has_room};
use super::socket::{Turn, places, tests::machine};
use super::standing::{Process, tests::standing};
use super::varlink::{Call, LONGEST, Parameters, Reply};
use super::*;
use memtide_loop::report::ProcessOrder;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

struct Service {
    _folder: tempfile::TempDir,
    root: Root,
    control: Control,
    reload: Arc<AtomicBool>,
}

fn service() -> Service {
    let (folder, root) = machine();
    let reload = Arc::new(AtomicBool::new(false));
    let control = Control::begin(&ControlArgs::default(), &root, Arc::clone(&reload)).unwrap();
    Service {
        _folder: folder,
        root,
        control,
        reload,
    }
}

impl Service {
    fn path(&self) -> PathBuf {
        places(&self.root)[0].clone()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        let long = Some(Duration::from_secs(60));
        stream.set_read_timeout(long).unwrap();
        stream
    }

    fn tell(&self, looks: u64) {
        self.control.tell(|| Standing {
            looks,
            ..standing()
        });
    }

    /// Until somebody has asked for a reload, as the loop does between its turns.
    fn asked(&self) -> Asked {
        while !self.reload.swap(false, Ordering::SeqCst) {
            std::thread::yield_now();
        }
        self.control.reloading()
    }
}

/// What comes until the connection ends.
fn rest(mut stream: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_status_is_told_once_or_again_and_again() {
    let service = service();
    let mut client = Client::connect(&service.root).unwrap();
    let early = client.status().unwrap_err().to_string();
    assert!(
        early.starts_with("the service has not begun yet"),
        "{early}"
    );
    service.tell(1);
    assert_eq!(client.status().unwrap().looks, 1);
    client.watch().unwrap();
    assert_eq!(client.next().unwrap().looks, 1);
    for looks in 2..5 {
        service.tell(looks);
        assert_eq!(client.next().unwrap().looks, looks);
    }
    drop(service.control);
    let end = client.next().unwrap_err().to_string();
    assert_eq!(end, "the service closes the connection: the service ends");
}

#[test]
fn a_reload_answers_who_asked_for_it() {
    let mut service = service();
    let root = service.root.clone();
    let ask = move || Client::connect(&root).unwrap().reload();
    let asking = std::thread::spawn(ask.clone());
    let asked = service.asked();
    // The next one asks while the first reload goes on: it gets what comes of the second.
    let late = std::thread::spawn(ask);
    let second = service.asked();
    service
        .control
        .reloaded(asked, Ok(vec!["a was 1, is 2".to_owned()]), UNIX_EPOCH);
    service.tell(0);
    assert_eq!(asking.join().unwrap().unwrap(), ["a was 1, is 2"]);
    service.control.reloaded(
        second,
        Err("a.toml:1:1: wrong".to_owned()),
        UNIX_EPOCH + Duration::from_millis(1500),
    );
    service.tell(1);
    let refused = late.join().unwrap().unwrap_err().to_string();
    assert_eq!(
        refused,
        "reload refused, the old configuration is in force: a.toml:1:1: wrong"
    );
    // The status that came with it knows of it, until a reload is not refused.
    let mut client = Client::connect(&service.root).unwrap();
    let status = client.status().unwrap();
    assert_eq!(status.refused.as_deref(), Some("a.toml:1:1: wrong"));
    let reload = |unix_ms, taken| Some(standing::Reload { unix_ms, taken });
    assert_eq!(status.reload, reload(1500, false));
    let asked = service.control.reloading();
    service.control.reloaded(asked, Ok(Vec::new()), UNIX_EPOCH);
    service.tell(2);
    let status = client.status().unwrap();
    assert_eq!((status.refused, status.reload), (None, reload(0, true)));
}

/// Who waits for a reload that moves the socket is told, and others have to come again.
#[test]
fn the_socket_moves_and_nobody_is_forgotten() {
    let mut service = service();
    service.tell(1);
    let mut streaming = Client::connect(&service.root).unwrap();
    streaming.watch().unwrap();
    streaming.next().unwrap();
    let root = service.root.clone();
    let asking = std::thread::spawn(move || Client::connect(&root).unwrap().reload());
    let asked = service.asked();
    let own = rustix::process::getegid().as_raw();
    let of_group = ControlArgs {
        group: Some(own.to_string()),
        ..ControlArgs::default()
    };
    service.control.follow(&of_group).unwrap();
    service.control.reloaded(asked, Ok(Vec::new()), UNIX_EPOCH);
    service.tell(1);
    assert!(asking.join().unwrap().unwrap().is_empty());
    assert!(streaming.next().is_err());
    let [alone, open] = places(&service.root);
    assert!(!alone.exists() && open.exists());
    let mut client = Client::connect(&service.root).unwrap();
    assert_eq!(client.status().unwrap().looks, 1);
    // A group that is not there: the old place stays, and who is connected there.
    let unknown = ControlArgs {
        group: Some("nobody-like-that".to_owned()),
        ..ControlArgs::default()
    };
    assert!(service.control.follow(&unknown).is_err());
    assert_eq!(client.status().unwrap().looks, 1);
    // What manages services closes the folder. The next reload opens it.
    let folder = open.parent().unwrap();
    rustix::fs::chmod(folder, rustix::fs::Mode::RWXU).unwrap();
    service.control.follow(&of_group).unwrap();
    assert_eq!(
        rustix::fs::stat(folder).unwrap().st_mode & 0o777,
        0o755,
        "{folder:?}"
    );
    assert_eq!(client.status().unwrap().looks, 1);
    service.control.follow(&ControlArgs::default()).unwrap();
    assert!(alone.exists() && !open.exists());
}

/// What came of the reload is told nevertheless, and another service may begin.
#[test]
fn a_socket_that_is_turned_off_is_another_services() {
    let mut service = service();
    let root = service.root.clone();
    let asking = std::thread::spawn(move || Client::connect(&root).unwrap().reload());
    let asked = service.asked();
    service.control.follow(&NONE).unwrap();
    let none = Client::connect(&service.root).err().unwrap().to_string();
    assert!(none.starts_with("no memtide serve answers"), "{none}");
    let other = Control::begin(&ControlArgs::default(), &service.root, Arc::default()).unwrap();
    service.control.reloaded(asked, Ok(Vec::new()), UNIX_EPOCH);
    service.tell(1);
    assert!(asking.join().unwrap().unwrap().is_empty());
    assert!(service.control.follow(&ControlArgs::default()).is_err());
    drop(other);
    service.control.follow(&ControlArgs::default()).unwrap();
    Client::connect(&service.root).unwrap().status().unwrap();
}

/// The service ends right after a reload.
#[test]
fn what_came_of_a_reload_is_told_before_the_end() {
    let mut service = service();
    let root = service.root.clone();
    let asking = std::thread::spawn(move || Client::connect(&root).unwrap().reload());
    let asked = service.asked();
    service.control.reloaded(asked, Ok(Vec::new()), UNIX_EPOCH);
    service.tell(1);
    drop(service.control);
    assert!(asking.join().unwrap().unwrap().is_empty());
}

/// Lists of processes are for everybody, so they must not keep the loop from its work.
#[test]
fn many_who_ask_for_processes_and_go_are_no_trouble() {
    let service = service();
    service.tell(1);
    let shared = &service.control.answering.as_ref().unwrap().shared;
    let ask = || {
        let mut stream = service.connect();
        stream
            .write_all(&Call::of(PROCESSES, false).message())
            .unwrap();
        stream
    };
    for _ in 0..3 * MOST {
        drop(ask());
    }
    let until = Instant::now() + Duration::from_secs(60);
    // Served after all of those.
    Client::connect(&service.root).unwrap().status().unwrap();
    while shared.waiting() > 0 {
        assert!(Instant::now() < until, "{} wait", shared.waiting());
        std::thread::yield_now();
    }
    let streams: Vec<_> = (0..2 * LISTS + 1).map(|_| ask()).collect();
    while shared.waiting() < streams.len() {
        assert!(Instant::now() < until, "{} wait", shared.waiting());
        std::thread::yield_now();
    }
    for left in [LISTS, LISTS, 1] {
        let mut lists = 0;
        service.control.grant(|_| {
            lists += 1;
            Ok(Parameters::new())
        });
        assert_eq!(lists, left);
    }
}

/// The loop grants wishes between its turns, and tells each client of its own.
#[test]
fn the_loop_does_what_clients_wish() {
    let service = service();
    service.tell(1);
    let root = service.root.clone();
    let asking = |ask: fn(&mut Client) -> String| {
        let root = root.clone();
        std::thread::spawn(move || ask(&mut Client::connect(&root).unwrap()))
    };
    let pause = asking(|client| format!("{:?}", client.pause("db", true).unwrap()));
    let none = asking(|client| client.pause("web\n", false).unwrap_err().to_string());
    let unknown = asking(|client| client.explain(7, 4096).unwrap_err().to_string());
    let processes = asking(|client| {
        let processes = client.processes(ProcessOrder::Slow, 5).unwrap();
        format!("{} {}", processes.len(), processes[0].pid)
    });
    let mut silent = service.connect();
    let oneway = Call {
        oneway: true,
        parameters: [("class".to_owned(), "x".into())].into_iter().collect(),
        ..Call::of(interface::PAUSE, false)
    };
    silent.write_all(&oneway.message()).unwrap();
    let mut granted = 0;
    while granted < 5 {
        service.control.grant(|wish| {
            granted += 1;
            match wish {
                Wish::Pause { class, paused } if paused => {
                    assert!(class == "db" || class == "x");
                    Ok([("changed".to_owned(), true.into())].into_iter().collect())
                }
                Wish::Pause { class, .. } => {
                    Err(Reply::wrong(interface::NO_CLASS, "class", &class))
                }
                Wish::Processes { order, most } => {
                    assert_eq!((order, most), (ProcessOrder::Slow, 5));
                    let process = Process {
                        pid: 7,
                        ..Process::default()
                    };
                    let processes = serde_json::to_value([process]).unwrap();
                    Ok([("processes".to_owned(), processes)].into_iter().collect())
                }
                Wish::Explain { pid, address } => {
                    assert_eq!((pid, address), (7, 4096));
                    let why = "process 7 is not managed\n";
                    Err(Reply::wrong(interface::UNKNOWN, "reason", why))
                }
            }
        });
        std::thread::yield_now();
    }
    assert_eq!(pause.join().unwrap(), "true");
    assert_eq!(processes.join().unwrap(), "1 7");
    let none = none.join().unwrap();
    assert!(
        none.starts_with("class web\\n: not in the service's configuration"),
        "{none}"
    );
    assert_eq!(unknown.join().unwrap(), "process 7 is not managed\\n");
    // What nobody grants any more is refused, and who wants no reply gets none.
    silent.write_all(&oneway.message()).unwrap();
    let late = asking(|client| client.pause("db", true).unwrap_err().to_string());
    let answering = service.control.answering.as_ref().unwrap();
    let mut seen = 0;
    while seen < 2 {
        seen += answering.shared.wishes().len();
        std::thread::yield_now();
    }
    drop(service.control);
    assert_eq!(
        late.join().unwrap(),
        "the service closes the connection: the service ends"
    );
    assert_eq!(rest(silent), b"");
}

/// No status comes after it: the next run did not begin.
#[test]
fn what_came_of_a_reload_is_told_although_the_service_fails() {
    let mut service = service();
    let root = service.root.clone();
    let ask = move || Client::connect(&root).unwrap().reload();
    let asking = std::thread::spawn(ask.clone());
    let asked = service.asked();
    service.control.reloaded(asked, Ok(Vec::new()), UNIX_EPOCH);
    // One more asks, and nothing came of that yet.
    let late = std::thread::spawn(ask);
    let _ = service.asked();
    service.control.fails("cannot put back DAMON");
    drop(service.control);
    assert!(asking.join().unwrap().unwrap().is_empty());
    let why = late.join().unwrap().unwrap_err().to_string();
    assert_eq!(
        why,
        "the service closes the connection: the service ends: cannot put back DAMON"
    );
}

/// The errors that `stream` has until it ends.
fn errors(stream: UnixStream) -> Vec<Option<String>> {
    let replies = rest(stream);
    let replies = replies.split(|byte| *byte == 0);
    let replies = replies.filter(|text| !text.is_empty());
    let reply = |text| serde_json::from_slice::<Reply>(text).unwrap();
    replies.map(|text| reply(text).error).collect()
}

/// The thread does nothing until all of it is there: what it was told, and what clients sent.
#[test]
fn calls_that_were_not_read_when_the_socket_closes_are_refused() {
    for end in [false, true] {
        let (_folder, root) = machine();
        let turn = Turn::take(&root).unwrap();
        let shared = Arc::new(Shared::new(Arc::default()).unwrap());
        shared.tell(standing());
        let (listener, _bound) = turn.listen(&ControlArgs::default()).unwrap();
        let connect = || UnixStream::connect(&places(&root)[0]).unwrap();
        // Nobody has accepted them; one says nothing, one streams, one wants no reply.
        let mut all = [connect(), connect(), connect(), connect()];
        let status = Call::of(STATUS, false);
        let oneway = Call {
            oneway: true,
            ..status.clone()
        };
        let two = [status.message(), status.message()].concat();
        all[1].write_all(&two).unwrap();
        all[2].write_all(&Call::of(STATUS, true).message()).unwrap();
        all[3].write_all(&oneway.message()).unwrap();
        shared.order(Order::Listen(Some(listener)));
        shared.order(match end {
            false => Order::Listen(None),
            true => Order::End("the service ends".to_owned()),
        });
        let thread = server::begin(Arc::clone(&shared), Duration::from_secs(60)).unwrap();
        let closing = Some(interface::CLOSING.to_owned());
        let answers = all.map(errors);
        let expected = [0, 2, 1, 0].map(|n| vec![closing.clone(); n]);
        assert_eq!(answers, expected, "{end}");
        // It does no harm twice.
        shared.order(Order::End(String::new()));
        thread.join().unwrap();
    }
}

/// 32 in all; 24 for who may only read.
#[test]
fn readers_leave_room_for_who_may_reload() {
    assert!(has_room(MOST - KEPT - 1, MOST - KEPT - 1, false));
    assert!(!has_room(MOST - KEPT, MOST - KEPT, false));
    assert!(has_room(MOST - KEPT, MOST - KEPT, true));
    assert!(has_room(MOST - 1, 0, false));
    assert!(!has_room(MOST, 0, true));
}

#[test]
fn calls_may_come_in_a_row_and_need_no_answer() {
    let service = service();
    service.tell(7);
    let mut stream = service.connect();
    let info = Call::of("org.varlink.service.GetInfo", false);
    let silent = Call {
        oneway: true,
        ..info.clone()
    };
    let all = [
        silent.message(),
        info.message(),
        Call::of(STATUS, false).message(),
    ]
    .concat();
    stream.write_all(&all).unwrap();
    // It says nothing more, and is answered nevertheless.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let replies = rest(stream);
    let replies: Vec<Reply> = replies
        .split(|byte| *byte == 0)
        .filter(|text| !text.is_empty())
        .map(|text| serde_json::from_slice(text).unwrap())
        .collect();
    assert_eq!(replies.len(), 2);
    assert_eq!(
        replies[0].parameters.as_ref().unwrap()["product"],
        "memtide"
    );
    assert_eq!(
        replies[1].parameters.as_ref().unwrap()["status"]["looks"],
        7
    );
}

#[test]
fn nonsense_ends_a_connection_and_no_other() {
    let service = service();
    service.tell(1);
    let mut good = Client::connect(&service.root).unwrap();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n\0".to_vec(),
        b"\0".to_vec(),
        vec![b'x'; LONGEST + 1],
    ] {
        let mut bad = service.connect();
        let _ = bad.write_all(&bytes);
        assert_eq!(rest(bad), b"");
    }
    assert_eq!(good.status().unwrap().looks, 1);
}

/// One that streams and never reads does not hold up the loop, nor who asks beside it.
#[test]
fn a_slow_reader_holds_up_nobody() {
    let service = service();
    let class = |number: usize| standing::Class {
        name: format!("class-{number}"),
        ..standing::Class::default()
    };
    let large = |looks| Standing {
        looks,
        classes: (0..2000).map(class).collect(),
        ..standing()
    };
    service.control.tell(|| large(0));
    let mut slow = service.connect();
    slow.write_all(&Call::of(STATUS, true).message()).unwrap();
    let mut other = Client::connect(&service.root).unwrap();
    for looks in 1..20 {
        service.control.tell(|| large(looks));
        assert_eq!(other.status().unwrap().looks, looks);
    }
    // What it reads in the end is whole, and the statuses between are left out.
    drop(service.control);
    let read = rest(slow);
    assert!(read.len() < 20 * large(0).parameters()["status"].to_string().len());
}

#[test]
fn one_too_many_is_turned_away() {
    let service = service();
    service.tell(1);
    let mut clients: Vec<Client> = (0..MOST)
        .map(|_| {
            let mut client = Client::connect(&service.root).unwrap();
            client.status().unwrap();
            client
        })
        .collect();
    assert_eq!(rest(service.connect()), b"");
    clients.pop();
    // Its place is free as soon as the thread has noticed.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = Client::connect(&service.root).and_then(|mut client| client.status());
        match answer {
            Ok(status) => break assert_eq!(status.looks, 1),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

#[test]
fn who_is_silent_is_cut_off_and_who_listens_is_not() {
    let (_folder, root) = machine();
    let turn = Turn::take(&root).unwrap();
    let shared = Arc::new(Shared::new(Arc::default()).unwrap());
    // Enough to connect and to call, which are two steps.
    let patience = Duration::from_secs(1);
    let thread = server::begin(Arc::clone(&shared), patience).unwrap();
    let (listener, _bound) = turn.listen(&ControlArgs::default()).unwrap();
    shared.tell(standing());
    shared.order(Order::Listen(Some(listener)));
    let mut listening = Client::connect(&root).unwrap();
    listening.watch().unwrap();
    listening.next().unwrap();
    let mut silent = UnixStream::connect(&places(&root)[0]).unwrap();
    silent.write_all(b"{").unwrap();
    assert_eq!(rest(silent), b"");
    shared.tell(standing());
    listening.next().unwrap();
    // A reload may take its time, too.
    let mut waiting = UnixStream::connect(&places(&root)[0]).unwrap();
    waiting
        .write_all(&Call::of(RELOAD, false).message())
        .unwrap();
    let mut silent = UnixStream::connect(&places(&root)[0]).unwrap();
    silent.write_all(b"{").unwrap();
    assert_eq!(rest(silent), b"");
    shared.order(Order::Outcome(1, Ok(Vec::new())));
    shared.order(Order::Listen(None));
    assert_eq!(rest(waiting), b"{\"parameters\":{\"changes\":[]}}\0");
    shared.order(Order::End(String::new()));
    thread.join().unwrap();
}

/// A cleaner of /run took the socket, or its folder with it.
#[test]
fn a_socket_that_was_deleted_comes_back_with_the_next_reload() {
    let (folder, root) = machine();
    let args = ControlArgs::default();
    let mut control = Control::begin(&args, &root, Arc::default()).unwrap();
    let [path, _] = places(&root);
    std::fs::remove_file(&path).unwrap();
    control.follow(&args).unwrap();
    UnixStream::connect(&path).unwrap();
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    control.follow(&args).unwrap();
    UnixStream::connect(&path).unwrap();
    // Nor may two services listen after that.
    assert!(Turn::take(&root).is_err());
    drop(control);
    assert!(!path.exists());
}
