/* Children of every kind, made while mappings of a kept file come and go.
 *
 * usage: forks FILE copies N     N bare clones while a thread maps and unmaps
 *        forks FILE prepare      a fork handler that unmaps kept pages
 *        forks FILE libraries N  N forks, each by a thread that was just made, while a library
 *                                comes and goes that maps the file
 *        forks FILE many N       prints how much longer a fork takes with N kept
 *                                mappings than with a quarter of them
 *
 * A child that waits for ever ends by SIGALRM, or with its parent. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 * PAGE };
static int file;
static volatile int done;
static char *kept;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *come_and_go(void *unused) {
    while (!done) {
        char *at = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
        munmap(at + PAGE, PAGE);
        munmap(at, BYTES);
    }
    return unused;
}

/* What a child of _Fork or clone may do: unmap its own, map a file, read. */
static int in_copy(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(10);
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *own = 1;
    int wrong = munmap(own, PAGE) != 0;
    uint64_t *at = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    for (uint64_t page = 0; page < BYTES / PAGE; page++)
        wrong |= at[page * PAGE / 8] != page;
    wrong |= mprotect(at, PAGE, PROT_READ | PROT_WRITE) != 0;
    at[0] = 7;
    return wrong | (munmap(at, BYTES) != 0);
}

static int copies(int count) {
    pthread_t thread;
    int stuck = 0, wrong = 0;
    kept = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    pthread_create(&thread, NULL, come_and_go, NULL);
    for (int n = 0; n < count; n++) {
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            _exit(in_copy());
        int status = 0;
        waitpid((pid_t)child, &status, 0);
        stuck += WIFSIGNALED(status);
        wrong += WIFEXITED(status) && WEXITSTATUS(status);
        if (stuck)
            break;
    }
    done = 1;
    pthread_join(thread, NULL);
    printf("stuck %d, wrong %d\n", stuck, wrong);
    return stuck || wrong;
}

static void unmap_a_page(void) { munmap(kept, PAGE); }

static int prepare(void) {
    /* Registered before anything was kept, so it runs after later ones. */
    pthread_atfork(unmap_a_page, NULL, NULL);
    kept = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    alarm(10);
    pid_t child = fork();
    if (child == 0) {
        uint64_t sum = 0;
        for (size_t page = 1; page < BYTES / PAGE; page++)
            sum += *(uint64_t *)(kept + page * PAGE);
        _exit(sum != 63 * 64 / 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("forked: %d\n", status);
    return status != 0;
}

static void *load(void *path) {
    while (!done) {
        void *library = dlopen(path, RTLD_NOW);
        if (library)
            dlclose(library);
    }
    return NULL;
}

static void *fork_once(void *unused) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return unused;
}

static int libraries(const char *own, const char *data, int count) {
    char path[4096];
    snprintf(path, sizeof path, "%.*s/random_plugin.so", (int)(strrchr(own, '/') - own), own);
    setenv("RANDOM_DATA", data, 1);
    setenv("RANDOM_PAUSE", "1", 1);
    pthread_t loading, thread;
    pthread_create(&loading, NULL, load, path);
    for (int n = 0; n < count; n++) {
        pthread_create(&thread, NULL, fork_once, NULL);
        pthread_join(thread, NULL);
    }
    done = 1;
    pthread_join(loading, NULL);
    printf("%d forks\n", count);
    return 0;
}

/* The best of many, of `row` in a row: others use the processor, too. What is compared must take about as long,
 * or the longer one is never done within one turn of the processor's, and the shorter one is. */
static double forking(int row) {
    double best = 1e9;
    for (int n = 0; n < 20; n++) {
        double began = now();
        for (int m = 0; m < row; m++) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
        }
        double took = (now() - began) / row;
        best = took < best ? took : best;
    }
    return best;
}

/* In turns, so that a machine that is busier for a while makes both take longer. */
static int many(int count) {
    double quarter = 1e9, all = 1e9;
    int has = 0;
    char **kept = calloc((size_t)count, sizeof *kept);
    if (!kept)
        return 1;
    for (int turn = 0; turn < 3; turn++) {
        while (has > count / 4)
            munmap(kept[--has], PAGE);
        for (; has < count; has++) {
            if (has == count / 4) {
                double took = forking(4);
                quarter = took < quarter ? took : quarter;
            }
            /* Every other page, so that the kernel joins none of them. */
            kept[has] = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, (off_t)(has * 2 % 1024) * PAGE);
            if (kept[has] == MAP_FAILED)
                return 1;
        }
        double took = forking(1);
        all = took < all ? took : all;
    }
    printf("%.1f\n", all / quarter);
    return 0;
}

int main(int argc, char **argv) {
    file = argc > 2 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0)
        return 1;
    if (!strcmp(argv[2], "copies"))
        return copies(atoi(argv[3]));
    if (!strcmp(argv[2], "libraries"))
        return libraries(argv[0], argv[1], atoi(argv[3]));
    return strcmp(argv[2], "many") ? prepare() : many(atoi(argv[3]));
}
