"""LMDB, safetensors, pyarrow, faiss and usearch for demo/programs.sh.

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


COLUMNS = 16


def make_pyarrow(folder, mib):
    import numpy
    import pyarrow

    numbers = numpy.random.default_rng(1)
    schema = pyarrow.schema([(f"column{n}", pyarrow.int64()) for n in range(COLUMNS)])
    rows = 2**20  # of a batch: a column of it is 8 MiB
    with pyarrow.ipc.new_file(os.path.join(folder, "data.arrow"), schema) as file:
        for left in range(mib * 2**20 // 8 // COLUMNS, 0, -rows):
            shape = (COLUMNS, min(rows, left))
            columns = numbers.integers(0, 2**62, shape)
            file.write_batch(pyarrow.record_batch([pyarrow.array(c) for c in columns], schema))


def read_pyarrow(folder, reads):
    import pyarrow
    import pyarrow.compute

    numbers, seen = random.Random(1), hashlib.sha256()
    with pyarrow.memory_map(os.path.join(folder, "data.arrow")) as file:
        table = pyarrow.ipc.open_file(file).read_all()
        for _ in range(max(reads // 1000, 4)):
            # One column that every query reads, and one at random.
            for column in ("column0", f"column{numbers.randrange(COLUMNS)}"):
                largest = pyarrow.compute.max(table[column]).as_py()
                seen.update(b"%d" % largest)
    print(seen.hexdigest())


DIMENSIONS = 512  # of a vector, so that one has 2 KiB
LISTS = 512


AT_ONCE = 512  # vectors, a MiB


def vectors(numpy, mib):
    """All of them, a MiB at a time, in as many clusters as there are lists."""
    centers, numbers = points(numpy, LISTS), numpy.random.default_rng(1)
    for _ in range(mib):
        some = centers[numbers.integers(0, LISTS, AT_ONCE)]
        yield some + numbers.standard_normal(some.shape, numpy.float32) / 4


def points(numpy, count):
    """The centers of the clusters first, and queries behind them."""
    return numpy.random.default_rng(2).standard_normal((count, DIMENSIONS), numpy.float32)


def make_faiss(folder, mib):
    import faiss
    import numpy

    quantizer = faiss.IndexFlatL2(DIMENSIONS)
    quantizer.add(points(numpy, LISTS))
    index = faiss.IndexIVFFlat(quantizer, DIMENSIONS, LISTS)
    index.is_trained = True
    for some in vectors(numpy, mib):
        index.add(some)
    faiss.write_index(index, os.path.join(folder, "data.faiss"))


def read_faiss(folder, reads):
    import faiss
    import numpy

    index = faiss.read_index(os.path.join(folder, "data.faiss"), faiss.IO_FLAG_MMAP)
    index.nprobe = 8
    seen = hashlib.sha256()
    for query in points(numpy, LISTS + reads // 20)[LISTS:]:
        _, found = index.search(query[None, :], 10)
        seen.update(found.tobytes())
    print(seen.hexdigest())


def make_usearch(folder, mib):
    import numpy
    from usearch.index import Index

    # Made in a minute, not in ten: the graph is worse, and the reads are the same kind.
    index = Index(ndim=DIMENSIONS, metric="l2sq", dtype="f32", expansion_add=32)
    for number, some in enumerate(vectors(numpy, mib)):
        index.add(numpy.arange(number * AT_ONCE, (number + 1) * AT_ONCE), some)
    index.save(os.path.join(folder, "data.usearch"))


def read_usearch(folder, reads):
    import numpy
    from usearch.index import Index

    index = Index.restore(os.path.join(folder, "data.usearch"), view=True)
    seen = hashlib.sha256()
    for query in points(numpy, LISTS + reads // 10)[LISTS:]:
        seen.update(index.search(query, 10).keys.tobytes())
    print(seen.hexdigest())


what, name, folder, number = sys.argv[1:]
globals()[f"{what}_{name}"](folder, int(number))
