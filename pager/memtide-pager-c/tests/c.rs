//! C programs that use the header and the libraries, compiled with `cc`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the libraries of a test run.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().to_owned()
}

fn here(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// What a command printed; it must succeed.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}{error}");
    text
}

/// 4 MiB; page n begins with the number n.
fn file(folder: &Path) -> PathBuf {
    let path = folder.join("data.bin");
    let mut file = std::fs::File::create(&path).unwrap();
    for page in 0..1024u64 {
        let mut bytes = [0; 4096];
        bytes[..8].copy_from_slice(&page.to_ne_bytes());
        file.write_all(&bytes).unwrap();
    }
    file.sync_all().unwrap();
    path
}

fn compile(folder: &Path, name: &str, link: &[&str]) -> PathBuf {
    let program = folder.join(name);
    output(
        Command::new("cc")
            .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-g"])
            .arg("-I")
            .arg(here("include"))
            .arg(here("tests/programs/use.c"))
            .args(link)
            .arg("-o")
            .arg(&program),
    );
    program
}

fn runs(program: &Path, folder: &Path) {
    let text = output(Command::new(program).arg(file(folder)));
    // As the structs of src/sys/ are laid out on machines of 64 bits: 8 + 2 * 8 +
    // 4 * 4 + 8 + 2 * 4 bytes, 21 counters, 4 words.
    assert!(
        text.starts_with("options 56, counters 168, source 32\n"),
        "{text}"
    );
    assert!(text.ends_with("all right\n"), "{text}");
}

#[test]
fn a_c_program_with_the_shared_library() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = built();
    let search = format!("-L{}", libraries.display());
    let run_path = format!("-Wl,-rpath,{}", libraries.display());
    let program = compile(
        folder.path(),
        "shared",
        &[&search, &run_path, "-lmemtide_pager_c"],
    );
    runs(&program, folder.path());
}

#[test]
fn a_c_program_with_the_static_library() {
    let folder = tempfile::tempdir().unwrap();
    let library = built().join("libmemtide_pager_c.a");
    let library = library.to_str().unwrap();
    let program = compile(
        folder.path(),
        "static",
        &[library, "-lpthread", "-ldl", "-lm"],
    );
    runs(&program, folder.path());
}

/// What the library exports is what the header declares.
#[test]
fn every_function_of_the_header_is_there() {
    let header = std::fs::read_to_string(here("include/memtide_pager.h")).unwrap();
    let mut declared: Vec<&str> = header
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(')
        .filter_map(|word| word.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("memtide_"))
        .collect();
    declared.sort_unstable();
    declared.dedup();
    let mut defined = Vec::new();
    for entry in std::fs::read_dir(here("src/sys")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split("extern \"C\" fn memtide_").skip(1) {
            defined.push(format!("memtide_{}", part.split('(').next().unwrap()));
        }
    }
    defined.sort_unstable();
    assert_eq!(declared, defined);
}
