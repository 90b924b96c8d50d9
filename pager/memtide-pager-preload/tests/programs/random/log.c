/* The log, and the numbers. Used between fork and exit, so nothing here takes a lock. */
#include "random.h"

unsigned below(struct actor *actor, unsigned n) {
    actor->state = actor->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(actor->state >> 33) % n;
}

uint64_t word_of(uint64_t file, uint64_t index) {
    uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + file * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return x ^ (x >> 32);
}

uint64_t hashed(uint64_t hash, uint64_t value) { return (hash ^ value) * 1099511628211u; }

static void put(struct actor *actor, char c) {
    struct log *log = actor->log;
    if (log->used == LOG_BYTES)
        abort();
    log->text[log->used++] = c;
}

void say(struct actor *actor, const char *what) {
    while (*what)
        put(actor, *what++);
}

void say_number(struct actor *actor, uint64_t number) {
    put(actor, ' ');
    for (int digit = 60, begun = 0; digit >= 0; digit -= 4) {
        unsigned value = (unsigned)(number >> digit) & 15;
        begun |= value || !digit;
        if (begun)
            put(actor, "0123456789abcdef"[value]);
    }
}

void told(struct actor *actor, const char *what, long result) {
    int error = errno;
    say(actor, what);
    if (result == -1) {
        say(actor, " error");
        say_number(actor, (uint64_t)error);
    } else {
        say_number(actor, (uint64_t)result);
    }
    put(actor, '\n');
}
