/* Maps and unmaps a file on a thread that was cancelled: mmap and munmap are no places at which
 * such a thread ends.
 *
 *     cancelled FILE */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { BYTES = 1 << 22, TIMES = 20 };
static int file;
static unsigned long sum;
static int mapped;

static void *work(void *unused) {
    (void)unused;
    pthread_cancel(pthread_self());
    for (int i = 0; i < TIMES; i++) {
        unsigned char *at = mmap(0, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
        if (at == MAP_FAILED) return NULL;
        mapped++;
        for (long j = 0; j < BYTES; j += 4096) sum += at[j];
        munmap(at, BYTES);
    }
    pthread_testcancel();
    return NULL;
}

int main(int n, char **v) {
    pthread_t thread;
    void *end;
    if (n != 2 || (file = open(v[1], O_RDONLY)) < 0) return 2;
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, &end)) return 2;
    printf("mapped %d, sum %lu, %s\n", mapped, sum, end == PTHREAD_CANCELED ? "cancelled" : "not");
    return 0;
}
