"""Reads pages of a large file at random through numpy.memmap.

usage: memmap.py FILE READS THREADS

Knows nothing of memtide. Tells the kernel that it reads at random, as it would
anyway, and prints a checksum of all that was read, the time, and
the TLB shootdown interrupts of the machine meanwhile (the kernel's own count).
"""

import mmap
import sys
import threading
import time

import numpy

BLOCK = 16  # pages gathered by one call, so that numpy reads and not Python


def shootdowns():
    with open("/proc/interrupts") as file:
        for line in file:
            if line.split()[0] == "TLB:":
                return sum(int(word) for word in line.split()[1:] if word.isdigit())
    return 0


def read(weights, seed, blocks, sums):
    random = numpy.random.default_rng(seed)
    total = 0
    for _ in range(blocks):
        pages = random.integers(0, len(weights), BLOCK)
        total += int(weights[pages].sum(dtype=numpy.uint64))
    sums[seed] = int(total)


def main():
    path, reads, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    weights = numpy.memmap(path, dtype=numpy.uint64, mode="r")
    weights._mmap.madvise(mmap.MADV_RANDOM)
    weights = weights.reshape(-1, 512)
    sums = [0] * threads
    readers = [
        threading.Thread(target=read, args=(weights, seed, reads // threads // BLOCK, sums))
        for seed in range(threads)
    ]
    before, began = shootdowns(), time.monotonic()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    seconds = time.monotonic() - began
    print(f"checksum {sum(sums) % 2**64:016x}")
    print(f"{seconds:.1f} s", file=sys.stderr)
    print(f"{shootdowns() - before} shootdowns", file=sys.stderr)


main()
