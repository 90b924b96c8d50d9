/* Uses the pager from C as the header says.
 *
 * usage: use FILE    whose page n (of 4 KiB) begins with the number n */
#include "memtide_pager.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096

static void must(int right, const char *what) {
    if (!right) {
        printf("wrong: %s: %s\n", what, memtide_pager_message());
        exit(1);
    }
}

static int released;
static int64_t computed(void *user, void *buffer, size_t bytes, uint64_t offset) {
    if (offset >= (uint64_t)(uintptr_t)user)
        return -EIO;
    for (size_t n = 0; n < bytes; n++)
        ((unsigned char *)buffer)[n] = (unsigned char)((offset + n) / PAGE);
    return (int64_t)bytes;
}
static void release(void *user) {
    (void)user;
    released++;
}

static uint64_t number(const void *data, size_t page) {
    uint64_t value;
    memcpy(&value, (const char *)data + page * PAGE, sizeof value);
    return value;
}

int main(int argc, char **argv) {
    memtide_pager_options options = MEMTIDE_PAGER_OPTIONS;
    memtide_pager *pager = NULL;
    memtide_region *region = NULL;
    must(argc == 2, "a file");

    /* Sizes, for the test to compare. */
    printf("options %zu, counters %zu, source %zu\n", sizeof(memtide_pager_options),
           sizeof(memtide_pager_counters), sizeof(memtide_source));

    must(memtide_pager_start(&options, &pager) == MEMTIDE_SETTING, "no budget");
    must(strstr(memtide_pager_message(), "budget 0") != NULL, "the message names it");
    options.memory_policy = "everywhere";
    options.budget_bytes = 1 << 20;
    must(memtide_pager_start(&options, &pager) == MEMTIDE_SETTING, "no such policy");
    options.memory_policy = NULL;
    options.struct_bytes = 8;
    must(memtide_pager_start(&options, &pager) == MEMTIDE_SETTING, "another version");
    options.struct_bytes = sizeof options;
    must(memtide_pager_start(&options, &pager) == MEMTIDE_OK, "start");
    must(memtide_pager_open(pager, "/nowhere", &region) == MEMTIDE_FILE, "no file");
    must(memtide_pager_open(pager, NULL, &region) == MEMTIDE_SETTING, "null");

    must(memtide_pager_open(pager, argv[1], &region) == MEMTIDE_OK, "open");
    const void *data = memtide_region_data(region);
    size_t pages = memtide_region_bytes(region) / PAGE;
    must(data != NULL && pages > 256, "data of more than the budget");
    for (int turn = 0; turn < 3; turn++)
        for (size_t page = 0; page < pages; page++)
            must(number(data, page) == page, "a page reads its number");
    uint64_t value = 0;
    size_t done = 0;
    must(memtide_region_read_at(region, &value, 8, 7 * PAGE, &done) == MEMTIDE_OK, "read_at");
    must(value == 7 && done == 8, "what was read");
    must(memtide_region_advise(region, MEMTIDE_ORDER_RANDOM) == MEMTIDE_OK, "advice");
    must(memtide_region_advise(region, 3) == MEMTIDE_SETTING, "no such order");
    memtide_region_read_ahead(region, 0, 64 << 10);
    must(memtide_region_check(region) == MEMTIDE_OK, "unchanged");
    must(memtide_pager_settle(pager) == 1, "down to the budget");
    memtide_pager_counters counters;
    memtide_pager_statistics(pager, &counters, sizeof counters);
    must(counters.budget_bytes == 1 << 20, "the budget");
    must(counters.evicted_pages > 0 && counters.dropped_pages > 0, "evicted");
    must(counters.resident_bytes <= counters.budget_bytes, "within the budget");
    printf("evicted %s\n", counters.evicted_pages > 0 ? "yes" : "no");
    /* An older caller knows two counters; nothing beyond them is written. */
    uint64_t first[3] = {1, 1, 77};
    memtide_pager_statistics(pager, (memtide_pager_counters *)first, 2 * sizeof(uint64_t));
    must(first[0] == 1 << 20 && first[2] == 77, "only what there is room for");

    memtide_source source = {(void *)(uintptr_t)(4 << 20), 4 << 20, computed, release};
    memtide_region *other = NULL;
    must(memtide_pager_open_source(pager, &source, &other) == MEMTIDE_STRICT_ONLY, "strict only");
    must(released == 1, "released after a failure");
    memtide_region_close(region);
    memtide_pager_stop(pager);

    options.mode = MEMTIDE_MODE_STRICT;
    memtide_code code = memtide_pager_start(&options, &pager);
    if (code == MEMTIDE_USERFAULTFD) {
        printf("strict mode skipped: %s\n", memtide_pager_message());
    } else {
        must(code == MEMTIDE_OK, "strict");
        must(memtide_pager_open_source(pager, &source, &other) == MEMTIDE_OK, "a source");
        const unsigned char *bytes = memtide_region_data(other);
        for (int turn = 0; turn < 2; turn++)
            for (size_t page = 0; page < 1024; page++)
                must(bytes[page * PAGE + 17] == (page & 255), "a page of the source");
        memtide_region_close(other);
        memtide_pager_stop(pager);
        must(released == 2, "released at the end");
    }
    memtide_replicas *replicas;
    memtide_local *local;
    code = memtide_replicas_start(64 << 20, &replicas);
    if (code == MEMTIDE_NOT_LOCAL) {
        printf("copies skipped: %s\n", memtide_pager_message());
    } else {
        must(code == MEMTIDE_OK, "copies");
        must(memtide_replicas_open(replicas, argv[1], 999, &local) == MEMTIDE_SETTING, "no node");
        must(memtide_replicas_open(replicas, argv[1], -1, &local) == MEMTIDE_OK, "a node's file");
        const void *near = memtide_local_data(local);
        must(memtide_local_bytes(local) == 1024 * PAGE, "its size");
        for (size_t page = 0; page < 1024; page++)
            must(number(near, page) == page, "a page reads its number, wherever it is");
        must(memtide_local_copied(local) <= 1024 * PAGE, "no more than there is");
        memtide_local_close(local);
        memtide_replicas_stop(replicas);
    }
    memtide_pager_stop(NULL);
    memtide_region_close(NULL);
    memtide_replicas_stop(NULL);
    memtide_local_close(NULL);
    printf("all right\n");
    return 0;
}
