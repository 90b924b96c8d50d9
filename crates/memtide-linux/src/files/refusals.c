/* Refuses allocations on purpose: a library for LD_PRELOAD. See refusals.rs.
 *
 * REFUSE_NTH    the number of the allocation that is refused, from 1 on; 0 refuses none
 * REFUSE_HOW    once, or ever: every later one, too
 * REFUSE_MARK   counting begins after an allocation of exactly so many bytes, and only the thread
 *               that makes it is counted; 0 counts all threads from the start
 * REFUSE_COUNT  at the end the number of allocations is written to this file */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

enum { SECONDS = 120 };
static long nth, count;
static size_t mark;
static int for_ever, everyone;
static __thread int counted __attribute__((tls_model("initial-exec")));

static const char *told(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

__attribute__((constructor)) static void begin(void) {
    nth = atol(told("REFUSE_NTH"));
    for_ever = !strcmp(told("REFUSE_HOW"), "ever");
    mark = strtoul(told("REFUSE_MARK"), NULL, 10);
    everyone = mark == 0;
    /* Programs that are started from here are not meant. */
    unsetenv("LD_PRELOAD");
    /* One that waits for ever is ended. */
    alarm(SECONDS);
}

__attribute__((destructor)) static void end(void) {
    const char *path = told("REFUSE_COUNT");
    long all = __atomic_load_n(&count, __ATOMIC_RELAXED);
    nth = 0;
    FILE *file = *path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld", all);
        fclose(file);
    }
}

static int refused(size_t bytes) {
    if (!everyone && !counted) {
        counted = mark != 0 && bytes == mark;
        return 0;
    }
    long now = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (nth != 0 && (now == nth || (for_ever && now > nth))) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

void *malloc(size_t bytes) { return refused(bytes) ? NULL : __libc_malloc(bytes); }
void *calloc(size_t some, size_t bytes) { return refused(bytes) ? NULL : __libc_calloc(some, bytes); }
void *realloc(void *at, size_t bytes) { return refused(bytes) ? NULL : __libc_realloc(at, bytes); }
void *memalign(size_t align, size_t bytes) { return refused(bytes) ? NULL : __libc_memalign(align, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return refused(bytes) ? NULL : __libc_memalign(align, bytes); }
int posix_memalign(void **at, size_t align, size_t bytes) {
    void *given = refused(bytes) ? NULL : __libc_memalign(align, bytes);
    if (given)
        *at = given;
    return given ? 0 : ENOMEM;
}
