/* Calls whose answers the pager changes, or must not change.
 *
 * usage: refused FILE    (prints one line a call) */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void told(const char *call, long result) {
    if (result == -1)
        printf("%s: error %d\n", call, errno);
    else
        printf("%s: %ld\n", call, result);
}

/* Pages of the mapping that are in memory. */
static size_t resident(void *at, size_t bytes) {
    static unsigned char seen[1 << 16];
    size_t count = 0;
    if (mincore(at, bytes, seen))
        return 0;
    for (size_t n = 0; n < bytes / 4096; n++)
        count += seen[n] & 1;
    return count;
}

int main(int argc, char **argv) {
    struct stat info;
    int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &info))
        return 1;
    size_t bytes = (size_t)info.st_size;
    errno = 77;
    char *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    close(fd);
    told("mmap", at == MAP_FAILED ? -1 : 0);
    printf("errno: %d\n", errno);
    printf("all read in: %d\n", resident(at, bytes) == bytes / 4096);
    told("willneed", madvise(at, bytes, MADV_WILLNEED));
    told("posix_willneed", posix_madvise(at, bytes, POSIX_MADV_WILLNEED));
    told("mlock", mlock(at, 4096));
    told("mlock2", mlock2(at + 4096, 4096, MLOCK_ONFAULT));
    told("munlock", munlock(at, bytes));
    told("madvise unaligned", madvise(at + 1, bytes, MADV_WILLNEED));
    told("munmap unaligned", munmap(at + 1, 4096));
    told("mlockall", mlockall(MCL_FUTURE | MCL_ONFAULT));
    told("munlockall", munlockall());
    /* Private again, so this changes nobody's file. */
    told("mprotect", mprotect(at, bytes, PROT_READ | PROT_WRITE));
    at[5] = 'x';
    char byte = 0;
    fd = open(argv[1], O_RDONLY);
    told("pread", pread(fd, &byte, 1, 5));
    printf("file changed: %d, mapping: %c\n", byte == 'x', at[5]);
    told("munmap", munmap(at, bytes));
    /* Close everything that is open, as daemons do, and use the mapping on. */
    at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    for (int n = 3; n < 4096; n++)
        close(n);
    uint64_t sum = 0;
    for (int turn = 0; turn < 4; turn++)
        for (size_t n = 0; n < bytes; n += 4096)
            sum += *(volatile uint64_t *)(at + n);
    printf("sum: %llu\n", (unsigned long long)sum);
    told("munmap", munmap(at, bytes));
    return 0;
}
