/* Reading and writing memory that may not be there. */
#include "random.h"

static __thread sigjmp_buf out;
static __thread volatile sig_atomic_t touching;

static void on_fault(int number) {
    /* A fault anywhere else ends the program. */
    if (!touching) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    touching = 0;
    siglongjmp(out, number);
}

void catch_faults(void) {
    /* Not masked while it runs, so there is no mask to put back. */
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

int touch(volatile uint64_t *at, int write, uint64_t *value) {
    int signal = sigsetjmp(out, 0);
    if (signal)
        return signal;
    touching = 1;
    if (write)
        *at = *value;
    else
        *value = *at;
    touching = 0;
    return 0;
}

static uint64_t seen(struct actor *actor, uint64_t hash, char *start, size_t pages) {
    for (size_t page = 0; page < pages; page++) {
        uint64_t value = 0;
        volatile uint64_t *at = (uint64_t *)(start + page * PAGE) + below(actor, WORDS);
        int signal = touch(at, 0, &value);
        hash = hashed(hash, value ^ ((uint64_t)signal << 56));
    }
    return hash;
}

void look(struct actor *actor) {
    uint64_t hash = seen(actor, 14695981039346656037u, actor->arena, ARENA_PAGES);
    for (int n = 0; n < SLOTS; n++)
        hash = seen(actor, hash, actor->slots[n].at, actor->slots[n].pages);
    say(actor, "look");
    say_number(actor, hash);
    say(actor, "\n");
}
