//! A service on a machine that is a folder, without a run.

use super::reload::{Looked, Running};
use super::*;
use crate::shared::control::client::Client;
use crate::shared::tiering;
use memtide_core::access;
use memtide_core::topology::{AccessFigures, NodeInput, Topology, TopologyInput};
use memtide_core::units::{Millis, NodeId};
use memtide_linux::fs::Root;
use memtide_loop::options::in_words;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A machine with this configuration, and a group `watch` that is ours.
fn machine(configuration: &str) -> (tempfile::TempDir, Context) {
    let folder = tempfile::tempdir().unwrap();
    let context = Context {
        root: Root::new(folder.path()),
        json: false,
        styled: false,
    };
    for made in ["etc", "etc/memtide"] {
        let path = folder.path().join(made);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
    let cgroups = "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    write(folder.path(), "proc/self/mountinfo", cgroups);
    let own = rustix::process::getegid().as_raw();
    write(folder.path(), "etc/group", &format!("watch:x:{own}:\n"));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../memtide-linux/tests/fixtures/two-sockets-cxl-hmat");
    std::os::unix::fs::symlink(fixture.join("sys"), folder.path().join("sys")).unwrap();
    configure(folder.path(), configuration);
    (folder, context)
}

/// A run by hint faults on the nodes that there are.
fn running(service: &Service<'_>) -> Running {
    let tier = &service.in_force.settings.tier;
    let nodes = tiering::nodes(service.context, tier, "").unwrap();
    Running {
        now: Millis(0),
        held: vec![access::Source::HintFault],
        tiers: tiering::tiers(&nodes),
    }
}

fn look_again(service: &mut Service<'_>) -> Looked {
    let running = running(service);
    service.look_again(&running)
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
}

fn configure(root: &Path, text: &str) {
    write(root, "etc/memtide/memtide.toml", text);
}

fn source(context: &Context, dry_run: bool) -> Source {
    Source {
        files: Files::new(None, &context.root),
        dry_run,
    }
}

/// Balancing has no sources of its own to try: where there are none it rests.
#[test]
fn balancing_that_is_wanted_or_no_more_needs_another_run() {
    with_service("tier.source = \"hint-faults\"", |root, service| {
        for (text, wanted) in [
            (
                "select.balance = true\n",
                "select.balance was false, is true",
            ),
            (
                "balance.source = \"writes\"\n",
                "balance.source was \"auto\", is \"writes\"",
            ),
            (
                "[class.db]\nuser = \"7\"\nbalance = true\n",
                "class.db.balance was nothing, is true",
            ),
            (
                "[class.db]\nuser = \"7\"\ntier = false\nweights = \"0=3,2=1\"\n",
                "class.db.weights was nothing, is \"0=3,2=1\"",
            ),
        ] {
            let source = "tier.source = \"hint-faults\"\n";
            configure(root, &format!("{source}{text}"));
            let Looked::Another(_, changes) = look_again(service) else {
                panic!("the same run for {text}");
            };
            assert!(
                changes.iter().any(|change| change.starts_with(wanted)),
                "{changes:?}"
            );
        }
    });
}

/// What records or sources are built on needs another run, and so does who is balanced.
#[test]
fn the_run_goes_on_with_other_classes_shares_and_rates() {
    with_service("tier.source = \"hint-faults\"", |root, service| {
        let mut configured = |text: &str| {
            let source = "tier.source = \"hint-faults\"\n";
            configure(root, &format!("{source}{text}"));
            match look_again(service) {
                Looked::GoesOn(_, changes) => Some(changes.len()),
                Looked::Another(..) => None,
                Looked::Refused(why) => panic!("{text}: {why}"),
                Looked::Taken(_) => panic!("{text}: nothing to follow"),
            }
        };
        let db = "[class.db]\ncgroup = \"/db\"\n";
        for (text, changes) in [
            (format!("{db}fast.low = \"1MiB\"\n"), Some(2)),
            (format!("{db}tier = false\n"), Some(2)),
            ("select.demote = false\n".to_owned(), Some(1)),
            ("tier.rate_limit = \"1GiB\"\n".to_owned(), Some(1)),
            ("tier.observe_cpu = \"3\"\n".to_owned(), Some(1)),
            ("tier.demote_idle = \"10m\"\n".to_owned(), Some(1)),
            ("tier.threshold = 3\n".to_owned(), None),
            ("tier.dry_run = true\n".to_owned(), None),
            (
                "select.cgroup = \"/a\"\nselect.all = false\n".to_owned(),
                None,
            ),
            (format!("{db}balance = true\n"), None),
        ] {
            assert_eq!(configured(&text), changes, "{text}");
        }
    });
    // Where somebody is balanced shares may change, and who is in a class may not.
    let db = "tier.source = \"hint-faults\"\n[class.db]\nbalance = true\n";
    with_service(&format!("{db}cgroup = \"/db\"\n"), |root, service| {
        configure(
            root,
            &format!("{db}cgroup = \"/db\"\nfast.low = \"1MiB\"\n"),
        );
        assert!(matches!(look_again(service), Looked::GoesOn(..)));
        configure(root, &format!("{db}cgroup = \"/other\"\n"));
        assert!(matches!(look_again(service), Looked::Another(..)));
    });
}

/// A service without a run, which what it looks at here does not need.
fn with_service(configuration: &str, test: impl FnOnce(&Path, &mut Service<'_>)) {
    let (folder, context) = machine(configuration);
    let manager = Manager::new();
    let source = source(&context, false);
    let in_force = source.read().unwrap();
    let settings = &in_force.settings;
    let page = page_size().unwrap();
    let control = Control::begin(&settings.control, &context.root, Arc::default()).unwrap();
    let mut service = Service {
        source,
        context: &context,
        manager: &manager,
        signal: Arc::default(),
        reload: Arc::default(),
        page,
        usual: priority::ask(),
        printer: Printer::new(false, page),
        metrics: Some(Metrics::begin(&settings.metrics, &names(&in_force), "tier", page).unwrap()),
        figures: Some(settings.metrics.clone()),
        table: Table::default(),
        pagers: Pagers::default(),
        control,
        loaded: loaded(UNIX_EPOCH),
        in_force,
    };
    test(folder.path(), &mut service);
}

/// A client of the service's stream, which has had the first status.
fn watching(service: &Service<'_>) -> Client {
    service.control.tell(Default::default);
    let mut client = Client::connect(&service.context.root).unwrap();
    client.watch().unwrap();
    client.next().unwrap();
    client
}

fn refused(looked: Looked) -> String {
    match looked {
        Looked::Refused(why) => why,
        _ => panic!("taken"),
    }
}

/// Copies what is below one folder to another.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// What the kernel's table reads on a machine whose files are its own.
fn with_table(test: impl FnOnce(&Path, &mut Service<'_>, &dyn Fn() -> String)) {
    with_service("tier.source = \"hint-faults\"", |root, service| {
        let sys = root.join("sys");
        let fixture = std::fs::read_link(&sys).unwrap();
        std::fs::remove_file(&sys).unwrap();
        copy(&fixture, &sys);
        // These files compute nothing.
        let auto = "sys/kernel/mm/mempolicy/weighted_interleave/auto";
        write(root, auto, "false\n");
        write(root, "proc/sys/kernel/random/boot_id", "this-boot\n");
        let read = || {
            let weights = memtide_linux::fs::node::weights(&Root::new(root)).unwrap();
            in_words(&weights.unwrap().weights)
        };
        test(root, service, &read);
    });
}

/// The run goes on: what it has learned is not lost for a table.
#[test]
fn a_reload_changes_the_kernels_table_whole_or_not_at_all() {
    with_table(|root, service, reads| {
        let text = |table: &str| format!("tier.source = \"hint-faults\"\n{table}");
        let found = reads();
        configure(root, &text("weights.table = '2=3'"));
        assert!(matches!(look_again(service), Looked::Taken(changes) if changes.len() == 1));
        assert!(reads().ends_with(",2=3"), "{}", reads());
        // 200, 200 and 40 GB/s.
        configure(root, &text("weights.table = 'compute'"));
        assert!(matches!(look_again(service), Looked::Taken(_)));
        assert_eq!(reads(), "0=7,1=7,2=1");
        // Neither a wrong table nor a table beside something that is wrong.
        configure(root, &text("weights.table = '7=3'"));
        let why = refused(look_again(service));
        assert!(
            why.contains("memtide.toml:2:17: table: node 7 does not exist"),
            "{why}"
        );
        let wrong = text("weights.table = '0=3'\nmetrics.file = '/nowhere/x'");
        configure(root, &wrong);
        refused(look_again(service));
        assert_eq!(reads(), "0=7,1=7,2=1");
        // Another run has it, too.
        configure(
            root,
            "tier.source = \"hint-faults\"\ntier.window = \"6s\"\nweights.table = '0=3'",
        );
        assert!(matches!(look_again(service), Looked::Another(..)));
        assert!(reads().starts_with("0=3,"), "{}", reads());
        configure(root, &text(""));
        look_again(service);
        assert_eq!(reads(), found);
    });
}

/// A client is connected all the while: the socket is not touched.
#[test]
fn a_group_that_has_gone_disturbs_no_reload_of_something_else() {
    with_service("control.group = \"watch\"", |root, service| {
        let mut client = watching(service);
        write(root, "etc/group", "");
        configure(
            root,
            "control.group = \"watch\"\nmetrics.listen = \"127.0.0.1:0\"",
        );
        let looked = look_again(service);
        assert!(matches!(looked, Looked::Taken(changes) if changes.len() == 1));
        assert_eq!(
            service.figures,
            Some(service.in_force.settings.metrics.clone())
        );
        service.control.tell(Default::default);
        client.next().unwrap();
    });
}

#[test]
fn a_group_that_is_not_there_is_refused_and_the_old_socket_answers() {
    with_service("metrics.listen = \"127.0.0.1:0\"", |root, service| {
        let mut client = watching(service);
        configure(root, "control.group = \"wacht\"");
        let why = refused(look_again(service));
        assert!(
            why.contains("memtide.toml:1:17: group wacht: not in "),
            "{why}"
        );
        // The figures are back, too.
        assert_eq!(
            service.figures,
            Some(service.in_force.settings.metrics.clone())
        );
        service.control.tell(Default::default);
        client.next().unwrap();
    });
}

#[test]
fn a_refused_reload_leaves_the_time_of_the_one_in_force() {
    with_service("", |_, service| {
        let asked = service.control.reloading();
        service.reloaded(asked, Err("wrong".to_owned()));
        let refused = Loaded {
            successful: false,
            ..loaded(UNIX_EPOCH)
        };
        assert_eq!(service.loaded, refused);
        let asked = service.control.reloading();
        service.reloaded(asked, Ok(Vec::new()));
        assert!(service.loaded.successful && service.loaded.taken > refused.taken);
    });
}

/// Before the run ends that is there.
#[test]
fn a_source_that_is_not_there_is_refused_and_nothing_is_said_to_be_taken() {
    with_service("", |root, service| {
        configure(root, "tier.source = \"page-table\"");
        let why = refused(look_again(service));
        assert!(why.starts_with("page-table scan: "), "{why}");
        // What is held by the run itself is had again.
        configure(root, "tier.source = \"hint-faults\"");
        let looked = look_again(service);
        assert!(matches!(looked, Looked::Another(..)));
    });
}

/// Neither is the address nor the file an option of the service.
#[test]
fn metrics_that_cannot_be_had_are_named_as_in_the_file() {
    with_service("", |root, service| {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        configure(root, &format!("[metrics]\nlisten = '{address}'"));
        let why = refused(look_again(service));
        let place = format!("memtide.toml:2:10: listen {address}: ");
        assert!(why.contains(&place), "{why}");
        configure(root, "[metrics]\nfile = '/nowhere/memtide.prom'");
        let why = refused(look_again(service));
        let place = "memtide.toml:2:8: file: cannot write /nowhere/memtide.prom: ";
        assert!(why.contains(place), "{why}");
        assert_eq!(service.figures, Some(MetricsArgs::default()));
    });
}

/// Nothing of a configuration that is refused stays, not even what could be had of it.
#[test]
fn a_refused_reload_leaves_no_metrics_of_its_own() {
    with_service("", |root, service| {
        let socket = root.join("metrics.sock");
        let good = format!("[metrics]\nsocket = {socket:?}\n");
        configure(root, &format!("{good}file = '/nowhere/memtide.prom'"));
        refused(look_again(service));
        assert!(!socket.exists());
        configure(root, &good);
        assert!(matches!(look_again(service), Looked::Taken(_)));
        assert!(socket.exists());
        let elsewhere = root.join("elsewhere.sock");
        configure(
            root,
            &format!("[metrics]\nsocket = {elsewhere:?}\nfile = '/nowhere/x'"),
        );
        refused(look_again(service));
        assert!(socket.exists() && !elsewhere.exists());
    });
}

#[test]
fn a_node_that_came_needs_another_run() {
    with_service("tier.source = \"hint-faults\"", |_, service| {
        assert!(matches!(look_again(service), Looked::Taken(changes) if changes.is_empty()));
        let less = Running {
            tiers: "0-1".to_owned(),
            ..running(service)
        };
        let Looked::Another(_, changes) = service.look_again(&less) else {
            panic!("the same run");
        };
        let [change] = &changes[..] else {
            panic!("{changes:?}");
        };
        assert!(
            change.starts_with("the nodes were 0-1, are 0-1/2"),
            "{change}"
        );
    });
}

/// The old place cannot be had again when the run by the new configuration did not begin.
#[test]
fn what_cannot_be_had_again_is_left_out() {
    with_service("control.group = \"watch\"", |root, service| {
        let old = service.in_force.clone();
        configure(root, "");
        assert!(matches!(look_again(service), Looked::Taken(_)));
        write(root, "etc/group", "");
        service.in_force = old;
        service.have_as_before();
        assert!(Client::connect(&service.context.root).is_err());
        // The next reload tries again.
        let own = rustix::process::getegid().as_raw();
        write(root, "etc/group", &format!("watch:x:{own}:\n"));
        configure(root, "control.group = \"watch\"");
        assert!(matches!(look_again(service), Looked::Taken(_)));
        Client::connect(&service.context.root).unwrap();
    });
}

/// The machine has nodes 0 to 2.
#[test]
fn weights_of_nodes_that_are_not_there_are_refused_with_their_place() {
    with_service("tier.source = \"hint-faults\"", |root, service| {
        let class = "[class.db]\nuser = \"7\"\ntier = false\nweights = ";
        configure(root, &format!("{class}\"0=3,7=1\"\n"));
        let why = refused(look_again(service));
        let wanted = "memtide.toml:4:11: weights: node 7 does not exist; the nodes are 0-2";
        assert!(why.ends_with(wanted), "{why}");
    });
}

/// For a table alone the run goes on; how classes are spread is a run's.
#[test]
fn another_rate_of_spreading_needs_another_run_where_anybody_is_spread() {
    let class = "[class.db]\nuser = \"7\"\ntier = false\nweights = \"0=3,2=1\"\n";
    let rate = "[weights]\nrate_limit = \"1GiB\"\n";
    with_service("", |root, service| {
        configure(root, rate);
        assert!(matches!(look_again(service), Looked::Taken(_)));
    });
    let spread = format!("tier.source = \"hint-faults\"\n{class}");
    with_service(&spread, |root, service| {
        configure(root, &format!("{spread}{rate}"));
        assert!(matches!(look_again(service), Looked::Another(..)));
    });
}

#[test]
fn two_names_of_one_user_tie() {
    let configuration = "[class.a]\nuser = 'x'\n[class.b]\nuser = 'y'\n";
    let (folder, context) = machine(configuration);
    let configuration = source(&context, false).read().unwrap();
    let node = NodeInput {
        id: NodeId(0),
        online: true,
        memory_bytes: 1 << 30,
        cpus: vec![0],
        distances: None,
        figures: AccessFigures::default(),
        tier: None,
    };
    let nodes = Topology::try_from(TopologyInput::new(vec![node])).unwrap();
    let fits = || fits(&context, &configuration, &nodes);
    write(folder.path(), "etc/passwd", "x:x:7:7::/:/\ny:x:8:8::/:/\n");
    fits().unwrap();
    write(folder.path(), "etc/passwd", "x:x:7:7::/:/\ny:x:7:8::/:/\n");
    let said = fits().unwrap_err().to_string();
    assert!(said.contains("memtide.toml:4:"), "{said}");
    assert!(said.contains("this class and a equally well"), "{said}");
}

/// Beside a service that runs: a dry run wants neither its socket nor its lock, nor its metrics.
#[test]
fn a_dry_run_takes_nothing_from_the_service() {
    let metrics = "[metrics]\nlisten = '127.0.0.1:0'\nfile = '/dev/null'\n";
    with_service("", |root, service| {
        configure(root, metrics);
        let dry = source(service.context, true).read().unwrap().settings;
        assert!(dry.tier.dry_run && dry.balance.dry_run);
        assert_eq!(dry.metrics, MetricsArgs::default());
        Control::begin(&dry.control, &service.context.root, Arc::default()).unwrap();
        Client::connect(&service.context.root).unwrap();
    });
}
