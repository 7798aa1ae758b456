#!/usr/bin/env bash
# Runs the GPU tests that lie beside this script. Needs a GPU with its driver and NVRTC; no Rust, no toolkit.
#
#   bash run-tests.sh [FOLDER]    results go to FOLDER; by default benches/results of the checkout, else ./results
#
# Where compute-sanitizer is found, a small set of tests runs under its memcheck, racecheck and initcheck, too.
set -uo pipefail

# Small tests that touch every kernel: the sanitizer slows them down a hundredfold.
sanitized=(sanitize slices_before_the_end)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(cd "$here/../.." && pwd)/benches/results
results=${1:-$([[ -d $checkout ]] && echo "$checkout" || echo "$here/results")}
mkdir -p "$results"
# Only what is here: the data may lie elsewhere on the machine that built this.
export BEAMSTREAM_TEST_DATA=${BEAMSTREAM_TEST_DATA:-$here/data}
log=$(mktemp)
table=$(mktemp)
failures=0

# run NAME COMMAND...: runs a test program and adds its line to the table.
run() {
    local name=$1 began=$SECONDS passed failed skipped verdict=passed
    shift
    echo "== $name"
    if "$@" >"$log" 2>&1; then :; else
        verdict=FAILED
        failures=$((failures + 1))
    fi
    grep -v -e '^test .* ok$' -e '^running ' -e '^$' "$log"
    passed=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$log" | paste -sd+ | sed 's/^$/0/')
    failed=$(sed -n 's/^test result: .* \([0-9]*\) failed.*/\1/p' "$log" | paste -sd+ | sed 's/^$/0/')
    skipped=$(grep -c 'skipped: ' "$log")
    echo "| $name | $verdict | $((passed)) | $((failed)) | $skipped | $((SECONDS - began)) |" >>"$table"
}

gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sort | uniq -c | sed 's/^ *//')
"$here/bin/beamstream" doctor || true
for program in "$here"/tests/*; do
    # What looks at the sources cannot do so on another machine.
    run "$(basename "$program")" "$program" --nocapture --test-threads=1 --skip every_kernel_file_is_listed
done

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
if [[ -n $sanitizer ]]; then
    for tool in memcheck racecheck initcheck; do
        for program in "$here"/tests/conformance*; do
            [[ -x $program ]] || continue
            # Asking the driver for a parameter that a kernel does not have is how their number is found.
            options=$([[ $tool == memcheck ]] && echo "--report-api-errors no")
            run "$tool of $(basename "$program")" "$sanitizer" --tool "$tool" $options --error-exitcode 99 \
                "$program" "${sanitized[@]}" --nocapture --test-threads=1
        done
    done
else
    echo "skipped: compute-sanitizer is not installed"
    echo "| compute-sanitizer | skipped: not installed | 0 | 0 | 1 | 0 |" >>"$table"
fi

commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
{
    echo "# Tests on a GPU"
    echo
    echo "${gpu:-no GPU}; $date; commit $commit; \`cargo xtask gpu-test\` (\`run-tests.sh\`)."
    echo
    echo "| program | verdict | passed | failed | skipped a part | seconds |"
    echo "|---|---|---|---|---|---|"
    cat "$table"
} >"$results/gpu-tests.md"
{
    printf '{"gpu": "%s", "date": "%s", "commit": "%s", "command": "cargo xtask gpu-test", "programs": [' "$gpu" "$date" "$commit"
    sed -e 's/^| \(.*\) | \(.*\) | \(.*\) | \(.*\) | \(.*\) | \(.*\) |$/{"name": "\1", "verdict": "\2", "passed": \3, "failed": \4, "skipped": \5, "seconds": \6}/' \
        "$table" | paste -sd,
    echo ']}'
} >"$results/gpu-tests.json"
cat "$results/gpu-tests.md"
exit $((failures > 0))
