/* Runs a random program.
 *
 * usage: random SEED FOLDER
 *        random read FOLDER SEED       what a spawned child does
 *
 * FOLDER gets data.bin and other.dat, which stay, and a file for each thread, which
 * are made anew. Prints the logs of all threads; see random.h. */
#include "random.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/time.h>

enum { ACTORS = 3, STEPS = 40 };
const char *folder;
char program[4096];
int wrong;
static const uint64_t *steady;
static struct actor actors[ACTORS];
static int count, running, over;

int steady_wrong(unsigned start) {
    int bad = 0;
    for (unsigned n = 0; n < 16; n++) {
        uint64_t page = (start + n * 61) % DATA_PAGES;
        bad += steady[page * WORDS] != word_of(0, page * WORDS);
    }
    return bad;
}

static void on_signal(int signal) {
    static volatile unsigned turn;
    int before = errno;
    if (steady_wrong(turn += (unsigned)signal))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    errno = before;
}

static int opened(const char *name, int number, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%d.%s", folder, name, number, *name == 'o' ? "bin" : "dat");
    return open(path, flags | O_CLOEXEC, 0600);
}

static int fill(int fd, uint64_t number, uint64_t pages) {
    uint64_t words[WORDS];
    for (uint64_t page = 0; page < pages; page++) {
        for (uint64_t n = 0; n < WORDS; n++)
            words[n] = word_of(number, page * WORDS + n);
        if (pwrite(fd, words, PAGE, (off_t)page * PAGE) != PAGE)
            return -1;
    }
    return 0;
}

static int data_file(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/data.bin", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fill(fd, 0, DATA_PAGES) || fsync(fd))
        return -1;
    close(fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The same numbers each time. */
int open_files(struct actor *actor) {
    actor->data = data_file();
    actor->own = opened("own", actor->number, O_RDONLY);
    actor->written = opened("own", actor->number, O_RDWR);
    actor->other = opened("kernel", actor->number, O_RDONLY);
    return actor->data < 0 || actor->own < 0 || actor->written < 0 || actor->other < 0 ? -1 : actor->data;
}

static void make_files(struct actor *actor) {
    static const char *const names[] = {"own", "kernel"};
    for (int n = 0; n < 2; n++) {
        int fd = opened(names[n], actor->number, O_RDWR | O_CREAT | O_TRUNC);
        if (fd < 0 || fill(fd, 1 + (uint64_t)(actor->number * 2 + n), OWN_PAGES))
            exit(9);
        close(fd);
    }
    if (open_files(actor) < 0)
        exit(9);
}

void act(struct actor *actor, int steps) {
    for (int step = 0; step < steps; step++) {
        say_number(actor, (uint64_t)step);
        say(actor, " ");
        switch (below(actor, 16)) {
        case 0: case 1: case 2: case 3: case 4: case 5: case 6:
            memory_call(actor);
            break;
        case 7: case 8:
            raw_call(actor);
            break;
        case 9: case 10:
            slot_call(actor);
            break;
        case 11: case 12:
            file_call(actor);
            break;
        case 13:
            child_call(actor);
            break;
        default:
            process_call(actor);
        }
        if (step % 5 == 4)
            look(actor);
    }
}

static void finish(void) {
    over = 1;
    for (int n = 0; n < count; n++) {
        struct log *log = actors[n].log;
        printf("thread %d\n", n);
        fwrite(log->text, 1, log->used, stdout);
    }
    printf("wrong %d\n", wrong + steady_wrong(5));
}

static void *run(void *given) {
    struct actor *actor = given;
    act(actor, STEPS);
    look(actor);
    /* The last one ends the program, where its first thread has gone. */
    if (__atomic_sub_fetch(&running, 1, __ATOMIC_ACQ_REL) == 0) {
        finish();
        exit(0);
    }
    return NULL;
}

/* An allocator that is always busy. */
static void *noise(void *unused) {
    while (!over) {
        void *some = malloc(1000), *large = malloc(300000);
        free(some);
        free(large);
    }
    return unused;
}

static int read_only(const char *seed) {
    struct actor actor = {.state = strtoull(seed, NULL, 10)};
    char *at = mmap(NULL, (size_t)DATA_PAGES * PAGE, PROT_READ, MAP_PRIVATE, data_file(), 0);
    for (int n = 0; n < 500; n++) {
        uint64_t page = below(&actor, DATA_PAGES);
        if (*(uint64_t *)(at + page * PAGE) != word_of(0, page * WORDS))
            return 1;
    }
    return 8;
}

/* Has the C library load what it needs for that, which takes a descriptor: later, another
 * thread may just be closing them all. */
static void *leave(void *unused) { pthread_exit(unused); }

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    folder = argv[2];
    if (!strcmp(argv[1], "read"))
        return argc > 3 ? read_only(argv[3]) : 2;
    /* Once the first thread has ended, nothing under /proc/self can be read. */
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 9;
    char data[4096];
    snprintf(data, sizeof data, "%s/data.bin", folder);
    setenv("RANDOM_DATA", data, 1);
    struct actor master = {.state = strtoull(argv[1], NULL, 10) * 2654435761u + 99};
    below(&master, 2);
    count = 1 + (int)below(&master, ACTORS);
    int leaves = below(&master, 6) == 0, busy = below(&master, 3) == 0, timed = below(&master, 3) == 0;
    for (int n = 0; n < count; n++) {
        actors[n] = (struct actor){.state = master.state ^ (uint64_t)(n + 1) << 40, .number = n};
        actors[n].arena = (char *)0x100000000000 + ((size_t)n << 32);
        actors[n].crowded = count > 1 || busy;
        actors[n].alone = !actors[n].crowded;
        actors[n].log = mmap(NULL, sizeof(struct log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        make_files(&actors[n]);
    }
    steady = mmap(NULL, (size_t)DATA_PAGES * PAGE, PROT_READ, MAP_PRIVATE, actors[0].data, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    catch_faults();
    struct itimerval often = {.it_interval.tv_usec = 10000, .it_value.tv_usec = 10000};
    if (timed)
        setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[ACTORS + 1];
    if (busy)
        pthread_create(&threads[ACTORS], NULL, noise, NULL);
    running = count;
    if (leaves && !pthread_create(&threads[0], NULL, leave, NULL))
        pthread_join(threads[0], NULL);
    for (int n = leaves ? 0 : 1; n < count; n++)
        pthread_create(&threads[n], NULL, run, &actors[n]);
    if (leaves)
        pthread_exit(NULL);
    run(&actors[0]);
    /* Not the last one: another ends the program. */
    for (;;)
        pause();
}
