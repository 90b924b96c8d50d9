/* Random sequences of memory calls on a file, told call by call.
 *
 * usage: sequences FILE SEED STEPS
 *
 * All mappings lie in an arena at a fixed address. Each line has the call and
 * what came back; each check reads every page of the arena and prints a hash of
 * what was there, faults included. The same seed over the same bytes prints the
 * same lines on the same kernel, with or without the pager. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ARENA = 3072, FILE_PAGES = 1024 };
static char *const arena = (char *)0x100000000000;

static sigjmp_buf out;
static void on_fault(int signal) { siglongjmp(out, signal); }

static uint64_t state;
static unsigned below(unsigned n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

/* Reads or writes one word; the signal that it raised, or 0. */
static int touch(volatile uint64_t *at, int write, uint64_t *value) {
    int signal = sigsetjmp(out, 1);
    if (signal)
        return signal;
    if (write)
        *at = *value;
    else
        *value = *at;
    return 0;
}

static uint64_t look(void) {
    uint64_t hash = 14695981039346656037u;
    for (int page = 0; page < ARENA; page++) {
        uint64_t value = 0;
        int signal = touch((uint64_t *)(arena + (size_t)page * PAGE), 0, &value);
        hash = (hash ^ value ^ ((uint64_t)signal << 56)) * 1099511628211u;
    }
    return hash;
}

static void told(const char *call, long result) {
    if (result == -1)
        printf("%s: error %d\n", call, errno);
    else
        printf("%s: %ld\n", call, result);
}

static long placed(void *at) {
    return at == MAP_FAILED ? -1 : ((char *)at - arena) / PAGE;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int fds[2] = {open(argv[1], O_RDONLY), open(argv[1], O_RDWR)};
    state = strtoull(argv[2], NULL, 10);
    int steps = atoi(argv[3]);
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    if (fds[0] < 0 || fds[1] < 0)
        return 1;
    printf("descriptors: %d %d\n", fds[0], fds[1]);
    for (int step = 0; step < steps; step++) {
        unsigned first = below(ARENA), pages = 1 + below(700), to = below(ARENA);
        if (first + pages > ARENA)
            pages = ARENA - first;
        unsigned grown = 1 + below(700);
        if (to + grown > ARENA)
            grown = ARENA - to;
        char *at = arena + (size_t)first * PAGE;
        size_t bytes = (size_t)pages * PAGE;
        static const int prots[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE};
        static const int advices[] = {MADV_WILLNEED, MADV_DONTNEED, MADV_RANDOM, MADV_NORMAL,
                                      MADV_SEQUENTIAL, MADV_DONTFORK, MADV_DOFORK, MADV_COLD};
        printf("%d ", step);
        switch (below(12)) {
        case 0: case 1: case 2: case 3: {
            int shared = below(2), prot = below(4) ? PROT_READ : PROT_READ | PROT_WRITE;
            int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED | (below(4) ? 0 : MAP_POPULATE);
            off_t offset = (off_t)below(FILE_PAGES - 1) * PAGE;
            told("mmap", placed(mmap(at, bytes - below(PAGE), prot, flags, fds[below(2)], offset)));
            break;
        }
        case 4:
            told("munmap", munmap(at, bytes));
            break;
        case 5:
            told("mprotect", mprotect(at, bytes, prots[below(3)]));
            break;
        case 6:
            told("mremap", placed(mremap(at, bytes, (size_t)grown * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                         arena + (size_t)to * PAGE)));
            break;
        case 7:
            /* In place: shrinks, or fails to grow into a neighbour. */
            told("mremap in place", placed(mremap(at, bytes, (size_t)(1 + below(pages)) * PAGE, 0)));
            break;
        case 8:
            told("madvise", madvise(at, bytes, advices[below(8)]));
            break;
        case 9: {
            uint64_t value = state;
            int faults = 0;
            for (unsigned page = first; page < first + pages; page += 1 + below(9))
                faults += touch((uint64_t *)(arena + (size_t)page * PAGE + 512), 1, &value) != 0;
            printf("writes: %d faults\n", faults);
            break;
        }
        case 10: {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                munmap(at, bytes);
                _exit((int)(look() & 127));
            }
            int status = 0;
            waitpid(child, &status, 0);
            printf("child: %d\n", status);
            break;
        }
        default:
            told("posix_madvise", posix_madvise(at, bytes, (int)below(6)));
        }
        if (step % 5 == 4)
            printf("look: %016llx\n", (unsigned long long)look());
    }
    return 0;
}
