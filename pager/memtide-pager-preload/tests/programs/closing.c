/* Closes every descriptor again and again, on one thread, while another maps and unmaps.
 *
 * usage: closing FILE MILLISECONDS
 *
 * Word 0 of page n of FILE is n. Says how many pages read wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, PAGES = 1024 };
static int over;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *close_all(void *unused) {
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        syscall(SYS_close_range, 3u, ~0u, 0u);
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    double end = now() + atof(argv[2]) / 1000;
    int wrong = 0, mapped = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, close_all, NULL);
    while (now() < end || !mapped) {
        int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
        uint64_t *at = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
        /* The other thread may have closed it by then. */
        if (at == MAP_FAILED)
            continue;
        mapped++;
        for (int page = 0; page < PAGES; page += 1 + mapped % 64)
            wrong += at[page * WORDS] != (uint64_t)page;
        if (mapped % 2)
            mprotect(at, 16 * PAGE, PROT_NONE);
        munmap(at, PAGES * PAGE);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    printf("wrong %d\n", wrong);
    return 0;
}
