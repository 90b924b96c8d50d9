"""LMDB and safetensors for demo/programs.sh.

programs.py make NAME FOLDER MIB
programs.py read NAME FOLDER READS
"""

import hashlib
import os
import random
import sys

VALUE = 3200  # bytes: one value on a page of its own


def make_lmdb(folder, mib):
    import lmdb

    keys = mib * 2**20 // 4096
    with lmdb.open(folder, map_size=2**40) as data:
        for first in range(0, keys, 4096):
            with data.begin(write=True) as change:
                for key in range(first, min(first + 4096, keys)):
                    change.put(b"%08d" % key, hashlib.sha256(b"%d" % key).digest() * (VALUE // 32))


def read_lmdb(folder, reads):
    import lmdb

    numbers, seen = random.Random(1), hashlib.sha256()
    # A terabyte of addresses over a file that is smaller, as LMDB's users do.
    with lmdb.open(folder, map_size=2**40, readonly=True, lock=False, readahead=False) as data:
        with data.begin(buffers=True) as view:
            keys = view.stat()["entries"]
            for _ in range(reads):
                seen.update(view.get(b"%08d" % numbers.randrange(keys))[:64])
    print(seen.hexdigest())


def make_safetensors(folder, mib):
    import numpy
    from safetensors.numpy import save_file

    numbers = numpy.random.default_rng(1)
    tensors = {f"layer{n}": numbers.integers(0, 255, 2**22, numpy.uint8) for n in range(mib // 4)}
    save_file(tensors, os.path.join(folder, "data.safetensors"))


def read_safetensors(folder, _):
    from safetensors import safe_open

    seen = hashlib.sha256()
    with safe_open(os.path.join(folder, "data.safetensors"), framework="np") as tensors:
        for _ in range(2):
            for name in sorted(tensors.keys()):
                seen.update(tensors.get_tensor(name)[::64].tobytes())
    print(seen.hexdigest())


what, name, folder, number = sys.argv[1:]
globals()[f"{what}_{name}"](folder, int(number))
