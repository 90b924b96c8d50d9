/* Calls the kernel around the C library: memory that takes the place of a kept
 * mapping must stay as it is written.
 *
 * usage: raw FILE */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct stat info;
    int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &info))
        return 1;
    size_t bytes = (size_t)info.st_size, pages = bytes / 4096;
    volatile uint64_t sum = 0, *gone = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    volatile uint64_t *other = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    for (size_t page = 0; page < pages; page++)
        sum += gone[page * 512];
    syscall(SYS_munmap, gone, bytes);
    uint64_t *own = (uint64_t *)syscall(SYS_mmap, gone, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
    if (own != gone)
        return 1;
    for (size_t page = 0; page < pages; page++)
        own[page * 512] = page + 1;
    struct timespec now, began;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do {
        for (size_t page = 0; page < pages; page++)
            sum += other[page * 512];
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 < 500);
    size_t lost = 0;
    for (size_t page = 0; page < pages; page++)
        lost += own[page * 512] != page + 1;
    printf("lost: %zu\n", lost);
    return lost != 0;
}
