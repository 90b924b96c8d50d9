/* A library that maps kept data under the loader's lock, after a pause if asked to. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1024 * 4096 };
static char *data = MAP_FAILED;

__attribute__((constructor)) static void come(void) {
    const char *path = getenv("RANDOM_DATA");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (getenv("RANDOM_PAUSE"))
        usleep(2000);
    data = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
}

__attribute__((destructor)) static void leave(void) {
    if (data != MAP_FAILED)
        munmap(data, BYTES);
}

uint64_t read_word(unsigned page) { return data == MAP_FAILED ? 0 : *(uint64_t *)(data + (size_t)page * 4096); }
