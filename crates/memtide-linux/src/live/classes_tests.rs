//! Classes on a tree of cgroups in a folder.

use super::*;
use memtide_core::units::Millis;
use memtide_loop::options::{ClassOptions, User};
use std::cell::Cell;

struct Machine {
    _folder: tempfile::TempDir,
    root: Root,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let machine = Machine {
            _folder: folder,
            root,
        };
        let mounts = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        machine.write("proc/self/mountinfo", mounts);
        machine.group("", "1\n", None);
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A cgroup with these processes and so many anonymous bytes on node 0.
    fn group(&self, path: &str, pids: &str, bytes: Option<u64>) {
        let folder = format!("sys/fs/cgroup{path}");
        self.write(&format!("{folder}/cgroup.controllers"), "memory\n");
        self.write(&format!("{folder}/cgroup.procs"), pids);
        if let Some(bytes) = bytes {
            let stat = format!(
                "anon N0={bytes} N1=7\nfile N0=999 N1=0\nslab_reclaimable N0=5 N1=5\n\
                 inactive_anon N0=0 N1=7\nactive_anon N0={bytes} N1=0\n"
            );
            self.write(&format!("{folder}/memory.numa_stat"), &stat);
        }
    }

    fn classes(&self, classes: &[&str]) -> Classes {
        let class = |(n, text): (usize, &&str)| {
            (
                format!("{n}"),
                toml::from_str::<ClassOptions>(text).unwrap(),
            )
        };
        let classes = classes.iter().enumerate().map(class).collect();
        let user = |user: &User| user.number();
        let rules = Rules::new(&classes, "/sys/fs/cgroup", user);
        let mut classes = Classes::new(self.root.clone(), rules);
        classes.thread_time = || Duration::ZERO;
        classes
    }

    fn used(&self, classes: &[&str]) -> Vec<Option<u64>> {
        let mut used = vec![Some(77)];
        let mut classes = self.classes(classes);
        classes.used(&[NodeId(0)], &mut used).unwrap();
        used
    }

    /// A process of this user that runs this program.
    fn process(&self, pid: u32, user: u32, executable: &str) {
        let folder = format!("proc/{pid}");
        let zeros = "0 ".repeat(17);
        let stat = format!("{pid} (x) S 1 {zeros}5 4096 {zeros}{zeros}\n");
        self.write(&format!("{folder}/stat"), &stat);
        self.write(
            &format!("{folder}/status"),
            &format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n"),
        );
        let link = self.root.path(format!("{folder}/exe"));
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(executable, link).unwrap();
    }
}

/// The classes of processes of these pids.
fn assigned<const N: usize>(classes: &mut Classes, pids: [u32; N]) -> [Option<u32>; N] {
    let mut seen = pids.map(|pid| ProcessSeen {
        process: ProcessId {
            pid,
            start_ticks: 5,
        },
        parent: 1,
        born: Millis(0),
        ticks: 0,
        faults: 0,
        class: Some(ClassId(99)),
    });
    classes.assign(&mut seen).unwrap();
    seen.map(|seen| seen.class.map(|class| class.0))
}

#[test]
fn a_process_belongs_to_the_deepest_class() {
    let machine = Machine::new();
    machine.group("/a", "10\n", None);
    machine.group("/a/b", "20\n", None);
    machine.group("/a/b/c", "30\n", None);
    machine.group("/ab", "40\n", None);
    let mut classes = machine.classes(&[
        "cgroup = '/sys/fs/cgroup/a/b'",
        "cgroup = '/a'",
        "cgroup = '/gone'",
    ]);
    assert_eq!(
        assigned(&mut classes, [10, 20, 30, 40]),
        [Some(1), Some(0), Some(0), None]
    );
    // It moves.
    machine.group("/ab", "", None);
    machine.group("/a", "10\n40\n", None);
    assert_eq!(assigned(&mut classes, [40, 10]), [Some(1), Some(1)]);
}

#[test]
fn patterns_and_units_are_found_in_the_tree() {
    let machine = Machine::new();
    machine.group("/kube/pod1", "10\n", None);
    machine.group("/kube/pod1/box", "11\n", None);
    machine.group("/kube/other", "12\n", None);
    machine.group("/system.slice", "13\n", None);
    machine.group("/system.slice/r.service", "14\n", None);
    let mut classes = machine.classes(&["cgroup = '/kube/pod*'", "unit = 'r.service'"]);
    assert_eq!(
        assigned(&mut classes, [1, 10, 11, 12, 13, 14]),
        [None, Some(0), Some(0), None, None, Some(1)]
    );
}

/// As users may make them: with a path that the kernel takes from nobody.
#[test]
fn a_cgroup_that_cannot_be_read_ends_nothing() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let machine = Machine::new();
    machine.group("/a.slice", "10\n", None);
    machine.group("/a.slice/wrong", "x\n", None);
    machine.group("/a.slice/wrong/below", "11\n", None);
    machine.group("/a.slice/z", "12\n", Some(8));
    let folder = OFlags::DIRECTORY | OFlags::RDONLY;
    let top = machine.root.path("sys/fs/cgroup/a.slice");
    let mut at = openat(CWD, &top, folder, Mode::empty()).unwrap();
    for _ in 0..20 {
        let name = "n".repeat(250);
        mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = openat(&at, &name, folder, Mode::empty()).unwrap();
    }
    for class in ["unit = 'a.slice'", "cgroup = '/**'"] {
        let mut classes = machine.classes(&[class]);
        assert_eq!(
            assigned(&mut classes, [10, 11, 12]),
            [Some(0), None, Some(0)],
            "{class}"
        );
    }
}

#[test]
fn what_a_walk_leaves_out_is_asked_for() {
    let machine = Machine::new();
    machine.group("/s.slice/a.service", "10\n", None);
    for n in 0..20 {
        machine.group(&format!("/s.slice/a.service/{n}"), "", None);
    }
    machine.group("/s.slice/b.service", "11\n", None);
    machine.group("/s.slice/b.service/deep", "12\n", None);
    machine.process(12, 7, "/x");
    machine.write("proc/12/cgroup", "0::/s.slice/b.service/deep\n");
    let mut classes = machine.classes(&["unit = 'b.service'", "unit = 'a.service'"]);
    assert!(classes.walk().unwrap().1);
    // The root, a slice, two services, and some of what is below.
    classes.most_cgroups = 10;
    let (members, whole) = classes.walk().unwrap();
    assert!(!whole && members.contains_key(&10) && members.contains_key(&11));
    classes.most_cgroups = 4;
    assert!(!classes.walk().unwrap().0.contains_key(&12));
    assert_eq!(
        assigned(&mut classes, [10, 11, 12, 13]),
        [Some(1), Some(0), Some(0), None]
    );
}

thread_local! {
    static TIME: Cell<u64> = const { Cell::new(0) };
}

/// Each walk costs 7 ms: two times of three none is made.
fn dear() -> Duration {
    Duration::from_millis(TIME.replace(TIME.get() + 7))
}

#[test]
fn where_walks_are_dear_only_processes_that_came_are_asked() {
    let machine = Machine::new();
    let move_to = |pid: u32, group: &str| {
        machine.group(group, &format!("{pid}\n"), None);
        machine.process(pid, 7, "/x");
        machine.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
    };
    machine.group("/pods", "", None);
    machine.group("/others", "", None);
    move_to(10, "/pods/a");
    let mut classes = machine.classes(&["cgroup = '/pods/*'", "cgroup = '/others'"]);
    classes.thread_time = dear;
    // A walk, and two times without one.
    for _ in 0..3 {
        assert_eq!(assigned(&mut classes, [10]), [Some(0)]);
    }
    assert_eq!(assigned(&mut classes, [10]), [Some(0)]);
    machine.group("/pods/a", "", None);
    move_to(10, "/others");
    move_to(11, "/pods/a/below");
    // One moved, which is found out later; one came, to where a walk was.
    for _ in 0..2 {
        assert_eq!(assigned(&mut classes, [10, 11]), [Some(0), Some(0)]);
    }
    assert_eq!(assigned(&mut classes, [10, 11]), [Some(1), Some(0)]);
    // To where no walk was, from where its parent was.
    move_to(12, "/others");
    let mut of = || assigned(&mut classes, [10, 11, 12]);
    assert_eq!(of(), [Some(1), Some(0), Some(1)]);
    machine.group("/others", "", None);
    move_to(12, "/pods/b");
    move_to(10, "/pods/a");
    assert_eq!(of(), [Some(1), Some(0), Some(0)]);
    assert_eq!(of(), [Some(0), Some(0), Some(0)]);
}

/// The kernel says only that others are outside of the namespace; a walk finds them.
#[test]
fn in_a_container_what_a_walk_found_holds_until_the_next() {
    let machine = Machine::new();
    let move_to = |pid: u32, group: &str| {
        machine.group(group, &format!("{pid}\n"), None);
        machine.process(pid, 7, "/x");
        machine.write(&format!("proc/{pid}/cgroup"), "0::/../..\n");
    };
    machine.group("/pods", "", None);
    machine.group("/others", "", None);
    move_to(10, "/pods/a");
    let mut classes = machine.classes(&["cgroup = '/pods/*'"]);
    classes.thread_time = dear;
    for _ in 0..4 {
        assert_eq!(assigned(&mut classes, [10]), [Some(0)]);
    }
    // One came since the last walk, which brings the next one on. Whoever begins a container moves it later.
    move_to(11, "/others");
    assert_eq!(assigned(&mut classes, [10, 11]), [Some(0), None]);
    machine.group("/others", "", None);
    move_to(11, "/pods/b");
    for _ in 0..3 {
        assert_eq!(assigned(&mut classes, [10, 11]), [Some(0); 2]);
    }
    // What one walk misses may have moved meanwhile; what two miss is elsewhere.
    machine.group("/pods/a", "", None);
    machine.group("/others", "10\n", None);
    for _ in 0..3 {
        assert_eq!(assigned(&mut classes, [10, 11]), [Some(0); 2]);
    }
    assert_eq!(assigned(&mut classes, [10, 11]), [None, Some(0)]);
}

#[test]
fn a_unit_may_be_above_the_cgroup() {
    let machine = Machine::new();
    machine.group("/system.slice/r.service", "10\n", None);
    machine.group("/system.slice/r.service/workers", "11\n", Some(8));
    machine.group("/system.slice/r.service/workers/x", "12\n", None);
    let both = "unit = 'r.service'\ncgroup = '/system.slice/r.service/workers'";
    let mut classes = machine.classes(&[both]);
    assert_eq!(
        assigned(&mut classes, [10, 11, 12]),
        [None, Some(0), Some(0)]
    );
    assert_eq!(machine.used(&[both]), [Some(8)]);
}

#[test]
fn what_is_not_known_of_a_class_in_part_stays_with_the_one_above() {
    let machine = Machine::new();
    machine.group("/a", "", Some(1000));
    machine.group("/a/x", "", Some(700));
    machine.group("/a/x/b", "", Some(600));
    machine.group("/a/x/b/d", "", Some(50));
    machine.group("/a/y", "", Some(100));
    machine.group("/a/y/b", "", None);
    let classes = ["cgroup = '/a'", "cgroup = '/a/*/b'", "cgroup = '/a/x/b/d'"];
    assert_eq!(machine.used(&classes), [Some(950), None, Some(50)]);
}

#[test]
fn a_class_lies_within_those_above_all_its_cgroups() {
    let machine = Machine::new();
    for path in ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/b"] {
        machine.group(path, "", Some(10));
    }
    let within = |classes: &[&str]| {
        let mut classes = machine.classes(classes);
        classes.used(&[NodeId(0)], &mut Vec::new()).unwrap();
        let nesting = classes.nesting();
        let ids = (0..classes.rules.len() as u32).map(ClassId);
        let within = ids.map(|class| nesting.within(class).map(|class| class.0));
        within.collect::<Vec<Option<u32>>>()
    };
    let all = ["/a/b/c", "/a", "/a/d", "/gone", "/a/b"].map(|path| format!("cgroup = '{path}'"));
    assert_eq!(
        within(&all.each_ref().map(String::as_str)),
        [Some(4), None, Some(1), None, Some(1)]
    );
    // One of its cgroups is not below the other class.
    assert_eq!(within(&["cgroup = '/a'", "cgroup = '/*/b'"]), [None, None]);
    assert_eq!(
        within(&["cgroup = '/'", "cgroup = '/*/b'"]),
        [None, Some(0)]
    );
    assert_eq!(
        within(&["cgroup = ['/a', '/e']", "cgroup = '/*/b'"]),
        [None, Some(0)]
    );
}

#[test]
fn users_and_programs_are_read_again_after_a_while() {
    let machine = Machine::new();
    machine.process(10, 7, "/usr/bin/redis (deleted)");
    machine.process(11, 7, "/usr/bin/sh");
    machine.process(12, 8, "/usr/bin/redis");
    let mut classes = machine.classes(&["user = '7'\nexecutable = '/usr/bin/*'", "user = '8'"]);
    let of = |classes: &mut Classes| assigned(classes, [10, 11, 12, 13]);
    assert_eq!(of(&mut classes), [Some(0), Some(0), Some(1), None]);
    machine.process(11, 7, "/opt/sh");
    machine.process(12, 9, "/usr/bin/redis");
    let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
    assert_eq!(times.last(), Some([Some(0), None, None, None]));
}

#[test]
fn what_classes_below_use_is_taken_off() {
    let machine = Machine::new();
    machine.group("/a", "", Some(1000));
    machine.group("/a/b", "", Some(600));
    machine.group("/a/b/c", "", Some(100));
    machine.group("/a/d", "", Some(50));
    assert_eq!(machine.used(&["cgroup = '/a'"]), [Some(1000)]);
    let all = ["/a/b/c", "/a", "/a/d", "/gone"].map(|path| format!("cgroup = '{path}'"));
    assert_eq!(
        machine.used(&all.each_ref().map(String::as_str)),
        [Some(100), Some(850), Some(50), Some(0)]
    );
    let all = ["/a/b", "/a/b/c", "/a"].map(|path| format!("cgroup = '{path}'"));
    assert_eq!(
        machine.used(&all.each_ref().map(String::as_str)),
        [Some(500), Some(100), Some(400)]
    );
    // Both below; a user's class has what is not known, and takes nothing off.
    assert_eq!(
        machine.used(&[
            "cgroup = '/a/*'",
            "cgroup = '/a'",
            "cgroup = '/a/b'\nuser = '7'"
        ]),
        [Some(650), Some(350), None]
    );
    // Who has the priority has all that is below.
    assert_eq!(
        machine.used(&["cgroup = '/a/b'", "cgroup = '/a'\npriority = 1"]),
        [Some(0), Some(1000)]
    );
}

/// As both drivers of a kubelet make them.
#[test]
fn pods_are_in_classes_by_their_quality_and_what_they_dropped() {
    let machine = Machine::new();
    let slice = "/kubepods.slice/kubepods-burstable.slice";
    machine.group("/kubepods.slice", "", None);
    machine.group(slice, "", None);
    let pod = format!("{slice}/kubepods-burstable-pod1_a.slice");
    machine.group(&pod, "", Some(100));
    machine.group(&format!("{pod}/cri-containerd-0.scope"), "10\n", Some(90));
    machine.group("/kubepods", "", None);
    machine.group("/kubepods/besteffort", "", None);
    machine.group("/kubepods/besteffort/pod2-b", "", None);
    machine.group("/kubepods/besteffort/pod2-b/0123", "11\n", None);
    machine.group("/kubepods/pod3-c", "12\n", None);
    let mut classes = machine.classes(&[
        "pod_qos = 'burstable'",
        "pod_qos = ['besteffort', 'guaranteed']",
        "pod_choice = '/pods'",
        "pod_choice = '/pods'\npod_qos = 'guaranteed'",
    ]);
    let of = |classes: &mut Classes| assigned(classes, [10, 11, 12, 13]);
    assert_eq!(of(&mut classes), [Some(0), Some(1), Some(1), None]);
    let way = "volumes/kubernetes.io~empty-dir/memtide/class";
    machine.write(&format!("pods/1-a/{way}"), "2\n");
    // Only the best may choose this one, and nobody that one.
    machine.write("pods/2-b", "3");
    machine.write("pods/3-c", "1\n");
    let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
    assert_eq!(times.last(), Some([Some(2), Some(1), Some(1), None]));
    let refused = classes.refused_choices();
    let why: Vec<_> = refused
        .iter()
        .map(|(pod, why)| format!("{pod}: {why}"))
        .collect();
    let why: std::collections::BTreeSet<_> = why.iter().map(String::as_str).collect();
    assert_eq!(
        why,
        ["2-b: it may not choose 3", "3-c: it may not choose 1"].into()
    );
    machine.write("pods/3-c", "3\n");
    let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
    assert_eq!(times.last(), Some([Some(2), Some(1), Some(3), None]));
    // What the pod uses is the class's that it chose; each is told once.
    let mut used = Vec::new();
    classes.used(&[NodeId(0)], &mut used).unwrap();
    assert_eq!(used[..3], [Some(0), None, Some(100)]);
    machine.write("pods/3-c", "..");
    let times = (1..=LOOK_AGAIN).map(|_| of(&mut classes));
    assert_eq!(times.last(), Some([Some(2), Some(1), Some(1), None]));
    assert_eq!(classes.refused_choices(), []);
}

#[test]
fn the_cgroup_that_stalls_longest_counts() {
    let machine = Machine::new();
    let stall = |path: &str, total: u64| {
        let text = format!("some avg10=0.00 total={total}\nfull avg10=0.00 total=7\n");
        machine.write(&format!("sys/fs/cgroup{path}/memory.pressure"), &text);
    };
    for path in ["/a", "/a/b", "/c", "/c/1", "/c/2", "/d"] {
        machine.group(path, "", None);
    }
    stall("/a", 1000);
    stall("/a/b", 500);
    stall("/c/1", 10);
    let mut classes = machine.classes(&[
        "cgroup = '/a'",
        "cgroup = '/c/*'",
        "cgroup = '/d'",
        "cgroup = '/a/b'\nuser = '7'",
    ]);
    let stalls = |classes: &mut Classes| classes.stalls().unwrap();
    assert_eq!(stalls(&mut classes), [Some(0), Some(0), None, None]);
    stall("/a", 1600);
    stall("/c/1", 40);
    // It began just now, and tells from now on.
    stall("/c/2", 9000);
    assert_eq!(stalls(&mut classes), [Some(600), Some(30), None, None]);
    stall("/c/1", 50);
    stall("/c/2", 9100);
    assert_eq!(stalls(&mut classes), [Some(600), Some(130), None, None]);
    // A cgroup of that name began anew; another cannot be read.
    stall("/c/2", 3);
    machine.write("sys/fs/cgroup/a/memory.pressure", "nothing\n");
    assert_eq!(stalls(&mut classes), [None, Some(130), None, None]);
}

#[test]
fn of_many_cgroups_side_by_side_none_is_read_while_nothing_stalls() {
    let machine = Machine::new();
    let stall = |path: &str, text: &str| {
        machine.write(&format!("sys/fs/cgroup{path}/memory.pressure"), text);
    };
    let total = |path: &str, total: u64| {
        stall(path, &format!("some total={total}\nfull total=0\n"));
    };
    machine.group("/pods", "", None);
    let pods = ["/pods/a1", "/pods/a2", "/pods/a3", "/pods/b"];
    for path in pods {
        machine.group(path, "", None);
        total(path, 10);
    }
    let mut classes = machine.classes(&["cgroup = '/pods/a*'", "cgroup = '/pods/b'"]);
    let stalls = |classes: &mut Classes| classes.stalls().unwrap();
    // Nobody says what stalls around them.
    assert_eq!(stalls(&mut classes), [Some(0), Some(0)]);
    total("/pods/b", 25);
    assert_eq!(stalls(&mut classes), [Some(0), Some(15)]);
    total("/pods", 100);
    assert_eq!(stalls(&mut classes), [Some(0), Some(15)]);
    // Nothing stalls: what their files say is not read, and is not lost.
    pods.iter().for_each(|path| stall(path, "nothing\n"));
    assert_eq!(stalls(&mut classes), [Some(0), Some(15)]);
    total("/pods/a1", 30);
    total("/pods/b", 26);
    assert_eq!(stalls(&mut classes), [Some(0), Some(15)]);
    total("/pods", 101);
    // Of those that cannot be read nothing is known.
    assert_eq!(stalls(&mut classes), [Some(20), Some(16)]);
    // One that comes is read, whatever stalls.
    total("/pods/a2", 7);
    assert_eq!(stalls(&mut classes), [Some(20), Some(16)]);
    total("/pods/a2", 47);
    total("/pods", 150);
    assert_eq!(stalls(&mut classes), [Some(60), Some(16)]);
}

#[test]
fn without_the_memory_controller_nothing_is_known() {
    let machine = Machine::new();
    machine.group("/a", "", None);
    machine.group("/b", "", Some(8));
    assert_eq!(
        machine.used(&["cgroup = '/a'", "cgroup = '/b'"]),
        [None, Some(8)]
    );
}
