/* Children of every kind. */
#include "random.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;

static void ended(struct actor *actor, pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) {
            told(actor, "waitpid", -1);
            return;
        }
    told(actor, "child", status);
}

/* A child goes on for some steps, where the parent was. */
static void go_on(struct actor *actor) {
    actor->depth++;
    actor->alone = 1;
    look(actor);
    act(actor, (int)below(actor, 8));
    look(actor);
}

static void forked(struct actor *actor) {
    pid_t child = fork();
    if (child == 0) {
        go_on(actor);
        if (below(actor, 4) || actor->crowded)
            _exit(3);
        exit(4);
    }
    ended(actor, child);
}

/* Nothing of libc's is to be relied on in such a child. What was asked for as private
 * and inherited must not be made writable there: docs/pager.md says so. */
static void in_copy(struct actor *actor) {
    look(actor);
    char *window = mmap(NULL, 64 * PAGE, PROT_READ, MAP_PRIVATE, actor->data, 0);
    uint64_t hash = 0;
    for (int page = 0; page < 64; page++)
        hash = hashed(hash, *(uint64_t *)(window + page * PAGE));
    hash = hashed(hash, (uint64_t)mprotect(window, PAGE, PROT_READ | PROT_WRITE));
    *window = 1;
    hash = hashed(hash, (uint64_t)munmap(actor->arena + (size_t)below(actor, 700) * PAGE, 64 * PAGE));
    hash = hashed(hash, (uint64_t)munmap(window, 64 * PAGE));
    say_number(actor, hash);
    look(actor);
    _exit(5);
}

static void copied(struct actor *actor, int bare) {
    pid_t child = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
    if (child == 0)
        in_copy(actor);
    ended(actor, child);
}

static int vforked(unsigned page) {
    pid_t child = vfork();
    if (child == 0)
        _exit(steady_wrong(page) ? 1 : 6);
    return child;
}

/* Shares the memory and stops its parent, as posix_spawn's child does; but it maps and
 * unmaps, too. */
static int sharing(void *given) {
    struct actor *actor = given;
    char *window = mmap(NULL, 16 * PAGE, PROT_READ, MAP_PRIVATE, actor->data, 0);
    int bad = steady_wrong(3) || *(uint64_t *)window != word_of(0, 0);
    bad |= munmap(window, 16 * PAGE);
    /* Unseen by the pager, since it is not its process. */
    char *at = actor->arena + (size_t)(actor->state >> 40) % 700 * PAGE;
    bad |= munmap(at, 8 * PAGE);
    bad |= mmap(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at;
    *(uint64_t *)at = 77;
    _exit(bad ? 1 : 7);
}

static void shared(struct actor *actor) {
    static __thread char stack[1 << 16] __attribute__((aligned(16)));
    ended(actor, clone(sharing, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, actor));
}

static void spawned(struct actor *actor) {
    char seed[16] = {0};
    snprintf(seed, sizeof seed, "%u", below(actor, 1000));
    char *words[] = {"random", "read", (char *)folder, seed, NULL};
    pid_t child = 0;
    int error = posix_spawn(&child, program, NULL, NULL, words, environ);
    told(actor, "posix_spawn", error);
    if (!error)
        ended(actor, child);
}

void child_call(struct actor *actor) {
    unsigned kind = below(actor, 9);
    say_number(actor, kind);
    say(actor, " child\n");
    if (actor->depth > 1 && kind < 6)
        kind = 7;
    switch (kind) {
    case 0: case 1: case 2: case 3:
        forked(actor);
        break;
    case 4:
        copied(actor, 0);
        break;
    case 5:
        copied(actor, 1);
        break;
    case 6:
        spawned(actor);
        break;
    case 7:
        ended(actor, vforked(below(actor, DATA_PAGES)));
        break;
    default:
        shared(actor);
    }
}
