#!/bin/bash
# The demo on binaries that are already built: two private daemons as two nodes, four training processes, a table of
# shunt-perf.
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
daemons=()
cleanup() {
  for daemon in "${daemons[@]}"; do kill "$daemon" 2>/dev/null || true; done
  for daemon in "${daemons[@]}"; do wait "$daemon" 2>/dev/null || true; done
  rm -rf "$directory"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Two nodes: each daemon knows where the other is, on two ports that nobody has at present.
read -r port_a port_b < <("$python" -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))')
members=a=127.0.0.1:$port_a,b=127.0.0.1:$port_b
start() {  # NODE PORT
  "$build/bin/shuntd" --socket "$directory/$1.sock" --cluster-name demo --cluster-node "$1" \
    --cluster-listen "127.0.0.1:$2" --cluster-members "$members" >"$directory/$1.log" 2>&1 &
  daemons+=($!)
}
start a "$port_a"
start b "$port_b"
for node in a b; do
  for _ in $(seq 200); do
    if [ -S "$directory/$node.sock" ]; then break; fi
    kill -0 "${daemons[@]}" 2>/dev/null || break
    sleep 0.05
  done
  [ -S "$directory/$node.sock" ] || { echo "demo: shuntd did not start:" >&2; cat "$directory/$node.log" >&2; exit 1; }
done

# One thread in each process: the processes are the parallelism.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$root/client/python${PYTHONPATH:+:$PYTHONPATH}
export SHUNT_LIBRARY=$build/lib/libshunt.so
status=0
"$python" "$here/demo.py" --directory "$directory" --socket "$directory/a.sock" --socket "$directory/b.sock" \
  "${arguments[@]}" || status=$?

[ "$table" = true ] || exit "$status"
for ranks in 2 4; do
  echo "shunt-perf all_reduce --ranks $ranks  # on one node"
  "$build/bin/shunt-perf" all_reduce --ranks "$ranks" --socket "$directory/a.sock" \
    --min-bytes 8 --max-bytes 16777216 --factor 8
  echo
done
exit "$status"
