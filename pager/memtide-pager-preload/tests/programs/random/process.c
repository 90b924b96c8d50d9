/* Calls on what the process has beside mappings: its heap, threads, signals,
 * libraries and descriptors. */
#include "random.h"
#include <dlfcn.h>
#include <pthread.h>

static pthread_key_t at_end;
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* Runs when a thread's own data goes, ours perhaps before. */
static void end_of_thread(void *given) {
    struct slot *slot = given;
    for (size_t page = 0; page < slot->pages; page++)
        if (*(uint64_t *)(slot->at + page * PAGE) != word_of(0, page * WORDS))
            wrong++;
    munmap(slot->at, slot->pages * PAGE);
    free(slot);
}

static void make_key(void) { pthread_key_create(&at_end, end_of_thread); }

static void *short_life(void *given) {
    struct actor *actor = given;
    pthread_once(&made, make_key);
    struct slot *slot = malloc(sizeof *slot);
    slot->pages = 16 + below(actor, 200);
    slot->at = mmap(NULL, slot->pages * PAGE, PROT_READ, MAP_PRIVATE, actor->data, 0);
    pthread_setspecific(at_end, slot);
    /* The stack of the thread is what it reads into. */
    char here[PAGE];
    return (void *)(intptr_t)(pread(actor->data, here, sizeof here, PAGE) == PAGE);
}

static void thread(struct actor *actor) {
    pthread_t other;
    void *result = NULL;
    int error = pthread_create(&other, NULL, short_life, actor);
    if (!error)
        pthread_join(other, &result);
    told(actor, "thread", error ? error : (long)(intptr_t)result);
}

/* Small ones of the arena, large ones of their own mappings. */
static void heap(struct actor *actor) {
    unsigned char *all[24];
    size_t sizes[24];
    int bad = 0;
    for (unsigned n = 0; n < 24; n++) {
        sizes[n] = 1 + below(actor, below(actor, 6) ? 3000 : 400000);
        all[n] = malloc(sizes[n]);
        memset(all[n], (int)n + 1, sizes[n]);
    }
    for (unsigned n = 0; n < 24; n += 1 + below(actor, 3)) {
        sizes[n] = 1 + below(actor, 300000);
        all[n] = realloc(all[n], sizes[n]);
        bad += all[n][0] != n + 1;
        memset(all[n], (int)n + 1, sizes[n]);
    }
    for (unsigned n = 0; n < 24; n++) {
        bad += all[n][0] != n + 1 || all[n][sizes[n] - 1] != n + 1;
        free(all[n]);
    }
    told(actor, "heap: wrong", bad);
}

/* A library that maps the data when it is loaded and unmaps it when it goes. */
static void library(struct actor *actor) {
    char path[sizeof program + 16];
    snprintf(path, sizeof path, "%s_plugin.so", program);
    void *loaded = dlopen(path, RTLD_NOW);
    uint64_t (*read_word)(unsigned) = NULL;
    if (loaded)
        *(void **)&read_word = dlsym(loaded, "read_word");
    unsigned page = below(actor, DATA_PAGES);
    told(actor, "library", read_word && read_word(page) == word_of(0, (uint64_t)page * WORDS));
    if (loaded)
        dlclose(loaded);
}

/* What a program does that becomes a daemon. */
static void close_all(struct actor *actor) {
    told(actor, "close_range", syscall(SYS_close_range, 3u, ~0u, 0u));
    told(actor, "open", open_files(actor));
}

void process_call(struct actor *actor) {
    switch (below(actor, 8)) {
    case 0: case 1: case 2:
        heap(actor);
        break;
    case 3: case 4:
        if (actor->depth == 0 || !actor->crowded)
            thread(actor);
        break;
    case 5:
        told(actor, "raise", raise(SIGUSR1));
        break;
    case 6:
        if (actor->depth == 0)
            library(actor);
        break;
    default:
        if (actor->alone)
            close_all(actor);
    }
}
