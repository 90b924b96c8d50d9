//! `memtide serve` in a container, as `deploy/kubernetes.yaml` wants it.
//!
//! The capabilities, the mounts and the configuration are read from that file. [`crate::guest::contain`] does
//! a runtime's work. Each container ends with all that it had, so what is lent is put back from notes on the
//! host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use super::{FOLDER, MAIN, PATIENCE, put, until_home};
use crate::guest::contain::PROGRAM;
use crate::guest::late::within;
use crate::guest::memtide::Memtide;
use crate::guest::pace::Stretch;
use crate::guest::subject::Victim;
use crate::guest::tests::Context;
use crate::guest::tests::manners::SMALL;
use crate::guest::tests::manners::settings::Settings;

const MANIFEST: &str = include_str!("../../../../../deploy/kubernetes.yaml");
const CGROUPS: &str = "/sys/fs/cgroup";
/// Where kubelet puts a pod with some requests, and one without any.
const PODS: [&str; 2] = [
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
    "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2.slice",
];
/// Where notes outlive the container, and where figures go.
const FOLDERS: [&str; 2] = ["/run/memtide", "/metrics"];

/// What `memtide status --json` says, as far as this test looks at it.
#[derive(Deserialize)]
struct Standing {
    classes: Vec<Class>,
}

#[derive(Deserialize)]
struct Class {
    name: String,
    promoted_bytes: u64,
}

/// Pages come home, and count for the class of their pod. The next container puts back what one that was
/// killed had lent.
pub(super) fn comes_home(context: &mut Context) -> Result<()> {
    let before = Settings::now();
    let pods = Pods::create()?;
    let dram = context.dram.clone();
    let mut victim = Victim::start(SMALL, 1)?;
    for pid in victim.pids() {
        pods.take_in(0, &pid.to_string())?;
    }
    put(MAIN, &configuration())?;
    FOLDERS.iter().try_for_each(std::fs::create_dir_all)?;
    let mut service = start()?;
    until_home(&mut service, &victim.known_pages(), &dram, PATIENCE)?;
    promoted(&service)?;
    service.end(Signal::KILL)?;
    ensure!(
        Settings::now().has_notes(),
        "no notes outlived the container"
    );

    victim.change_hot_set()?;
    let mut service = start()?;
    until_home(&mut service, &victim.known_pages(), &dram, PATIENCE)?;
    ensure!(
        Path::new("/metrics/memtide.prom").exists(),
        "no figures where the example wants them"
    );
    service.end(Signal::TERM)?.clean()?;
    before.check_unchanged()?;
    drop(victim);
    drop(pods);
    std::fs::remove_dir_all(FOLDER)?;
    std::fs::remove_dir_all(FOLDERS[1])?;
    Ok(())
}

/// Starts a container with what the manifest says, in the second pod.
fn start() -> Result<Memtide> {
    let mut command = Command::new("guest");
    command.arg("contain");
    command.args(["--cgroup", &format!("{CGROUPS}/{}", PODS[1])]);
    for name in added() {
        command.args(["--keep", name]);
    }
    for mount in mounts() {
        command.args(["--mount", &mount]);
    }
    command.args(["--", "serve", "--json"]);
    Memtide::spawn(command)
}

/// The probe's command succeeds in the container, and the victim's class has got something.
fn promoted(service: &Memtide) -> Result<()> {
    let root = format!("/proc/{}/root", service.id());
    let ask = |words: &[&str]| -> Result<String> {
        let mut command = Command::new("chroot");
        let output = command
            .args([&root, PROGRAM, "status"])
            .args(words)
            .output()?;
        ensure!(output.status.success(), "the probe says {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    ask(&[])?;
    let stretch = Stretch::begin();
    loop {
        let text = ask(&["--json"])?;
        let standing: Standing = serde_json::from_str(&text).with_context(|| text.clone())?;
        let mut classes = standing.classes.iter();
        let burstable = classes.find(|class| class.name == "burstable");
        let burstable = burstable.with_context(|| format!("no class burstable: {text}"))?;
        if burstable.promoted_bytes > 0 {
            return Ok(());
        }
        within(&stretch, PATIENCE, || {
            format!("nothing of the class burstable was promoted: {text}")
        })?;
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// The capabilities that the manifest adds.
fn added() -> impl Iterator<Item = &'static str> {
    let list = MANIFEST
        .split_once("add: [")
        .and_then(|(_, rest)| rest.split_once(']'));
    list.map_or("", |(list, _)| list).split(", ")
}

/// What the manifest mounts, those for figures too, as `guest contain` takes it.
fn mounts() -> Vec<String> {
    let mut found = Vec::new();
    for line in MANIFEST.lines() {
        let Some((_, rest)) = line.split_once("mountPath: ") else {
            continue;
        };
        let path = rest.split([',', '}']).next().unwrap_or_default();
        let read_only = if rest.contains("readOnly: true") {
            ":ro"
        } else {
            ""
        };
        found.push(format!("{path}{read_only}"));
    }
    found
}

/// The configuration of the manifest, with all keys that it shows.
fn configuration() -> String {
    let block = MANIFEST.split_once("memtide.toml: |\n");
    let lines = block.map_or("", |(_, rest)| rest).lines();
    let lines = lines.take_while(|line| *line != "---");
    let keys = lines.map(|line| {
        let line = line.trim_start();
        line.strip_prefix('#')
            .filter(|key| !key.starts_with(' '))
            .unwrap_or(line)
    });
    keys.flat_map(|key| [key, "\n"]).collect()
}

/// The cgroups of pods, removed on drop.
struct Pods;

impl Pods {
    fn create() -> Result<Self> {
        let mut folders: Vec<PathBuf> = vec![CGROUPS.into()];
        folders.extend(slices());
        for folder in &folders {
            if folder != Path::new(CGROUPS) {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(folder.join("cgroup.subtree_control"), "+memory")
                .with_context(|| folder.display().to_string())?;
        }
        PODS.iter()
            .try_for_each(|pod| std::fs::create_dir(Path::new(CGROUPS).join(pod)))?;
        Ok(Self)
    }

    fn take_in(&self, pod: usize, pid: &str) -> Result<()> {
        let file = Path::new(CGROUPS).join(PODS[pod]).join("cgroup.procs");
        std::fs::write(&file, pid).with_context(|| file.display().to_string())
    }
}

/// The cgroups between the root and the pods, those above first.
fn slices() -> Vec<PathBuf> {
    let above = |pod: &str| -> Vec<PathBuf> {
        let path = Path::new(CGROUPS).join(pod);
        let above = path.ancestors().skip(1);
        let above = above.take_while(|path| *path != Path::new(CGROUPS));
        above.map(Path::to_owned).collect()
    };
    let mut all: Vec<PathBuf> = PODS.into_iter().flat_map(above).collect();
    all.sort();
    all.dedup();
    all
}

impl Drop for Pods {
    fn drop(&mut self) {
        for pod in PODS {
            let _ = std::fs::remove_dir(Path::new(CGROUPS).join(pod));
        }
        for slice in slices().iter().rev() {
            let _ = std::fs::remove_dir(slice);
        }
    }
}

#[cfg(test)]
mod units {
    use super::*;
    use crate::guest::contain::capabilities;
    use crate::guest::tests::serve::bounding_set;

    #[test]
    fn the_container_has_the_rights_of_the_unit() {
        assert_eq!(capabilities(added()).unwrap(), bounding_set().unwrap());
    }

    #[test]
    fn the_manifest_is_understood() {
        let mounts = mounts();
        for wanted in ["/etc/memtide/memtide.toml:ro", "/run/memtide", "/metrics"] {
            assert!(mounts.iter().any(|mount| mount == wanted), "{mounts:?}");
        }
        let configuration = configuration();
        assert!(
            configuration.contains("\n[class.burstable]\npod_qos = \"burstable\"\n"),
            "{configuration}"
        );
        assert_eq!(slices().len(), 3);
    }
}
