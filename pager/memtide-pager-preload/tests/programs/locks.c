/* A program with a record lock on a file that it maps and unmaps. Who closes any descriptor of that file
 * ends the lock, as if the program had done so. Another process asks whether it is still there. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static struct flock whole(short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return lock;
}

/* What a child sees, which has no locks of its own. */
static const char *seen(int file)
{
    int status;
    pid_t child = fork();
    say(child >= 0, "fork");
    if (child == 0) {
        struct flock lock = whole(F_WRLCK);
        if (fcntl(file, F_GETLK, &lock) != 0)
            _exit(2);
        _exit(lock.l_type != F_UNLCK);
    }
    say(waitpid(child, &status, 0) == child && WIFEXITED(status), "waitpid");
    return WEXITSTATUS(status) == 1 ? "locked" : "free";
}

int main(int argc, char **argv)
{
    int file = argc == 2 ? open(argv[1], O_RDWR) : -1;
    struct stat about;
    struct flock lock = whole(F_WRLCK);
    unsigned long sum = 0;
    say(file >= 0 && fstat(file, &about) == 0, "open");
    say(fcntl(file, F_SETLK, &lock) == 0, "lock");
    for (int turn = 0; turn < 40; turn++) {
        int how = turn % 2 ? MAP_PRIVATE : MAP_SHARED;
        unsigned char *bytes = mmap(NULL, about.st_size, PROT_READ, how, file, 0);
        say(bytes != MAP_FAILED, "mmap");
        say(madvise(bytes, about.st_size, MADV_WILLNEED) == 0, "madvise");
        for (off_t at = 0; at < about.st_size; at += 4096)
            sum += bytes[at];
        say(munmap(bytes, about.st_size) == 0, "munmap");
    }
    printf("read %lu, then %s", sum, seen(file));
    lock = whole(F_UNLCK);
    say(fcntl(file, F_SETLK, &lock) == 0, "unlock");
    printf(", then %s\n", seen(file));
    return 0;
}
