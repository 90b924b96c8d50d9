//! The system calls that the victim and the measurements need and no safe crate offers.
//!
//! All `unsafe` of the guest's side stands in this file. A [`Mapping`] owns its memory and is
//! touched through volatile accesses only, so nothing here hands out a reference to memory that
//! another process or the kernel may change.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Bytes of a base page; the guest is x86-64.
pub const PAGE_SIZE: usize = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE_SIZE: usize = 2 << 20;

/// A memory policy that can be set for a task or a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The system's default: local, with the balancer free to move pages.
    Default,
    /// Only the given node.
    Bind(u32),
}

impl Policy {
    /// Mode number of linux/mempolicy.h and the node mask.
    fn words(self) -> (libc::c_long, u64) {
        match self {
            Self::Default => (0, 0),
            Self::Bind(node) => (2, 1 << node),
        }
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// set_mempolicy(2) for the calling thread.
///
/// # Errors
/// The kernel's.
pub fn set_task_policy(policy: Policy) -> io::Result<()> {
    let (mode, mask) = policy.words();
    // The default takes an empty mask, which the kernel wants as a null pointer.
    let (pointer, bits) = if mask == 0 {
        (std::ptr::null(), 0)
    } else {
        (&raw const mask, 64)
    };
    // SAFETY: `pointer` is null with zero bits, or points to 64 bits that outlive the call.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) }).map(drop)
}

/// Turns the loopback interface on, which a kernel boots with off.
///
/// # Errors
/// The kernel's.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: plain numbers; the descriptor that comes is ours alone.
    let socket = unsafe {
        let socket = check(libc::c_long::from(libc::socket(
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        )))?;
        OwnedFd::from_raw_fd(socket as i32)
    };
    // SAFETY: a structure of numbers, for which zero is good.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads `request`, which outlives it.
    let set = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    check(libc::c_long::from(set)).map(drop)
}

/// What a mapping holds.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// Private anonymous memory.
    Anonymous,
    /// Shared anonymous memory, which survives fork as one object.
    Shared,
    /// A file, mapped shared and read-only.
    File(BorrowedFd<'a>),
}

/// A mapping of whole pages, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: usize,
    bytes: usize,
    writable: bool,
}

impl Mapping {
    /// Maps `bytes` (a multiple of the page size), aligned to a huge page. Pages that nobody can
    /// touch lie on both sides, so that the kernel joins it with no other mapping.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(bytes: usize, backing: Backing<'_>) -> io::Result<Self> {
        let (flags, fd, writable) = match backing {
            Backing::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, true),
            Backing::Shared => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, true),
            Backing::File(fd) => (libc::MAP_SHARED, fd.as_raw_fd(), false),
        };
        let reserved = bytes + HUGE_PAGE_SIZE + PAGE_SIZE;
        // SAFETY: a fresh reservation anywhere; nobody else knows its address.
        let address = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = (address as usize + PAGE_SIZE).next_multiple_of(HUGE_PAGE_SIZE);
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: MAP_FIXED replaces only pages of the reservation just made.
        let mapped = unsafe {
            libc::mmap(
                start as *mut _,
                bytes,
                protection,
                flags | libc::MAP_FIXED,
                fd,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start,
            bytes,
            writable,
        })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Number of base pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.bytes / PAGE_SIZE
    }

    /// mbind(2) of the whole mapping, without moving what is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_policy(&self, policy: Policy) -> io::Result<()> {
        let (mode, mask) = policy.words();
        let (pointer, bits) = if mask == 0 {
            (std::ptr::null(), 0)
        } else {
            (&raw const mask, 64)
        };
        // SAFETY: the range is ours; `pointer` as in set_task_policy.
        check(unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start,
                self.bytes,
                mode,
                pointer,
                bits,
                0,
            )
        })
        .map(drop)
    }

    /// madvise(2) of the whole mapping.
    ///
    /// # Errors
    /// The kernel's.
    pub fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        debug_assert_ne!(
            advice,
            libc::MADV_DONTNEED,
            "the mapping's contents are its owner's"
        );
        // SAFETY: the range is ours and the advice changes how memory is backed only.
        check(unsafe { libc::madvise(self.start as *mut _, self.bytes, advice) }.into()).map(drop)
    }

    /// Reads page number `page`, and writes it when the mapping is writable. `word` selects which of
    /// the page's 512 words.
    pub fn touch(&self, page: usize, word: usize) {
        assert!(page < self.pages() && word < PAGE_SIZE / 8);
        let pointer = (self.start + page * PAGE_SIZE + word * 8) as *mut u64;
        // SAFETY: inside the mapping by the assertion, aligned, and volatile because other threads
        // and processes touch the same words; the value has no meaning.
        unsafe {
            let value = pointer.read_volatile();
            if self.writable {
                pointer.write_volatile(value.wrapping_add(1));
            }
        }
    }

    /// Reads page number `page`.
    pub fn read(&self, page: usize) {
        assert!(page < self.pages());
        let pointer = (self.start + page * PAGE_SIZE) as *const u64;
        // SAFETY: inside the mapping by the assertion, aligned, volatile as in `touch`.
        unsafe { pointer.read_volatile() };
    }

    /// Writes page number `page` of a writable mapping without reading it first. A first touch that
    /// reads maps the zero page, and the kernels before 6.13 make no huge page of a huge zero page
    /// that is written to.
    pub fn write(&self, page: usize) {
        assert!(page < self.pages() && self.writable);
        let pointer = (self.start + page * PAGE_SIZE) as *mut u64;
        // SAFETY: inside a writable mapping by the assertion, aligned, volatile as in `touch`.
        unsafe { pointer.write_volatile(1) };
    }

    /// Makes the process's TLB entries go, all of them: protecting more pages than the kernel
    /// flushes one by one makes it flush everything.
    ///
    /// # Errors
    /// The kernel's.
    pub fn flush_tlb(&self) -> io::Result<()> {
        for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            // SAFETY: only for a writable scratch mapping of ours; no reference into it exists.
            check(unsafe { libc::mprotect(self.start as *mut _, self.bytes, protection) }.into())?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no reference into it exists.
        unsafe { libc::munmap(self.start as *mut _, self.bytes) };
    }
}

/// move_pages(2) as a question: the node of each page, or a negated error number.
///
/// # Errors
/// The kernel's, as when the process is gone.
pub fn query_nodes(pid: u32, addresses: &[usize]) -> io::Result<Vec<i32>> {
    let mut status = vec![i32::MIN; addresses.len()];
    // SAFETY: both arrays have the length given; with null nodes nothing moves.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    })?;
    Ok(status)
}

/// move_pages(2) of every page to one node, those of several processes too; the number of pages that
/// stayed.
///
/// # Errors
/// The kernel's.
pub fn move_pages_to(pid: u32, addresses: &[usize], node: u32) -> io::Result<usize> {
    const MPOL_MF_MOVE_ALL: libc::c_int = 4;
    let nodes = vec![node.cast_signed(); addresses.len()];
    let mut status = vec![i32::MIN; addresses.len()];
    // SAFETY: all three arrays have the length given.
    let left = check(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE_ALL,
        )
    })?;
    Ok(usize::try_from(left).unwrap_or(0))
}

/// Where a perf event's number comes from.
#[derive(Debug, Clone, Copy)]
pub enum PerfKind {
    /// PERF_TYPE_SOFTWARE: one of the kernel's own counts.
    Software = 1,
    /// PERF_TYPE_TRACEPOINT: a tracepoint's id.
    Tracepoint = 2,
}

/// perf_event_open(2) of a disabled event on the calling process, close-on-exec.
///
/// # Errors
/// The kernel's.
pub fn hold_perf_event(kind: PerfKind, config: u64) -> io::Result<OwnedFd> {
    // struct perf_event_attr as it first was, of 64 bytes: type and size, config, period, sample and
    // read format, flags (the lowest bit is `disabled`), and what is of no use here.
    const SIZE: u64 = 64;
    let mut attr = [kind as u64 | SIZE << 32, config, 0, 0, 0, 1, 0, 0];
    let (this_process, any_cpu, no_group, cloexec) = (0, -1, -1, 8);
    // SAFETY: the attributes have the size that they name and outlive the call.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_mut_ptr(),
            this_process,
            any_cpu,
            no_group,
            cloexec,
        )
    })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the call succeeded, so `fd` is open and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// fork(2) of a process that has one thread so far: the child's id, or `None` in the child.
///
/// # Errors
/// The kernel's, and [`io::ErrorKind::Other`] when threads exist already.
pub fn fork() -> io::Result<Option<i32>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("fork needs a single thread"));
    }
    // SAFETY: one thread, so no lock can be held by a thread that the child lacks.
    let child = check(unsafe { libc::fork() }.into())?;
    Ok(i32::try_from(child).ok().filter(|&child| child != 0))
}

/// Has the kernel kill this process when its parent ends.
///
/// # Errors
/// The kernel's.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: this option takes a number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }.into()).map(drop)
}

/// Gives this process the namespaces that a container has: all but those of processes and users. Its
/// cgroup becomes the root of those that it sees.
///
/// # Errors
/// The kernel's.
pub fn own_namespaces() -> io::Result<()> {
    const OWN: libc::c_int = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    // SAFETY: takes a number and touches no memory; descriptors stay shared.
    check(unsafe { libc::unshare(OWN) }.into()).map(drop)
}

/// Has the kernel answer `EINVAL` when `command`, or whatever it starts, sets the task policy
/// `MPOL_WEIGHTED_INTERLEAVE`. Takes CAP_SYS_ADMIN.
pub fn without_weighted_interleave(command: &mut Command) {
    const MODE: u32 = 6;
    // Of struct seccomp_data: the call's number, and the low half of its first argument.
    const NUMBER: u32 = 0;
    const FIRST: u32 = 16;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EINVAL.cast_unsigned();
    // `differ` is how many steps to leave out.
    let step = |code: u32, differ: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: differ,
        k,
    };
    let mut steps = [
        step(LOAD, 0, NUMBER),
        step(EQUAL, 3, libc::SYS_set_mempolicy as u32),
        step(LOAD, 0, FIRST),
        step(EQUAL, 1, MODE),
        step(ANSWER, 0, REFUSE),
        step(ANSWER, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: steps.len() as libc::c_ushort,
            filter: steps.as_mut_ptr(),
        };
        let filter = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        // SAFETY: the program and its steps outlive the call, and the kernel copies them.
        check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program) }.into())
            .map(drop)
    };
    // SAFETY: one system call, no allocation and no lock, in the child before it runs.
    unsafe { command.pre_exec(install) };
}
