/* Calls that map, unmap, move, protect and advise, through libc and around it. */
#include "random.h"

/* Pages of the arena. */
struct place {
    unsigned first, pages;
    char *at;
    size_t bytes;
};

static struct place some(struct actor *actor) {
    static const unsigned most[] = {4, 40, 400};
    struct place place = {.first = below(actor, ARENA_PAGES)};
    place.pages = 1 + below(actor, most[below(actor, 3)]);
    if (place.first + place.pages > ARENA_PAGES)
        place.pages = ARENA_PAGES - place.first;
    place.at = actor->arena + (size_t)place.first * PAGE;
    place.bytes = (size_t)place.pages * PAGE;
    say(actor, "pages");
    say_number(actor, place.first);
    say_number(actor, place.pages);
    say(actor, " ");
    return place;
}

static long placed(struct actor *actor, void *at) {
    return at == MAP_FAILED ? -1 : ((char *)at - actor->arena) / PAGE;
}

static int some_file(struct actor *actor) {
    int files[] = {actor->data, actor->data, actor->own, actor->own, actor->written, actor->other};
    return files[below(actor, 6)];
}

static void mark(struct actor *actor, struct place place) {
    uint64_t value = actor->state;
    int faults = 0;
    for (unsigned page = 0; page < place.pages; page += 1 + below(actor, 9))
        faults += touch((uint64_t *)(place.at + (size_t)page * PAGE) + 64, 1, &value) != 0;
    told(actor, "writes: faults", faults);
}

static void map_file(struct actor *actor, struct place place, int raw) {
    int flags = (below(actor, 3) ? MAP_PRIVATE : MAP_SHARED) |
                (below(actor, 8) ? MAP_FIXED : MAP_FIXED_NOREPLACE) | (below(actor, 4) ? 0 : MAP_POPULATE) |
                (below(actor, 8) ? 0 : MAP_NORESERVE);
    static const int prots[] = {PROT_READ | PROT_WRITE, PROT_NONE, PROT_READ | PROT_EXEC};
    unsigned kind = below(actor, 12);
    int prot = kind < 3 ? prots[kind] : PROT_READ, fd = some_file(actor);
    off_t offset = (off_t)below(actor, OWN_PAGES - 1) * PAGE;
    size_t bytes = place.bytes - below(actor, PAGE);
    void *at = raw ? (void *)syscall(SYS_mmap, place.at, bytes, prot, flags, fd, offset)
                   : mmap(place.at, bytes, prot, flags, fd, offset);
    told(actor, raw ? "raw mmap" : "mmap", placed(actor, at));
}

static void map_anonymous(struct actor *actor, struct place place, int raw) {
    int flags = (below(actor, 3) ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS | MAP_FIXED;
    int prot = PROT_READ | PROT_WRITE;
    void *at = raw ? (void *)syscall(SYS_mmap, place.at, place.bytes, prot, flags, -1, 0L)
                   : mmap(place.at, place.bytes, prot, flags, -1, 0);
    told(actor, raw ? "raw anonymous" : "anonymous", placed(actor, at));
    mark(actor, place);
}

static void move(struct actor *actor, struct place place) {
    struct place to = some(actor);
    unsigned how = below(actor, 6);
    size_t wanted = how ? to.bytes : place.bytes;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    void *at;
    switch (how) {
    case 0:
        /* Of the same size, and the old addresses stay. */
        if (to.first + place.pages > ARENA_PAGES)
            to.at = actor->arena;
        at = mremap(place.at, place.bytes, wanted, flags | MREMAP_DONTUNMAP, to.at);
        break;
    case 1:
        at = mremap(place.at, 0, wanted, flags, to.at);
        break;
    case 2:
        /* In place: shrinks, or fails to grow into a neighbour. */
        at = mremap(place.at, place.bytes, (size_t)(1 + below(actor, place.pages)) * PAGE, 0);
        break;
    default:
        at = mremap(place.at, place.bytes, wanted, flags, to.at);
    }
    told(actor, "mremap", placed(actor, at));
}

static const int advices[] = {
    MADV_WILLNEED, MADV_DONTNEED, MADV_RANDOM, MADV_NORMAL, MADV_SEQUENTIAL, MADV_DONTFORK, MADV_DOFORK,
    MADV_COLD, MADV_PAGEOUT, MADV_DONTDUMP, MADV_DODUMP, MADV_FREE, MADV_WIPEONFORK, MADV_KEEPONFORK,
    MADV_HUGEPAGE, MADV_NOHUGEPAGE, 22 /* POPULATE_READ */, 23 /* POPULATE_WRITE */,
    102 /* GUARD_INSTALL */, 103 /* GUARD_REMOVE */, 12345,
};

static int some_advice(struct actor *actor) {
    int advice = advices[below(actor, sizeof advices / sizeof *advices)];
    say_number(actor, (uint64_t)advice);
    say(actor, " ");
    actor->guarded |= advice == 102;
    return advice;
}

void memory_call(struct actor *actor) {
    static const int prots[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE};
    struct place place = some(actor);
    switch (below(actor, 16)) {
    case 0: case 1: case 2: case 3: case 4:
        map_file(actor, place, 0);
        break;
    case 5:
        map_anonymous(actor, place, 0);
        break;
    case 6:
        told(actor, "munmap", munmap(place.at, place.bytes));
        break;
    case 7: case 8:
        told(actor, "mprotect", mprotect(place.at, place.bytes, prots[below(actor, 3)]));
        break;
    case 9: case 10:
        move(actor, place);
        break;
    case 11: case 12:
        told(actor, "madvise", madvise(place.at, place.bytes, some_advice(actor)));
        break;
    case 13:
        told(actor, "posix_madvise", posix_madvise(place.at, place.bytes, (int)below(actor, 6)));
        break;
    case 14: {
        static const int flags[] = {MS_SYNC, MS_ASYNC, MS_SYNC | MS_INVALIDATE, MS_INVALIDATE};
        told(actor, "msync", msync(place.at, place.bytes, flags[below(actor, 4)]));
        break;
    }
    default:
        mark(actor, place);
    }
}

/* Around the C library: nobody is told. Not among them is what makes a mapping that
 * was asked for as private writable or moves it: docs/pager.md says that it must go
 * through the C library. Nor is what must not be inherited, for the same reason. */
void raw_call(struct actor *actor) {
    struct place place = some(actor);
    int advice;
    switch (below(actor, 8)) {
    case 0: case 1: case 2:
        map_anonymous(actor, place, 1);
        break;
    case 3:
        map_file(actor, place, 1);
        break;
    case 4: case 5:
        told(actor, "raw munmap", syscall(SYS_munmap, place.at, place.bytes));
        break;
    case 6:
        told(actor, "raw mprotect", syscall(SYS_mprotect, place.at, place.bytes, below(actor, 2) ? PROT_READ : PROT_NONE));
        break;
    default:
        advice = some_advice(actor);
        if (advice == MADV_DONTFORK)
            advice = MADV_DOFORK;
        told(actor, "raw madvise", syscall(SYS_madvise, place.at, place.bytes, advice));
    }
}

/* Mappings where the kernel likes: their addresses are not told. */
void slot_call(struct actor *actor) {
    struct slot *slot = &actor->slots[below(actor, SLOTS)];
    size_t pages = 1 + below(actor, 300);
    say_number(actor, (uint64_t)(slot - actor->slots));
    if (!slot->pages) {
        int kind = below(actor, 2) ? MAP_PRIVATE : MAP_SHARED, fd = some_file(actor);
        char *at = mmap(NULL, pages * PAGE, PROT_READ, kind, fd, (off_t)below(actor, 100) * PAGE);
        told(actor, " slot mmap", at == MAP_FAILED ? -1 : 0);
        *slot = at == MAP_FAILED ? (struct slot){0} : (struct slot){at, pages};
        return;
    }
    if (below(actor, 2)) {
        char *at = mremap(slot->at, slot->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        told(actor, " slot mremap", at == MAP_FAILED ? -1 : 0);
        if (at != MAP_FAILED)
            *slot = (struct slot){at, pages};
        return;
    }
    /* The end of it, or all. */
    size_t left = below(actor, 2) ? below(actor, (unsigned)slot->pages) : 0;
    told(actor, " slot munmap", munmap(slot->at + left * PAGE, (slot->pages - left) * PAGE));
    slot->pages = left;
}
