#!/usr/bin/env bash
# Runs the GPU benchmark that lies beside this script. Needs a GPU with its driver and NVRTC; no Rust, no toolkit.
#
#   bash run-bench.sh [ARGUMENTS]    those of the benchmark: `bin/gpu --help` lists them
#
# Results go to benches/results of the checkout, else to ./results, unless --out says otherwise.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(cd "$here/../.." && pwd)/benches/results
results=$([[ -d $checkout ]] && echo "$checkout" || echo "$here/results")
mkdir -p "$results"
"$here/bin/beamstream" doctor || true
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
exec "$here/bin/gpu" --out "$results" --commit "$commit" "$@"
