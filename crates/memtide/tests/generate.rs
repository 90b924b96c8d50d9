//! `memtide generate`: what packages bring beside the program.

use std::path::Path;
use std::process::{Command, Output};

fn generate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtide"))
        .arg("generate")
        .args(arguments)
        .output()
        .expect("the command was just built")
}

#[test]
fn every_command_has_a_man_page_that_names_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("man1");
    let output = generate(&["man", man.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = |name: &str| std::fs::read_to_string(man.join(name)).unwrap();
    assert!(page("memtide.1").contains("memtide\\-tier(1)"));
    assert!(page("memtide-tier.1").contains("\\-\\-dry\\-run"));
    assert!(page("memtide-sim-run.1").contains("\\-\\-report"));
    let hidden = ["memtide-pager-worker.1", "memtide-help.1"];
    assert!(hidden.iter().all(|name| !man.join(name).exists()));
}

#[test]
fn shells_get_completions() {
    for (shell, part) in [
        ("bash", "complete -F _memtide"),
        ("zsh", "#compdef memtide"),
        ("fish", "complete -c memtide"),
    ] {
        let output = generate(&["completion", shell]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(part), "{shell}: {text}");
    }
}

#[test]
fn the_same_pages_each_time() {
    let pages = || {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            generate(&["man", folder.path().to_str().unwrap()])
                .status
                .success()
        );
        let read = |path: &Path| std::fs::read(path).unwrap();
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut all: Vec<_> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), read(&entry.path())))
            .collect();
        all.sort();
        all
    };
    assert_eq!(pages(), pages());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = file.path().join("man1");
    let output = generate(&["man", inside.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains(": man pages cannot be written there"),
        "{error}"
    );
}
