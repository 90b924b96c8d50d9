/* Fails allocations of the library on purpose: its nth, or all from the nth on.
 *
 * usage: allocations FILE NTH once|ever
 *
 * Prints what a program sees, which must not depend on it. Status 3 if the library made
 * fewer than NTH. Word 0 of page n of FILE is n. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, PAGES = 1024 };
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static uintptr_t from, to;
static long nth, count;
static int for_ever;

/* Whether this call, which will return to `caller`, is refused. */
static int refused(void *caller) {
    if ((uintptr_t)caller < from || (uintptr_t)caller >= to)
        return 0;
    long now = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (now == nth || (for_ever && now > nth)) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

#define REFUSED refused(__builtin_return_address(0))
void *malloc(size_t bytes) { return REFUSED ? NULL : __libc_malloc(bytes); }
void *calloc(size_t some, size_t bytes) { return REFUSED ? NULL : __libc_calloc(some, bytes); }
void *realloc(void *at, size_t bytes) { return REFUSED ? NULL : __libc_realloc(at, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return REFUSED ? NULL : __libc_memalign(align, bytes); }
int posix_memalign(void **at, size_t align, size_t bytes) {
    if (REFUSED)
        return ENOMEM;
    *at = __libc_memalign(align, bytes);
    return *at ? 0 : ENOMEM;
}

static int find(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(info->dlpi_name, "memtide_pager_preload"))
        return 0;
    for (int n = 0; n < info->dlpi_phnum; n++)
        if (info->dlpi_phdr[n].p_type == PT_LOAD && info->dlpi_phdr[n].p_flags & PF_X) {
            from = info->dlpi_addr + info->dlpi_phdr[n].p_vaddr;
            to = from + info->dlpi_phdr[n].p_memsz;
        }
    return 1;
}

static uint64_t sum(const uint64_t *at, int pages) {
    uint64_t all = 0;
    for (int page = 0; page < pages; page++)
        all = all * 31 + at[page * WORDS];
    return all;
}

static void told(const char *what, long result) { printf("%s: %ld\n", what, result == -1 ? -errno : result); }

int main(int argc, char **argv) {
    int file = argc == 4 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0)
        return 1;
    nth = atol(argv[2]);
    for_ever = !strcmp(argv[3], "ever");
    dl_iterate_phdr(find, NULL);
    for (int turn = 0; turn < 3; turn++) {
        size_t bytes = (size_t)PAGES * PAGE;
        uint64_t *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | (turn ? 0 : MAP_POPULATE), file, 0);
        uint64_t *other = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
        if (at == MAP_FAILED || other == MAP_FAILED)
            return 2;
        printf("%llx %llx\n", (unsigned long long)sum(at, PAGES), (unsigned long long)sum(other, PAGES));
        told("madvise", madvise(at, 8 * PAGE, MADV_WILLNEED));
        told("random", madvise(at + 64 * WORDS, 8 * PAGE, MADV_RANDOM));
        told("mprotect", mprotect(at + 16 * WORDS, 4 * PAGE, PROT_READ | PROT_WRITE));
        at[17 * WORDS] = 4711;
        told("munmap", munmap(at + 32 * WORDS, 4 * PAGE));
        uint64_t *moved = mremap(other, bytes, bytes / 2, MREMAP_MAYMOVE);
        told("mremap", moved == MAP_FAILED ? -1 : 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit((int)(sum(moved, PAGES / 2) & 63) | (at[17 * WORDS] != 4711) << 6);
        int status = 0;
        waitpid(child, &status, 0);
        printf("child %d, %llx\n", status, (unsigned long long)sum(at, 32));
        told("munmap", munmap(at, bytes));
        told("munmap", munmap(moved, bytes / 2));
    }
    fflush(stdout);
    return count < nth ? 3 : 0;
}
