/* Calls around the C library on a kept mapping, and what is done to it afterwards.
 *
 * usage: unseen FILE CASE
 *
 * Prints what a program sees; the same with the pager and without. Word 0 of page n of
 * FILE is n. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, PAGES = 64, OWN = 16 };
static uint64_t *at;

static uint64_t *page(int number) { return at + number * WORDS; }

/* How a child ends that reads a page; 0 if it reads the right word. */
static int child_reads(int number, uint64_t right) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(*(volatile uint64_t *)page(number) != right);
    waitpid(child, &status, 0);
    return status;
}

/* Memory of the program's own in the middle, put there unseen. */
static void put_own(void) {
    long result = syscall(SYS_mmap, page(OWN), PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
    if (result != (long)page(OWN))
        exit(1);
    *page(OWN) = 4711;
}

static void told(const char *what, int result) {
    if (result)
        printf("%s: error %d\n", what, errno);
    else
        printf("%s: done\n", what);
}

static void *without_leader(void *given) {
    usleep(50000);
    volatile uint64_t *again = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, *(int *)given, 0);
    munmap(at, PAGES * PAGE);
    printf("read %llu\n", (unsigned long long)again[5 * WORDS]);
    at = (uint64_t *)again;
    told("mprotect", mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE));
    *page(5) = 7;
    exit(0);
}

int main(int argc, char **argv) {
    static int file;
    file = argc == 3 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0)
        return 1;
    at = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    const char *test = argv[2];
    if (!strcmp(test, "protect")) {
        put_own();
        told("mprotect", mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE));
        *page(OWN + 1) = 5;
        printf("own %llu, next %llu\n", (unsigned long long)*page(OWN), (unsigned long long)*page(OWN + 1));
    } else if (!strcmp(test, "fork")) {
        put_own();
        printf("own %d, next %d\n", child_reads(OWN, 4711), child_reads(OWN + 1, OWN + 1));
    } else if (!strcmp(test, "none")) {
        syscall(SYS_mprotect, page(OWN), PAGE, PROT_NONE);
        printf("protected %d, next %d\n", child_reads(OWN, OWN), child_reads(OWN + 1, OWN + 1));
    } else if (!strcmp(test, "dontfork")) {
        syscall(SYS_madvise, page(OWN), PAGE, MADV_DONTFORK);
        printf("not there %d, next %d\n", child_reads(OWN, OWN), child_reads(OWN + 1, OWN + 1));
    } else if (!strcmp(test, "closed")) {
        syscall(SYS_close_range, 3u, ~0u, 0u);
        told("mprotect", mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE));
        *page(OWN) = 5;
        printf("written %llu, next %llu\n", (unsigned long long)*page(OWN), (unsigned long long)*page(OWN + 1));
    } else if (!strcmp(test, "beyond")) {
        /* Two pages show the file's last one and none. */
        off_t end = lseek(file, 0, SEEK_END);
        char *last = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, end - PAGE);
        told("one", madvise(last, PAGE, MADV_POPULATE_READ));
        told("both", madvise(last, 2 * PAGE, MADV_POPULATE_READ));
        put_own();
        told("around", madvise(at, PAGES * PAGE, MADV_POPULATE_READ));
    } else if (!strcmp(test, "guard")) {
        int guarded = madvise(page(OWN), PAGE, 102 /* MADV_GUARD_INSTALL */) == 0;
        told("mprotect", mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE));
        printf("guarded %d: %d, next %d\n", guarded, child_reads(OWN, OWN), child_reads(OWN + 1, OWN + 1));
    } else if (!strcmp(test, "guards")) {
        /* Guarded unseen, and some pages without; then handed back in several ways. */
        int guarded = syscall(SYS_madvise, page(OWN), 3 * PAGE, 102 /* MADV_GUARD_INSTALL */) == 0;
        told("fill", madvise(at, PAGES * PAGE, MADV_POPULATE_READ));
        printf("kept %d: %d\n", guarded, child_reads(OWN + 2, OWN + 2));
        /* Fails, and its target is what is kept. */
        void *over = mremap(page(OWN - 4), 20 * PAGE, 20 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page(OWN + 2));
        told("overlapping", over == MAP_FAILED ? -1 : 0);
        printf("failed %d, next %d\n", child_reads(OWN + 2, OWN + 2), child_reads(OWN + 3, OWN + 3));
        told("mprotect", mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE));
        *page(OWN - 1) = *page(OWN + 3) = 4711;
        printf("guarded %d, %d, before %d, behind %d\n", child_reads(OWN, OWN), child_reads(OWN + 2, OWN + 2),
               child_reads(OWN - 1, 4711), child_reads(OWN + 3, 4711));
    } else if (!strcmp(test, "guards-fork")) {
        /* The child cannot keep what it inherits: other memory is in it. */
        syscall(SYS_madvise, page(OWN + 1), PAGE, 102 /* MADV_GUARD_INSTALL */);
        put_own();
        printf("guarded %d, next %d\n", child_reads(OWN + 1, OWN + 1), child_reads(OWN + 2, OWN + 2));
    } else if (!strcmp(test, "around")) {
        /* What lies around is handed back, and is one mapping with what is handed back later. */
        munmap(at, PAGES * PAGE);
        at = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
        void *to = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        put_own();
        told("none", mprotect(at, 2 * OWN * PAGE, PROT_NONE));
        told("readable", mprotect(at, 2 * OWN * PAGE, PROT_READ));
        void *moved = mremap(page(OWN + 1), 2 * OWN * PAGE, OWN * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        told("moved", moved == to ? 0 : -1);
    } else if (!strcmp(test, "again")) {
        /* Unmapped unseen, and the kernel uses the addresses again. */
        int kept = 0;
        for (int n = 0; n < 20; n++) {
            syscall(SYS_munmap, at, PAGES * PAGE);
            uint64_t *next = mmap(at, PAGES * PAGE, PROT_READ, MAP_PRIVATE, file, n * PAGE);
            kept += next == at && *page(OWN) == (uint64_t)(OWN + n);
            at = next;
        }
        printf("%d times\n", kept);
        told("mprotect", mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE));
    } else if (!strcmp(test, "leader")) {
        pthread_t thread;
        pthread_create(&thread, NULL, without_leader, &file);
        pthread_exit(NULL);
    }
    return 0;
}
