#!/usr/bin/env bash
# An unmodified program, numpy.memmap, reads a large file at random in a quarter
# of its size: kept by the kernel, and by the pager. usage: demo/memmap.sh [MIB]
set -euo pipefail
cd "$(dirname "$0")/.."

mib=${1:-1024}
reads=${READS:-400000}
threads=${THREADS:-$(nproc)}

cargo build --release --quiet -p memtide -p memtide-pager-preload
memtide=$(realpath "${CARGO_TARGET_DIR:-target}/release/memtide")

venv=${XDG_CACHE_HOME:-$HOME/.cache}/memtide-demo/venv
if ! "$venv/bin/python" -c 'import numpy' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check numpy
fi

# Not in memory: what lies there cannot be evicted.
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/memtide-demo.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"$memtide" pager --make "$folder/weights.bin" --size "${mib}MiB"
program=("$venv/bin/python" demo/memmap.py "$folder/weights.bin" "$reads" "$threads")
budget=$((mib / 4))MiB

# Drops the file from memory, so that every run begins alike.
forget() { dd of="$folder/weights.bin" oflag=nocache conv=notrunc,fdatasync count=0 status=none; }

echo "numpy.memmap, $reads reads of a page, $threads threads, $mib MiB"
run() {
  local name=$1; shift
  forget
  local sum
  sum=$("$@" 2>"$folder/said")
  printf '%-44s %s  %9s  %s\n' "$name" "$sum" \
    "$(sed -n 's/ s$/ s/p' "$folder/said" | head -1)" "$(grep -h ' shootdowns$' "$folder/said")"
  grep -h '^memtide' "$folder/said" | fold -s -w 96 | sed 's/^/    /' || true
  sums+=("$sum")
}
sums=()
run "all of it in memory" "${program[@]}"
run "plain mmap, $budget kept by the kernel" \
  "$memtide" pager run --plain --files '*.bin' --budget "$budget" -- "${program[@]}" \
  || echo "(needs a memory cgroup)"
run "pager, $budget, page by page" \
  "$memtide" pager run --eager --files '*.bin' --budget "$budget" -- "${program[@]}"
run "pager, $budget" \
  "$memtide" pager run --stats --files '*.bin' --budget "$budget" -- "${program[@]}"

for sum in "${sums[@]}"; do
  [ "$sum" = "${sums[0]}" ] || { echo "the results differ"; exit 1; }
done
echo "all results are equal"
