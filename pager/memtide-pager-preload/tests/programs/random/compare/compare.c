/* Runs random programs without the library and with it, and compares.
 *
 * usage: compare LIBRARY PROGRAM FOLDER FIRST PROGRAMS JOBS
 *
 * Prints what differs and how to see it again, then one line of counts. A difference
 * is in what is written on standard output, in how the program ends, in a line on
 * standard error that is not the library's, or that it does not end. Status 1 if
 * anything differed. Works in FOLDER, which must not be on a file system that keeps
 * all its files in memory: nothing could be evicted there; nobody else may work there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 1 << 20, PATHS = 4096 };

/* A run, and what it wrote. */
struct run {
    int status;
    double seconds;
    size_t out, err;
    char output[TEXT], errors[TEXT];
};

static struct counts {
    long programs, different, kept, evicted, handed_over;
} *counts;

static const char *library, *program;
static char folder[PATHS / 4];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static char *in_folder(const char *name) {
    static char path[PATHS];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t contents(const char *name, char *text) {
    int fd = open(in_folder(name), O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, text, TEXT - 1);
    close(fd);
    text[bytes < 0 ? 0 : bytes] = 0;
    return strlen(text);
}

static void redirect(const char *name, int to) {
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(99);
    if (fd != to)
        close(fd);
}

/* Which of the ways to set the library up a program gets. The smaller the budget, the
 * more the disk has to do. */
static const char *budget_of(long seed) { return seed % 4 ? "3MiB" : "1MiB"; }
static const char *eviction_of(long seed) { return seed % 8 ? "lazy" : "eager"; }

/* Runs one for so many seconds at most. */
static void execute(long seed, int with, double most, struct run *run) {
    char number[32];
    snprintf(number, sizeof number, "%ld", seed);
    double began = now();
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        redirect("out", 1);
        redirect("err", 2);
        if (with) {
            setenv("LD_PRELOAD", library, 1);
            setenv("MEMTIDE_PAGER_FILES", "*.bin", 1);
            setenv("MEMTIDE_PAGER_BUDGET", budget_of(seed), 1);
            setenv("MEMTIDE_PAGER_EVICTION", eviction_of(seed), 1);
            setenv("MEMTIDE_PAGER_STATS", in_folder("stats"), 1);
        }
        execl(program, program, number, folder, NULL);
        _exit(99);
    }
    setpgid(child, child);
    struct pollfd ending = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
    run->status = -1;
    if (poll(&ending, 1, (int)(most * 1000)) == 0)
        kill(-child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    run->seconds = now() - began;
    if (run->seconds < most)
        run->status = status;
    /* Children that outlive it are none of the next one's business. */
    kill(-child, SIGKILL);
    close(ending.fd);
    run->out = contents("out", run->output);
    run->err = contents("err", run->errors);
}

/* The first line on standard error that is not a remark of the library's. */
static const char *foreign_line(char *errors) {
    for (char *rest = NULL, *line = strtok_r(errors, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "memtide-pager: ", 15))
            return line;
    return NULL;
}

static void add_statistics(void) {
    static char text[TEXT];
    contents("stats", text);
    unlink(in_folder("stats"));
    static const char *const names[] = {"\"kept_mappings\":", "\"evicted_pages\":", "\"handed_over\":"};
    long *sums[] = {&counts->kept, &counts->evicted, &counts->handed_over};
    for (int n = 0; n < 3; n++)
        for (char *at = text; (at = strstr(at, names[n])); at++)
            __atomic_fetch_add(sums[n], atol(at + strlen(names[n])), __ATOMIC_RELAXED);
}

/* Tells of a difference, in one write. */
static void tell(long seed, const char *format, ...) {
    static char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "seed %ld: ", seed);
    va_list values;
    va_start(values, format);
    used += (size_t)vsnprintf(text + used, 4096, format, values);
    va_end(values);
    used = strlen(text);
    snprintf(text + used, sizeof text - used,
             "\n  again: cargo xtask random-programs --first %ld --programs 1\n"
             "  by hand: LD_PRELOAD=%s MEMTIDE_PAGER_FILES='*.bin' MEMTIDE_PAGER_BUDGET=%s "
             "MEMTIDE_PAGER_EVICTION=%s %s %ld FOLDER\n",
             seed, library, budget_of(seed), eviction_of(seed), program, seed);
    fputs(text, stdout);
    fflush(stdout);
    __atomic_fetch_add(&counts->different, 1, __ATOMIC_RELAXED);
}

/* The first lines that differ, with the number of the line. */
static void tell_lines(long seed, struct run *plain, struct run *paged, struct run *again) {
    int line = 1;
    char *left = plain->output, *right = paged->output;
    while (*left) {
        size_t length = strcspn(left, "\n") + 1;
        if (strncmp(left, right, length))
            break;
        line += 1;
        left += length;
        right += length;
    }
    const char *self = strcmp(plain->output, again->output) ? " (AND WITHOUT THE LIBRARY IT IS NOT TWICE THE SAME)" : "";
    tell(seed, "line %d without the library: %.*s; with it: %.*s%s", line, (int)strcspn(left, "\n"), left,
         (int)strcspn(right, "\n"), right, self);
}

static void compare(long seed) {
    static struct run plain, paged, again;
    /* Whatever hangs hangs for longer than this. */
    execute(seed, 0, 200, &plain);
    double most = 60 + 100 * plain.seconds;
    execute(seed, 1, most, &paged);
    __atomic_fetch_add(&counts->programs, 1, __ATOMIC_RELAXED);
    add_statistics();
    const char *foreign = foreign_line(paged.errors);
    if (plain.status != 0 || plain.err > 0)
        tell(seed, "without the library: status %x, %s", plain.status, plain.errors);
    else if (paged.status == -1)
        tell(seed, "no end within %.0f s, without the library %.2f s", most, plain.seconds);
    else if (paged.status != plain.status || foreign)
        tell(seed, "status %x, without the library %x; %s", paged.status, plain.status, foreign ? foreign : "");
    else if (strcmp(plain.output, paged.output)) {
        execute(seed, 0, 300, &again);
        tell_lines(seed, &plain, &paged, &again);
    }
}

/* Files of programs that came before do not matter, but use up the disk. */
static void clean(void) {
    static const char *const names[] = {"out", "err", "stats", "data.bin"};
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        unlink(in_folder(names[n]));
    for (int n = 0; n < 8; n++) {
        char name[32];
        snprintf(name, sizeof name, "own%d.bin", n);
        unlink(in_folder(name));
        snprintf(name, sizeof name, "kernel%d.dat", n);
        unlink(in_folder(name));
    }
    rmdir(folder);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fputs("usage: compare LIBRARY PROGRAM FOLDER FIRST PROGRAMS JOBS\n", stderr);
        return 2;
    }
    library = argv[1];
    program = argv[2];
    long first = atol(argv[4]), programs = atol(argv[5]), jobs = atol(argv[6]);
    double began = now();
    int alone = open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (alone < 0 || flock(alone, LOCK_EX | LOCK_NB)) {
        fprintf(stderr, "compare: %s: not there, or another comparison works in it; name another folder\n", argv[3]);
        return 2;
    }
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (long job = 0; job < jobs; job++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            snprintf(folder, sizeof folder, "%s/job%ld", argv[3], job);
            mkdir(folder, 0700);
            for (long seed = first + job; seed < first + programs; seed += jobs)
                compare(seed);
            clean();
            _exit(0);
        }
    int status = 0, broken = 0;
    while (wait(&status) > 0)
        broken |= status;
    printf("%ld programs, %ld different; kept %ld mappings, handed %ld back, evicted %ld pages; %.0f s\n",
           counts->programs, counts->different, counts->kept, counts->handed_over, counts->evicted, now() - began);
    return broken || counts->different || counts->programs != programs;
}
