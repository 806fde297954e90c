#!/bin/bash
# The demo on binaries that are already built: a private shuntd, four training processes, a table of shunt-perf.
#   examples/demo/run.sh [--no-table] [--ranks N] [--epochs N]
# SHUNT_BUILD_DIR names the build directory (default: build), PYTHON the interpreter with NumPy and scikit-learn.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${SHUNT_BUILD_DIR:-$root/build}
python=${PYTHON:-/usr/bin/python3}

table=true
arguments=()
for argument in "$@"; do
  if [ "$argument" = --no-table ]; then table=false; else arguments+=("$argument"); fi
done

for file in bin/shuntd lib/libshunt.so bin/shunt-perf; do
  [ "$table" = true ] || [ "$file" != bin/shunt-perf ] || continue
  [ -e "$build/$file" ] || { echo "demo: $build/$file is missing; run scripts/demo, which builds it" >&2; exit 1; }
done

directory=$(mktemp -d)
daemon=
cleanup() {
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$directory"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export SHUNT_SOCKET=$directory/shuntd.sock
"$build/bin/shuntd" --socket "$SHUNT_SOCKET" >"$directory/shuntd.log" 2>&1 &
daemon=$!
for _ in $(seq 200); do
  if [ -S "$SHUNT_SOCKET.lease" ] && [ -S "$SHUNT_SOCKET" ]; then break; fi
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.05
done
[ -S "$SHUNT_SOCKET.lease" ] || { echo "demo: shuntd did not start:" >&2; cat "$directory/shuntd.log" >&2; exit 1; }

# One thread in each process: the processes are the parallelism.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$root/client/python${PYTHONPATH:+:$PYTHONPATH}
export SHUNT_LIBRARY=$build/lib/libshunt.so
status=0
"$python" "$here/demo.py" --directory "$directory" "${arguments[@]}" || status=$?

[ "$table" = true ] || exit "$status"
for ranks in 2 4; do
  echo "shunt-perf all_reduce --ranks $ranks"
  "$build/bin/shunt-perf" all_reduce --ranks "$ranks" --socket "$SHUNT_SOCKET" \
    --min-bytes 8 --max-bytes 16777216 --factor 8
  echo
done
exit "$status"
