/* Maps a file for reading, and reads all of it each time that a line comes.
 *
 *     reader FILE [THREADS]
 *
 * Page n of the file begins and ends with the number n plus a generation, which is the same for all
 * pages. A line of input is the generation that is expected. The answer is "right" or the first page
 * that is wrong; "ends" as input unmaps the file and ends the program. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_THREADS = 64 };

static const unsigned char *data;
static size_t pages;
static uint64_t generation;
static int threads = 1;

/* The first page of a thread's share that is wrong, or no page. */
static void *share(void *number) {
    size_t first = (size_t)number;
    for (size_t page = first; page < pages; page += threads) {
        uint64_t begins, ends;
        memcpy(&begins, data + page * PAGE, sizeof begins);
        memcpy(&ends, data + (page + 1) * PAGE - sizeof ends, sizeof ends);
        if (begins != page + generation || ends != begins) return (void *)(page + 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argc > 2) threads = atoi(argv[2]);
    if (threads < 1 || threads > MOST_THREADS) return 2;
    int fd = open(argv[1], O_RDONLY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) return 1;
    pages = (size_t)about.st_size / PAGE;
    data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return 1;
    close(fd);
    printf("mapped\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "ends\n") != 0) {
        generation = strtoull(line, NULL, 10);
        pthread_t started[MOST_THREADS];
        size_t wrong = 0;
        for (int n = 0; n < threads; n++) {
            if (pthread_create(&started[n], NULL, share, (void *)(size_t)n) != 0) return 1;
        }
        for (int n = 0; n < threads; n++) {
            void *found;
            pthread_join(started[n], &found);
            if (found != NULL) wrong = (size_t)found;
        }
        if (wrong == 0) {
            printf("right\n");
        } else {
            printf("page %zu is wrong\n", wrong - 1);
        }
        fflush(stdout);
    }
    return munmap((void *)data, (size_t)about.st_size) != 0;
}
