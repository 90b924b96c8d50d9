/* Calls that read and write files, from and to mapped memory as well. */
#include "random.h"

static uint64_t hash_of(const uint64_t *words, long bytes) {
    uint64_t hash = (uint64_t)bytes;
    for (long n = 0; n < bytes / 8; n += 37)
        hash = hashed(hash, words[n]);
    return hash;
}

void file_call(struct actor *actor) {
    static __thread uint64_t buffer[8 * WORDS];
    off_t offset = (off_t)below(actor, OWN_MOST) * PAGE;
    switch (below(actor, 7)) {
    case 0: {
        int fd = below(actor, 2) ? actor->data : actor->own;
        long bytes = pread(fd, buffer, sizeof buffer, offset);
        told(actor, "pread", bytes);
        say_number(actor, hash_of(buffer, bytes));
        say(actor, "\n");
        break;
    }
    case 1:
        for (unsigned n = 0; n < 8 * WORDS; n++)
            buffer[n] = actor->state ^ n;
        told(actor, "pwrite", pwrite(actor->written, buffer, below(actor, sizeof buffer), offset));
        break;
    case 2: case 3:
    {
        /* It grows and shrinks below its mappings. */
        off_t bytes = (off_t)below(actor, OWN_MOST) * PAGE + below(actor, 3);
        if (!actor->guarded)
            told(actor, "ftruncate", ftruncate(actor->written, bytes));
        break;
    }
    case 4: {
        /* Out of mapped memory: the kernel reads it. */
        int ends[2];
        if (pipe(ends))
            abort();
        char *at = actor->arena + (size_t)below(actor, ARENA_PAGES - 8) * PAGE;
        long bytes = write(ends[1], at, 8 * PAGE);
        told(actor, "write from memory", bytes);
        close(ends[1]);
        bytes = bytes > 0 ? read(ends[0], buffer, sizeof buffer) : 0;
        close(ends[0]);
        say_number(actor, hash_of(buffer, bytes));
        say(actor, "\n");
        break;
    }
    case 5: {
        /* Into mapped memory. */
        char *at = actor->arena + (size_t)below(actor, ARENA_PAGES) * PAGE;
        told(actor, "read into memory", pread(actor->data, at, PAGE, offset));
        break;
    }
    default:
        told(actor, "fadvise", posix_fadvise(actor->data, 0, 0, POSIX_FADV_DONTNEED));
    }
}
