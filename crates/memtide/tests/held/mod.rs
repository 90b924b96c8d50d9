//! A program with a pager that is held while tests look at it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `memtide pager` with these arguments, and with the library that cargo built.
pub fn memtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command
        .arg("pager")
        .args(arguments)
        .env_remove("MEMTIDE_ROOT");
    // Where cargo put what this test was built with.
    let own = std::env::current_exe().unwrap();
    let library = own.with_file_name("libmemtide_pager_preload.so");
    command.env("MEMTIDE_PAGER_LIBRARY", library);
    command
}

/// What it printed; it must have ended well.
pub fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    text
}

/// A file of 16 MiB that can be checked.
pub fn made() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.bin");
    let made = memtide(&["--make", path.to_str().unwrap(), "--size", "16MiB"]).output();
    let text = stdout(&made.expect("the command was just built"));
    assert_eq!(text, format!("{}: 16.0 MiB written\n", path.display()));
    (folder, path)
}

/// A program that does what its first argument says, says so, and waits for the end of
/// its input.
const HOLDER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void hold(const char *what) {
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d\n", what, (int)getpid());
    /* Where Yama lets parents look at children only. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (write(1, line, length) != length) _exit(9);
    while (read(0, line, 1) > 0) {}
}
static unsigned char *at;
static long bytes;
static void look(int times) {
    unsigned long sum = 0;
    while (times-- > 0) for (long i = 0; i < bytes; i += 4096) sum += at[i];
    if (sum == 1) puts("");
}
int main(int n, char **v) {
    if (n > 2) {
        struct stat s;
        int f = open(v[2], O_RDONLY);
        fstat(f, &s);
        at = mmap(0, bytes = s.st_size, PROT_READ, MAP_PRIVATE, f, 0);
        look(3);
    } else {
        int f = memfd_create("memtide-pager", 0);
        if (ftruncate(f, 1 << 14)) return 9;
        at = mmap(0, 1 << 14, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    }
    if (!strcmp(v[1], "family")) {
        if (!fork()) { look(1); hold("child"); exit(0); }
        if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) { hold("copy"); _exit(0); }
    } else if (!strcmp(v[1], "vfork")) {
        if (!vfork()) { hold("child"); _exit(0); }
        return 0;
    } else if (!strcmp(v[1], "exec")) {
        execl("/bin/sh", "sh", "-c", "echo exec $$; read line; exit 0", NULL);
    } else if (!strcmp(v[1], "garbage")) {
        memset(at, 0x1b, 1 << 14);
    }
    hold(v[1]);
    while (wait(0) > 0) {}
    return 0;
}
"#;

/// The program, held; it ends when this does.
pub struct Held(pub std::process::Child);

impl Held {
    /// Starts `command`, and waits until `lines` of its processes hold. Returns their
    /// words and numbers.
    pub fn start(command: &mut Command, lines: usize) -> (Held, Vec<(String, u32)>) {
        use std::io::BufRead;
        use std::process::Stdio;
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let told = output.lines().take(lines).map(|line| {
            let line = line.unwrap();
            let (word, pid) = line.split_once(' ').unwrap();
            (word.to_owned(), pid.parse().unwrap())
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        assert_eq!(told.len(), lines);
        (Held(child), told)
    }

    /// Lets it end.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Compiles the program.
pub fn holder(folder: &Path) -> PathBuf {
    let source = folder.join("holder.c");
    std::fs::write(&source, HOLDER).unwrap();
    let program = folder.join("holder");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-o"]);
    let compiled = compiler.arg(&program).arg(&source).status();
    assert!(
        compiled
            .expect("a C compiler, as README.md asks for")
            .success()
    );
    program
}

/// The program under the pager, with a quarter of the file as its budget.
pub fn paged(program: &Path, mode: &str, file: &Path, stats: &Path) -> Command {
    let mut command = memtide(&["run", "--files", "*.bin", "--budget", "4MiB"]);
    command.arg(format!("--stats={}", stats.display()));
    command.arg(program).arg(mode).arg(file);
    command
}
