/* A random program: threads that each do a random sequence of calls.
 *
 * Every thread is an actor of its own: its numbers, its stretch of addresses, its
 * file that it may write to, its log. So what one actor sees does not depend on when
 * others run, and the same seed writes the same log on the same kernel, with or
 * without the pager. What is mapped of the files is a function of the offset or was
 * written by the same actor. */
#ifndef RANDOM_H
#define RANDOM_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    WORDS = PAGE / 8,
    ARENA_PAGES = 768,
    DATA_PAGES = 1024,
    OWN_PAGES = 256,
    OWN_MOST = 384,
    SLOTS = 4,
    LOG_BYTES = 1 << 18,
};

/* Text that children write on, so it is shared memory. */
struct log {
    size_t used;
    char text[LOG_BYTES];
};

/* A mapping where the kernel put it. */
struct slot {
    char *at;
    size_t pages;
};

struct actor {
    uint64_t state;
    int number, steps, depth;
    /* No other thread shares the process's descriptors. */
    int alone;
    /* It has guarded pages. Where a file shrinks below them, the kernel drops the guards
     * of pages that some mapping shows at that moment, and leaves the others. */
    int guarded;
    /* The program has other threads. A child of it has copies of the locks that they held:
     * there, libc's exit, threads and loader may wait for ever, pager or not. */
    int crowded;
    char *arena;
    /* The data, the actor's own file for reading and for both, one that nobody keeps. */
    int data, own, written, other;
    struct slot slots[SLOTS];
    struct log *log;
};

/* Numbers below n. */
unsigned below(struct actor *actor, unsigned n);
/* The word that a file of that number has at an index. */
uint64_t word_of(uint64_t file, uint64_t index);

/* log.c: no allocation, no lock. */
void say(struct actor *actor, const char *what);
void say_number(struct actor *actor, uint64_t number);
/* A call's result, -1 being errno. */
void told(struct actor *actor, const char *what, long result);
uint64_t hashed(uint64_t hash, uint64_t value);

/* touch.c */
void catch_faults(void);
/* Reads or writes a word; the signal that it raised, or 0. */
int touch(volatile uint64_t *at, int write, uint64_t *value);
/* Reads every page of the actor's and logs a hash of what was there. */
void look(struct actor *actor);

/* memory.c, files.c, children.c, process.c: a call each. */
void memory_call(struct actor *actor);
void raw_call(struct actor *actor);
void slot_call(struct actor *actor);
void file_call(struct actor *actor);
void child_call(struct actor *actor);
void process_call(struct actor *actor);

/* main.c */
extern const char *folder;
/* The path of this program. */
extern char program[4096];
int open_files(struct actor *actor);
void act(struct actor *actor, int steps);
/* What steady pages read wrong, in handlers of signals among others. */
int steady_wrong(unsigned start);
extern int wrong;
#endif
