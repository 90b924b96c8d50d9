#!/usr/bin/env bash
# llama.cpp, unmodified, with a model larger than the memory that it may have: kept
# by the kernel, and by the pager. Medians of some rounds, the ways in turn in each.
#
# usage: demo/llama.sh [MIB]
# environment: TOKENS, THREADS, ROUNDS, INSTANCES ("1 3"), SHARE (of the model's size
# that may be in memory, in percent), PYTHON (one that has llama_cpp and gguf;
# otherwise they are built into a virtual environment, which takes a while).
set -euo pipefail
cd "$(dirname "$0")/.."

mib=${1:-1555}
tokens=${TOKENS:-16} threads=${THREADS:-$(nproc)} rounds=${ROUNDS:-3}
instances=${INSTANCES:-1 3} share=${SHARE:-50}

cargo build --release --quiet -p memtide -p memtide-pager-preload
memtide=$(realpath "${CARGO_TARGET_DIR:-target}/release/memtide")

python=${PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/memtide-demo/llama/bin/python}
if ! "$python" -c 'import llama_cpp, gguf' 2>/dev/null; then
  echo "building llama.cpp, once"
  python3 -m venv "$(dirname "$(dirname "$python")")"
  # Not for this very processor: where it has AMX, llama.cpp copies the weights and reads no mapping.
  CMAKE_ARGS="-DGGML_NATIVE=OFF${CMAKE_ARGS:+ $CMAKE_ARGS}" \
    "$python" -m pip install --quiet --disable-pip-version-check gguf llama-cpp-python==0.3.36
fi

# Not in memory: what lies there cannot be evicted.
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/memtide-demo.XXXXXX")
trap 'rm -rf "$folder"' EXIT
model=$folder/model.gguf
"$python" demo/llama.py make "$model" "$mib"
size=$(($(stat -c %s "$model") >> 20))
budget=$((size * share / 100))

# Drops the model from memory, so that every run begins alike.
forget() { dd of="$model" oflag=nocache conv=notrunc,fdatasync count=0 status=none; }

# COUNT instances at once: their texts, one line each. Fails if one of them does.
cat >"$folder/several" <<'END'
#!/bin/sh
count=$1 started=; shift
while [ "$count" -gt 0 ]; do "$@" & started="$started $!"; count=$((count - 1)); done
failed=0
for one in $started; do wait "$one" || failed=$?; done
exit "$failed"
END
chmod +x "$folder/several"

# One run: NAME COUNT COMMAND..; adds "seconds shootdowns peak share" to its results.
run() {
  local name=$1 count=$2; shift 2
  forget
  mkfifo "$folder/end"
  "$python" demo/llama.py watch "$model" "$budget" <"$folder/end" >"$folder/seen" &
  exec 9>"$folder/end"
  local before began
  before=$("$python" demo/llama.py shootdowns)
  began=$(date +%s.%N)
  "$@" "$folder/several" "$count" "$python" demo/llama.py run "$model" "$tokens" "$threads" \
    >"$folder/text" 2>"$folder/said" || { cat "$folder/said"; exec 9>&-; rm "$folder/end"; return 1; }
  local ended after
  ended=$(date +%s.%N)
  after=$("$python" demo/llama.py shootdowns)
  echo end >&9
  exec 9>&-
  wait $!
  rm "$folder/end"
  grep -h '^memtide' "$folder/said" || true
  sed "s/^/$name.$count: /" "$folder/text" >>"$folder/texts"
  echo "$(echo "$ended - $began" | bc) $((after - before)) $(cat "$folder/seen")" >>"$folder/$name.$count"
}

echo "llama.cpp, $size MiB of weights, $tokens tokens, $threads threads, budget $budget MiB, load $(cut -d' ' -f1-3 /proc/loadavg)"
pager=("$memtide" pager run --files '*.gguf' --budget "${budget}MiB")
for round in $(seq "$rounds"); do
  for count in $instances; do
    run free "$count" env || exit 1
    run kernel "$count" "${pager[@]}" --plain -- || echo "(the kernel's way needs a memory cgroup)"
    run pager "$count" "${pager[@]}" -- || exit 1
  done
done

median() { cut -d' ' -f"$1" "$2" | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
printf '\n%-38s %9s %11s %10s %s\n' '' time shootdowns peak 'looks above budget + 5 %'
for count in $instances; do
  for way in "free no limit" "kernel kernel, memory cgroup" "pager memtide pager run"; do
    file=$folder/${way%% *}.$count
    [ -s "$file" ] || continue
    printf '%-38s %7.1f s %11d %6d MiB %s %%\n' "$count x ${way#* }" "$(median 1 "$file")" \
      "$(median 2 "$file")" "$(median 3 "$file")" "$(median 4 "$file")"
  done
done
if [ "$(cut -d: -f2 "$folder/texts" | sort -u | wc -l)" != 1 ]; then
  echo "the texts differ (how often, way and instances, text):"
  sort "$folder/texts" | uniq -c
  exit 1
fi
echo "all texts are equal"
