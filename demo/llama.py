"""Helps demo/llama.sh.

make FILE MIB            a model in GGUF format, weights random, 8 bits each
run FILE TOKENS THREADS  generates so many tokens with llama.cpp and prints them
watch FILE BUDGET_MIB    says at the end of its input how much of the file was in
                         memory, looked at every 10 ms: the peak in MiB, and of
                         all looks the share above the budget and a twentieth
shootdowns               TLB shootdown interrupts of the machine since boot
"""

import ctypes
import os
import select
import sys

WIDTH, HIDDEN, HEADS, WORDS = 2048, 5632, 16, 4096


def make(path, mib):
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType.Q8_0
    numbers = np.random.default_rng(1)

    def weights(rows, columns):
        """Blocks of 32: a scale of 16 bits and 32 numbers of 8."""
        blocks = np.empty((rows, columns // 32, 34), np.uint8)
        blocks[:, :, :2] = np.array([0.02 / 73], np.float16).view(np.uint8)
        blocks[:, :, 2:] = numbers.integers(-127, 128, (rows, columns // 32, 32), np.int8).view(np.uint8)
        return blocks.reshape(rows, columns // 32 * 34)

    layer = (4 * WIDTH * WIDTH + 3 * WIDTH * HIDDEN) * 34 // 32
    layers = max(1, (mib * 2**20 - 2 * WORDS * WIDTH * 34 // 32) // layer)
    out = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    out.add_name("random")
    out.add_context_length(512)
    out.add_embedding_length(WIDTH)
    out.add_block_count(layers)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    out.add_tokenizer_model("llama")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words = special + [f"w{number}" for number in range(WORDS - len(special))]
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.NORMAL] * (WORDS - len(special))
    out.add_token_list(words)
    out.add_token_scores([-float(number) for number in range(WORDS)])
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)

    def add(name, rows, columns):
        out.add_tensor(name, weights(rows, columns), raw_dtype=kind)

    def norm(name):
        out.add_tensor(name, np.ones(WIDTH, np.float32))

    add("token_embd.weight", WORDS, WIDTH)
    for number in range(layers):
        block = f"blk.{number}."
        norm(block + "attn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}{part}.weight", WIDTH, WIDTH)
        norm(block + "ffn_norm.weight")
        add(block + "ffn_gate.weight", HIDDEN, WIDTH)
        add(block + "ffn_up.weight", HIDDEN, WIDTH)
        add(block + "ffn_down.weight", WIDTH, HIDDEN)
    norm("output_norm.weight")
    add("output.weight", WORDS, WIDTH)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def run(path, tokens, threads):
    from llama_cpp import Llama

    model = Llama(path, n_ctx=256, n_batch=32, n_threads=threads, n_threads_batch=threads,
                  use_mmap=True, use_mlock=False, seed=1, verbose=False)
    said = []
    for token in model.generate([1, 300, 400, 500], temp=0.0, repeat_penalty=1.0):
        said.append(token)
        if len(said) == tokens:
            break
    # In one piece: several instances write to one file.
    os.write(1, (" ".join(map(str, said)) + "\n").encode())


def cached_pages(file):
    """By cachestat(2), Linux 6.5."""
    span, stat = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if ctypes.CDLL(None).syscall(451, file.fileno(), span, stat, 0):
        sys.exit("cachestat: not on this kernel")
    return stat[0]


def watch(path, budget):
    page = os.sysconf("SC_PAGE_SIZE")
    peak, looks, above = 0, 0, 0
    with open(path, "rb") as file:
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            mib = cached_pages(file) * page / 2**20
            peak, looks, above = max(peak, mib), looks + 1, above + (mib > budget * 1.05)
    print(f"{peak:.0f} {100 * above / max(looks, 1):.1f}")


def shootdowns():
    for line in open("/proc/interrupts"):
        if line.lstrip().startswith("TLB:"):
            print(sum(int(word) for word in line.split() if word.isdigit()))


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "make":
        make(rest[0], int(rest[1]))
    elif what == "run":
        run(rest[0], int(rest[1]), int(rest[2]))
    elif what == "watch":
        watch(rest[0], int(rest[1]))
    else:
        shootdowns()
