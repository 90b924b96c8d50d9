/* memtide-pager: large read-only data in a bounded amount of memory, with few
 * TLB shootdowns. docs/pager.md says how it works and what it cannot do.
 *
 *     memtide_pager_options options = MEMTIDE_PAGER_OPTIONS;
 *     memtide_pager *pager;
 *     memtide_region *weights;
 *     options.budget_bytes = 2ull << 30;
 *     if (memtide_pager_start(&options, &pager) ||
 *         memtide_pager_open(pager, "model.gguf", &weights))
 *         errx(1, "%s", memtide_pager_message());
 *     use(memtide_region_data(weights), memtide_region_bytes(weights));
 *     memtide_region_close(weights);
 *     memtide_pager_stop(pager);
 *
 * Functions that can fail return a memtide_code: 0, or why not, and then
 * memtide_pager_message() has a line for people. Every function may be called
 * from every thread, also at the same time for the same pager or region; a
 * handle must not be used while or after it is closed. Handles must not be null
 * except where it says so. Link with -lmemtide_pager_c. */
#ifndef MEMTIDE_PAGER_H
#define MEMTIDE_PAGER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memtide_pager memtide_pager;
typedef struct memtide_region memtide_region;
typedef struct memtide_adopted memtide_adopted;
typedef struct memtide_replicas memtide_replicas;
typedef struct memtide_local memtide_local;

typedef enum {
    MEMTIDE_OK = 0,
    MEMTIDE_SETTING = 1,       /* an option or argument that cannot be */
    MEMTIDE_FILE = 2,          /* cannot be opened, looked at or mapped */
    MEMTIDE_EMPTY = 3,         /* no bytes */
    MEMTIDE_CHANGED = 4,       /* cut short or written to since it was opened */
    MEMTIDE_READ = 5,          /* the data could not be read */
    MEMTIDE_NOT_ADOPTABLE = 6, /* a mapping that cannot be taken care of */
    MEMTIDE_USERFAULTFD = 7,   /* strict mode is forbidden here */
    MEMTIDE_MEMORY_POLICY = 8, /* refused by the kernel, or no policy at all */
    MEMTIDE_STRICT_ONLY = 9,   /* needs MEMTIDE_MODE_STRICT */
    MEMTIDE_THREAD = 10,       /* a thread could not be started */
    MEMTIDE_LIMIT = 11,        /* a limit of the process */
    MEMTIDE_BUSY = 12,         /* regions are open that need the pager */
    MEMTIDE_FORKED = 13,       /* the pager belongs to the parent process */
    MEMTIDE_SHUT_DOWN = 14,    /* the pager was stopped */
    MEMTIDE_INTERNAL = 15,     /* a fault of this library */
    MEMTIDE_NOT_LOCAL = 16     /* no copies here: one node, or nothing to find them by */
} memtide_code;

enum { MEMTIDE_MODE_FILE = 0, MEMTIDE_MODE_STRICT = 1 };
enum { MEMTIDE_POLICY_SCAN_RESISTANT = 0, MEMTIDE_POLICY_FIFO = 1 };
enum { MEMTIDE_UNMAP_LAZY = 0, MEMTIDE_UNMAP_EAGER_PAGES = 1, MEMTIDE_UNMAP_EAGER_GRANULES = 2 };
enum { MEMTIDE_ORDER_NORMAL = 0, MEMTIDE_ORDER_RANDOM = 1, MEMTIDE_ORDER_SEQUENTIAL = 2 };

/* What is 0 or null is the default; a budget must be given. */
typedef struct {
    size_t struct_bytes; /* sizeof(memtide_pager_options) */
    uint64_t budget_bytes;
    uint64_t granule_bytes;    /* 64 KiB */
    uint32_t batch;            /* granules unmapped at once; by the budget */
    uint32_t mode;             /* MEMTIDE_MODE_ */
    uint32_t policy;           /* MEMTIDE_POLICY_ */
    uint32_t unmapping;        /* MEMTIDE_UNMAP_ */
    const char *memory_policy; /* such as "weighted-interleave:0,2" */
    int32_t nice;              /* of the evictor thread; -10 where that is allowed */
    uint32_t no_read_ahead;    /* 1: read nothing ahead */
} memtide_pager_options;

#define MEMTIDE_PAGER_OPTIONS {sizeof(memtide_pager_options), 0, 0, 0, 0, 0, 0, 0, 0, 0}

memtide_code memtide_pager_start(const memtide_pager_options *options, memtide_pager **pager);
/* Null is allowed. File regions that are open stay readable, bounded by nobody;
 * strict ones keep the pager going until they are closed. */
void memtide_pager_stop(memtide_pager *pager);

/* Serves a file. */
memtide_code memtide_pager_open(memtide_pager *pager, const char *path, memtide_region **region);

/* Serves data that need not be a file; strict mode only. read_at fills buffer
 * from offset and returns how many bytes, or a negative errno. It is called by
 * the pager's threads, several at a time. release, which may be null, is called
 * once when the data is needed no more, also if opening fails. */
typedef struct {
    void *user;
    uint64_t bytes;
    int64_t (*read_at)(void *user, void *buffer, size_t bytes, uint64_t offset);
    void (*release)(void *user);
} memtide_source;
memtide_code memtide_pager_open_source(memtide_pager *pager, const memtide_source *source,
                                       memtide_region **region);

/* Readable until the region is closed. */
const void *memtide_region_data(const memtide_region *region);
size_t memtide_region_bytes(const memtide_region *region);
/* Copies and never faults; *done, if not null, is how many bytes. */
memtide_code memtide_region_read_at(const memtide_region *region, void *buffer, size_t bytes,
                                    uint64_t offset, size_t *done);
/* Says in which order the data will be read (MEMTIDE_ORDER_), to the kernel, too. What madvise(2) alone
 * says the pager does not know, and undoes once memory was above the budget. In strict mode nothing is
 * read around a fault, and this changes nothing. */
memtide_code memtide_region_advise(const memtide_region *region, uint32_t order);
/* Has bytes read in before they are used; returns at once. */
void memtide_region_read_ahead(const memtide_region *region, uint64_t offset, uint64_t bytes);
/* MEMTIDE_CHANGED if the file is no longer what was opened. */
memtide_code memtide_region_check(const memtide_region *region);
/* Unmaps the data. Null is allowed. */
void memtide_region_close(memtide_region *region);

/* Takes care of a read-only mapping of fd that the caller made and keeps. */
memtide_code memtide_pager_adopt(memtide_pager *pager, const void *address, size_t bytes, int fd,
                                 uint64_t offset, memtide_adopted **adopted);
/* Ends that; must be called before the mapping is unmapped, moved, replaced or
 * made writable. The mapping stays. Null is allowed. */
void memtide_adopted_release(memtide_adopted *adopted);

/* Copies of read-only files on the nodes where they are read, shared by all processes of one
 * user. budget_bytes is for all copies on one node. No pager is needed. */
memtide_code memtide_replicas_start(uint64_t budget_bytes, memtide_replicas **replicas);
/* Null is allowed. Regions that are open stay readable, from the file. */
void memtide_replicas_stop(memtide_replicas *replicas);
/* Maps a file for threads that run on node; -1 is the node of most threads of this process.
 * Groups of threads on several nodes open it once for each. Nobody may write to it meanwhile. */
memtide_code memtide_replicas_open(memtide_replicas *replicas, const char *path, int node,
                                   memtide_local **region);
/* Readable until the region is closed: from the file at first, from the copy of what was read. */
const void *memtide_local_data(const memtide_local *region);
size_t memtide_local_bytes(const memtide_local *region);
/* How many bytes are read from the node's copy by now. */
uint64_t memtide_local_copied(const memtide_local *region);
/* Unmaps the data. Null is allowed. */
void memtide_local_close(memtide_local *region);

/* Counters; see docs/json-pager.md, pager counters. */
typedef struct {
    uint64_t budget_bytes;
    uint64_t resident_bytes;
    uint64_t peak_resident_bytes;
    uint64_t pending_pages;
    uint64_t evicted_pages;
    uint64_t rescued_pages;
    uint64_t probed_pages;
    uint64_t zapped_pages;
    uint64_t flush_calls;
    uint64_t dropped_pages;
    uint64_t refilled_pages;
    uint64_t filled_pages;
    uint64_t read_ahead_pages;
    uint64_t budget_overruns;
    uint64_t urgent_batches;
    uint64_t stuck_pages;
    uint64_t failed_calls;
    uint64_t read_errors;
    uint64_t evictor_us;
    uint64_t rounds;
    uint64_t held_back;
} memtide_pager_counters;
/* Fills the first struct_bytes bytes: sizeof(memtide_pager_counters) as the
 * caller knows it; counters that this library does not have are 0. */
void memtide_pager_statistics(const memtide_pager *pager, memtide_pager_counters *counters,
                              size_t struct_bytes);
/* Looks at everything and brings memory down to the budget now; 1 if it came, 0 if not. */
int memtide_pager_settle(const memtide_pager *pager);

/* Why the last call of this thread that failed did so. Never null; valid until
 * the thread's next call that fails. */
const char *memtide_pager_message(void);

#ifdef __cplusplus
}
#endif

#endif
