//! The system calls of the tracer. All `unsafe` of it stands here.
//!
//! The filter and the registers are those of the architecture that this is built for: nothing here has a
//! number of its own.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// The calls that may change something outside of the process that makes them, or tell somebody something.
/// Which of them do is told by their arguments.
const CALLS: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_creat,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_bind,
    libc::SYS_sendto,
    libc::SYS_sched_setaffinity,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_process_madvise,
];

/// Whom signals are passed on to; 0 if nobody.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Why a traced thread stands, or what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It has ended: its exit status, or what the shell makes of a signal.
    Ended(i32),
    /// It is about to make a call of [`CALLS`].
    Call,
    /// A thread or a program has begun.
    Other,
    /// A signal is on its way to it.
    Signal(i32),
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has `command` begin traced by the thread that spawns it, and stop before each call of [`CALLS`].
pub fn trace(command: &mut Command) {
    // Of struct seccomp_data: the call's number.
    const NUMBER: u32 = 0;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, same: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: same as u8,
        jf: 0,
        k,
    };
    // Each comparison leaves out those after it and the answer that lets the call pass.
    let compare = |(at, &call): (usize, &libc::c_long)| step(EQUAL, CALLS.len() - at, call as u32);
    let mut steps = vec![step(LOAD, 0, NUMBER)];
    steps.extend(CALLS.iter().enumerate().map(compare));
    steps.push(step(ANSWER, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(ANSWER, 0, libc::SECCOMP_RET_TRACE));
    let install = move || {
        let program = libc::sock_fprog {
            len: steps.len() as libc::c_ushort,
            filter: steps.as_mut_ptr(),
        };
        let filter = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        // SAFETY: the first takes numbers; of the second the program and its steps outlive the call.
        unsafe {
            check(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0))?;
            check(libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program).into())?;
        }
        Ok(())
    };
    // SAFETY: two system calls, no allocation and no lock, in the child before it runs.
    unsafe { command.pre_exec(install) };
}

/// Has the kernel tell of calls, threads and children of the traced `program`, which stands, and kill it
/// with this process.
///
/// # Errors
/// The kernel's.
pub fn follow(program: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: numbers only.
    check(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, program, 0, options) }).map(drop)
}

/// Lets a standing thread go on, with a signal if that is not 0. One that is gone is none to tell of.
pub fn go_on(thread: i32, signal: i32) {
    // SAFETY: numbers only.
    unsafe { libc::ptrace(libc::PTRACE_CONT, thread, 0, signal) };
}

/// The number and the arguments of the call that `thread` is about to make.
///
/// # Errors
/// The kernel's, as when it was killed meanwhile.
pub fn call(thread: i32) -> io::Result<(libc::c_long, [u64; 6])> {
    // struct ptrace_syscall_info: three words of the place, the number, the arguments, the filter's data.
    let mut words = [0_u64; 11];
    let size = size_of_val(&words);
    // SAFETY: the kernel writes `size` bytes at most, which are there.
    check(unsafe {
        libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            thread,
            size,
            words.as_mut_ptr(),
        )
    })?;
    let [_, _, _, number, arguments @ .., _] = words;
    Ok((number as libc::c_long, arguments))
}

/// Waits for the next thread that stands or has ended; `None` when a signal came instead.
///
/// # Errors
/// The kernel's; that none is left, too.
pub fn next() -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    // SAFETY: writes one number, which outlives the call.
    let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    if thread < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    let stop = if libc::WIFEXITED(status) {
        Stop::Ended(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Stop::Ended(128 + libc::WTERMSIG(status))
    } else {
        match (status >> 16, libc::WSTOPSIG(status)) {
            (libc::PTRACE_EVENT_SECCOMP, _) => Stop::Call,
            // A thread that is traced from its beginning begins with this.
            (0, signal) if signal != libc::SIGSTOP => Stop::Signal(signal),
            _ => Stop::Other,
        }
    };
    Ok(Some((thread, stop)))
}

/// Kills a process, whatever it does.
pub fn kill(program: i32) {
    // SAFETY: numbers only.
    unsafe { libc::kill(program, libc::SIGKILL) };
}

/// Passes the signals that ask for an end or a reload on to `program` from now on; nobody is 0.
///
/// # Errors
/// The kernel's.
pub fn pass_signals_to(program: i32) -> io::Result<()> {
    PROGRAM.store(program, Ordering::SeqCst);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: a structure of numbers, for which zero is good: no flags, so that waiting ends.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pass_on as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler reads a number and makes one system call, which a handler may.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }.into())?;
    }
    Ok(())
}

extern "C" fn pass_on(signal: libc::c_int) {
    let program = PROGRAM.load(Ordering::SeqCst);
    if program > 0 {
        // SAFETY: numbers only, and a call that a handler may make.
        unsafe { libc::kill(program, signal) };
    }
}
