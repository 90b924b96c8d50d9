#!/usr/bin/env bash
# Real programs that map what they read, for tests and for `cargo xtask pager-programs`.
#
# usage: programs.sh needs NAME              says what is missing (exit status 1 then)
#        programs.sh make NAME FOLDER MIB    makes its data
#        programs.sh read NAME FOLDER        reads it; the same words in every run
# NAME: sqlite3 lmdb ripgrep numpy safetensors git pyarrow faiss usearch
# environment: PYTHON (python3), READS (20000; the others read in proportion), SMALL (400 reads)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
what=$1 name=$2 folder=${3:-} mib=${4:-64}
python=${PYTHON:-python3}
module=
case $name in
numpy | lmdb) module=$name ;;
safetensors) module=safetensors.numpy ;;
pyarrow) module=pyarrow.compute ;;
faiss) module=faiss ;;
usearch) module=usearch.index ;;
esac
# Where python3 is not the system's, that one may have what it lacks.
if [ "$module" ] && ! "$python" -c "import $module" 2>/dev/null && /usr/bin/python3 -c "import $module" 2>/dev/null; then
  python=/usr/bin/python3
fi
reads=${SMALL:+400}
reads=${reads:-${READS:-20000}}

program() { command -v "$1" >/dev/null || { echo "no program $1"; exit 1; }; }

case "$what $name" in
"needs sqlite3") program sqlite3 ;;
"needs ripgrep") program rg ;;
"needs git") program git ;;
"needs numpy" | "needs lmdb" | "needs safetensors" | "needs pyarrow" | "needs faiss" | "needs usearch")
  "$python" -c "import $module" 2>/dev/null || { echo "no $module for $python"; exit 1; }
  ;;

# Rows of 2,000 bytes, looked up one by one in an order that repeats after all of them.
"make sqlite3")
  sqlite3 "$folder/data.db" "create table t(k integer primary key, v blob);
    with recursive n(k) as (select 0 union all select k + 1 from n where k + 1 < $((mib * 512)))
    insert into t select k, randomblob(1900) from n;"
  ;;
"read sqlite3")
  sqlite3 "$folder/data.db" "pragma mmap_size = 2147418112; pragma cache_size = 50;
    with recursive n(i, k) as (
      select 0, 0 union all
      select i + 1, (i + 1) * 2654435761 % (select max(k) + 1 from t) from n where i < $reads)
    select count(*), sum(length(v)), hex(max(v)) from n join t using (k);"
  ;;

"make ripgrep")
  awk -v lines=$((mib * 22000)) 'BEGIN { for (n = 0; n < lines; n++)
    printf "line %d of a text that somebody searches%s\n", n, n % 1000 ? "" : " for a needle" }' \
    >"$folder/data.txt"
  ;;
"read ripgrep") rg --mmap --no-config --count 'needle$' "$folder/data.txt" ;;

# Blobs that do not compress, in one pack.
"make git")
  git init --quiet "$folder/work"
  for number in $(seq "$mib"); do head -c 1048576 /dev/urandom >"$folder/work/$number"; done
  git -C "$folder/work" add .
  git -C "$folder/work" -c user.name=n -c user.email=e -c core.compression=0 commit --quiet -m all
  git -C "$folder/work" -c pack.window=0 repack -adq
  ;;
"read git")
  git -C "$folder/work" -c core.packedGitWindowSize=4m cat-file --batch-all-objects --batch |
    sha256sum
  ;;

"make numpy") head -c $((mib << 20)) /dev/urandom >"$folder/data.bin" ;;
"read numpy") "$python" "$here/memmap.py" "$folder/data.bin" "$reads" 2 2>/dev/null ;;

"make lmdb" | "make safetensors" | "make pyarrow" | "make faiss" | "make usearch" | \
  "read lmdb" | "read safetensors" | "read pyarrow" | "read faiss" | "read usearch")
  "$python" "$here/programs.py" "$what" "$name" "$folder" "$([ "$what" = make ] && echo "$mib" || echo "$reads")"
  ;;
*) echo "usage: programs.sh needs|make|read NAME [FOLDER] [MIB]" >&2; exit 2 ;;
esac
