#!/usr/bin/env bash
# compare.sh PREFIX [ROUNDS [RANKS]]: times LAMMPS alone and indexed, by turns, so that what else the machine does falls on
# all of them. PREFIX is where Turbidite is installed. 256,000 atoms are dumped six times, 98 MB in all.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lib=$(cd "$1" && pwd)/lib
rounds=${2:-3}
ranks=${3:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/run"
cp "$here/turbidite.toml" "$folder/keep.toml"
sed 's/^format/mode = "replace"\nformat/' "$here/turbidite.toml" > "$folder/replace.toml"
TIMEFORMAT='%R s, processor %U s and system %S s'
for ((round = 1; round <= rounds; round++)); do
    for mode in plain keep replace; do
        rm -rf "${folder:?}/run"/*
        given=()
        [ "$mode" = plain ] || given=("TURBIDITE_CONFIG=$folder/$mode.toml"
            "LD_PRELOAD=$lib/libturbidite_preload.so:$lib/libturbidite_preload_mpi.so")
        printf '%s: ' "$mode"
        time (cd "$folder/run" && mpirun --oversubscribe -n "$ranks" env "${given[@]}" lmp -in "$here/in.melt" \
            -var cells 40 -var steps 20 -var every 4 -screen none) 2>&1
    done
done
