/* Does to its mappings what programs do, then reads all that is left, and says
 * whether the file's pages in memory come down to the budget.
 *
 * usage: mappings FILE CASE BUDGET_PAGES      word 0 of page n of FILE is n */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
static int file;
static size_t pages, wrong;
static volatile uint64_t sink;

static char *map(size_t bytes, int flags, size_t from_page) {
    char *at = mmap(NULL, bytes, PROT_READ, flags, file, (off_t)(from_page * PAGE));
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

/* Reads `count` pages from `at` on, which show the file from page `first` on. */
static void sweep(const char *at, size_t first, size_t count) {
    for (size_t n = 0; n < count; n++)
        wrong += *(const volatile uint64_t *)(at + n * PAGE) != first + n;
}

/* By a mapping that nobody else knows of. */
static size_t resident(void) {
    static unsigned char seen[1 << 16];
    struct stat info;
    fstat(file, &info);
    size_t bytes = (size_t)info.st_size, count = 0;
    void *at = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ, MAP_SHARED, file, 0L);
    if (mincore(at, bytes, seen))
        return ~(size_t)0;
    for (size_t n = 0; n < bytes / PAGE; n++)
        count += seen[n] & 1;
    syscall(SYS_munmap, at, bytes);
    return count;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    struct stat info;
    file = argc == 4 ? open(argv[1], O_RDWR) : -1;
    if (file < 0 || fstat(file, &info))
        return 1;
    const char *which = argv[2];
    size_t bytes = (size_t)info.st_size, budget = (size_t)atol(argv[3]);
    pages = bytes / PAGE;
#define IS(name) (!strcmp(which, name))
    for (int turn = 0; turn < 3; turn++) {
        if (IS("start")) {
            static char *at;
            if (!turn) {
                at = map(bytes, MAP_SHARED, 0);
                munmap(at, 6 * PAGE);
            }
            sweep(at + 6 * PAGE, 6, pages - 6);
        } else if (IS("middle")) {
            static char *at;
            if (!turn) {
                at = map(bytes, MAP_PRIVATE, 0);
                munmap(at + 501 * PAGE, 7 * PAGE);
            }
            sweep(at, 0, 501);
            sweep(at + 508 * PAGE, 508, pages - 508);
        } else if (IS("end")) {
            static char *at;
            if (!turn) {
                at = map(bytes, MAP_SHARED, 0);
                munmap(at + (pages - 5) * PAGE, 5 * PAGE);
            }
            sweep(at, 0, pages - 5);
        } else if (IS("unseen")) {
            static char *at;
            if (!turn) {
                at = map(bytes, MAP_SHARED, 0);
                sweep(at, 0, pages);
                syscall(SYS_munmap, at + 100 * PAGE, 100 * PAGE);
            }
            sweep(at, 0, 100);
            sweep(at + 200 * PAGE, 200, pages - 200);
        } else if (IS("longer")) {
            static char *at;
            if (!turn)
                at = map((size_t)1 << 40, MAP_SHARED, 0);
            sweep(at, 0, pages);
        } else if (IS("grows")) {
            static char *at;
            if (!turn)
                at = map((size_t)1 << 30, MAP_SHARED, 0);
            sweep(at, 0, pages);
            char page[PAGE] = {0};
            for (size_t more = 0; more < 512; more++, pages++) {
                memcpy(page, &pages, sizeof pages);
                if (pwrite(file, page, PAGE, (off_t)(pages * PAGE)) != PAGE)
                    return 1;
            }
            fsync(file);
            sweep(at, 0, pages);
        } else if (IS("populate")) {
            static char *at;
            if (!turn)
                at = map(bytes, MAP_SHARED | MAP_POPULATE, 0);
            madvise(at, bytes, MADV_WILLNEED);
            madvise(at, bytes, MADV_POPULATE_READ);
        } else if (IS("twice")) {
            static char *at[2];
            if (!turn) {
                at[0] = map(bytes, MAP_SHARED, 0);
                at[1] = map(bytes, MAP_PRIVATE, 0);
            }
            sweep(at[0], 0, pages);
            sweep(at[1], 0, pages);
        } else if (IS("windows")) {
            for (size_t from = 0; from < pages; from += 50) {
                size_t count = pages - from < 64 ? pages - from : 64;
                char *at = map(count * PAGE, MAP_SHARED, from);
                sweep(at, from, count);
                munmap(at, count * PAGE);
            }
        } else if (IS("offset")) {
            static char *at;
            if (!turn)
                at = map(bytes - 3 * PAGE, MAP_SHARED, 3);
            sweep(at, 3, pages - 3);
        } else if (IS("moved")) {
            static char *at;
            if (!turn) {
                at = map(bytes / 2, MAP_SHARED, 0);
                sweep(at, 0, pages / 2);
                at = mremap(at, bytes / 2, bytes, MREMAP_MAYMOVE);
                mprotect(at, bytes, PROT_READ);
                if (!mlock(at, PAGE))
                    wrong++;
            }
            sweep(at, 0, pages);
        } else if (IS("advised")) {
            static char *at;
            if (!turn) {
                at = map(bytes, MAP_PRIVATE, 0);
                madvise(at, bytes / 4, MADV_RANDOM);
                madvise(at + bytes / 2, bytes / 4, MADV_SEQUENTIAL);
                madvise(at + bytes / 8, PAGE, MADV_DONTNEED);
            }
            sweep(at, 0, pages);
        } else {
            return 2;
        }
    }
    double until = now() + 10;
    size_t left = resident();
    while (left > budget && now() < until) {
        usleep(1000);
        left = resident();
    }
    printf("wrong %zu, %s\n", wrong, left <= budget ? "within" : "over");
    if (left > budget)
        fprintf(stderr, "%zu pages of %zu, allowed are %zu\n", left, pages, budget);
    return wrong > 0;
}
