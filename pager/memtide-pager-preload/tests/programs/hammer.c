/* Threads that map, read, write privately and unmap one file at once.
 *
 * usage: hammer FILE THREADS MILLISECONDS
 *
 * Word 0 and the last word of page n of FILE are n. Every word read is checked.
 * A page that a thread wrote in a private mapping must keep what was written.
 * Prints the number of pages checked; a wrong one ends it with status 1. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };
static const char *path;
static size_t pages;
static uint64_t until_ns;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wrong(const char *what, size_t page, uint64_t value) {
    printf("%s: page %zu reads %llx\n", what, page, (unsigned long long)value);
    fflush(stdout);
    _exit(1);
}

static void *run(void *seed) {
    uint64_t state = (uintptr_t)seed * 2654435761u + 1, checked = 0;
#define below(n) ((size_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % (n))
    /* Once at least: on a busy machine the time may be over before a thread begins. */
    do {
        int fd = open(path, below(2) ? O_RDONLY : O_RDWR);
        int kind = below(2) ? MAP_SHARED : MAP_PRIVATE;
        volatile uint64_t *at = mmap(NULL, pages * PAGE, PROT_READ, kind | (below(8) ? 0 : MAP_POPULATE), fd, 0);
        close(fd);
        if (at == MAP_FAILED)
            wrong("mmap", 0, 0);
        for (int n = 0; n < 20000; n++) {
            size_t page = below(pages);
            uint64_t value = at[page * WORDS + (n & 1) * (WORDS - 1)];
            if (value != page)
                wrong("read", page, value);
            checked++;
        }
        size_t first = below(pages), some = 1 + below(64);
        if (first + some > pages)
            some = pages - first;
        char *part = (char *)at + first * PAGE;
        if (kind == MAP_PRIVATE) {
            if (mprotect(part, some * PAGE, PROT_READ | PROT_WRITE))
                wrong("mprotect", first, 0);
            for (size_t page = first; page < first + some; page++)
                at[page * WORDS] = ~page;
            if (below(2))
                mprotect(part, some * PAGE, PROT_READ);
            for (int n = 0; n < 20000; n++) {
                size_t page = below(pages);
                uint64_t right = page >= first && page < first + some ? ~page : page;
                if (at[page * WORDS] != right)
                    wrong("read after writing", page, at[page * WORDS]);
                checked++;
            }
            for (size_t page = first; page < first + some; page++)
                if (at[page * WORDS] != ~page)
                    wrong("written", page, at[page * WORDS]);
        }
        munmap(part, some * PAGE);
        /* Anonymous memory where the file was: it must stay as it is written. */
        uint64_t *own = mmap(part, some * PAGE, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (own == (uint64_t *)part) {
            for (size_t n = 0; n < some; n++)
                own[n * WORDS] = n + 1;
            for (int n = 0; n < 5000; n++)
                if (at[(below(first + 1)) * WORDS] == 1ull << 63)
                    wrong("impossible", 0, 0);
            for (size_t n = 0; n < some; n++)
                if (own[n * WORDS] != n + 1)
                    wrong("anonymous", n, own[n * WORDS]);
        }
        munmap((void *)at, pages * PAGE);
    } while (now_ns() < until_ns);
    return (void *)checked;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    struct stat info;
    path = argv[1];
    if (stat(path, &info))
        return 1;
    pages = (size_t)info.st_size / PAGE;
    until_ns = now_ns() + strtoull(argv[3], NULL, 10) * 1000000u;
    int threads = atoi(argv[2]);
    pthread_t all[64];
    for (int n = 0; n < threads; n++)
        pthread_create(&all[n], NULL, run, (void *)(uintptr_t)(n + 1));
    uint64_t checked = 0;
    for (int n = 0; n < threads; n++) {
        void *result;
        pthread_join(all[n], &result);
        checked += (uint64_t)(uintptr_t)result;
    }
    printf("checked %llu pages, none wrong\n", (unsigned long long)checked);
    return 0;
}
