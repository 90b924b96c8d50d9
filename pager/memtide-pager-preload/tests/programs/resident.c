/* How many pages of a file are in memory.
 *
 * usage: resident FILE */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

int main(int argc, char **argv) {
    struct stat about;
    int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &about) != 0 || about.st_size == 0) return 1;
    size_t pages = ((size_t)about.st_size + PAGE - 1) / PAGE, there = 0;
    void *data = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *seen = malloc(pages);
    if (data == MAP_FAILED || seen == NULL || mincore(data, pages * PAGE, seen) != 0) return 1;
    for (size_t page = 0; page < pages; page++) there += seen[page] & 1;
    printf("%zu\n", there);
    return 0;
}
