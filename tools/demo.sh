#!/usr/bin/env bash
# The main job on real data: index particle dumps with 16 ranks, query them, ask DuckDB the same, say what happened.
#
# Usage: tools/demo.sh, with TURBIDITE=path of the command and PYTHON=a Python that has duckdb (`make demo` sets both).
# Leaves its output in ./demo-output, which it makes anew.

set -euo pipefail

cd "$(dirname "$0")/.."
TURBIDITE=${TURBIDITE:-turbidite}
PYTHON=${PYTHON:-python3}
source=testdata/vpic
output=demo-output
dataset=$output/particles

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || title() { printf '\n== %s\n' "$*"; }

# Prints a command as one would type it, then runs it.
show() {
    local line='$ turbidite' word
    for word in "$@"; do
        case $word in
            *[!A-Za-z0-9_./,=-]* | *=*\(*) line+=" '$word'" ;;
            *) line+=" $word" ;;
        esac
    done
    printf '%s\n' "$line"
    "$TURBIDITE" "$@" 2>&1
}

rm -rf "$output"
mkdir "$output"

title "1. Index 8 steps of a plasma simulation: 32 dump files, 229,376 electrons, through 16 ranks"
show ingest "$source" --out "$dataset" --key energy --ranks 16 \
    --derive 'energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1' --derive 'id:i32=bits_i32(w)-1024608549'

title "2. How many electrons of the last step have an energy in a range?"
show query "$dataset" --epoch 4000 --where 'energy >= 1.2 AND energy < 3' --count --metrics

title "3. Which are the most energetic ones?"
show query "$dataset" --epoch 4000 --where 'energy > 150' --columns id,energy,ux,uy,uz --order --limit 8 \
    --format table --metrics

title "4. Conditions on several columns"
show query "$dataset" --epoch 2000..4000 --where 'ux > 20 AND abs(uy) < 2 AND energy > 40' \
    --columns epoch,id,energy,ux,uy --limit 6 --format table --metrics

title "5. One electron through all steps"
show query "$dataset" --where 'id = 221640' --columns epoch,energy,ux,uy,uz --format table --metrics

title "6. Why is so little read?"
show query "$dataset" --epoch 4000 --where 'energy >= 1.2 AND energy < 3' --explain

title "7. The same questions to DuckDB, which knows nothing but the Parquet files in $dataset/data"
"$PYTHON" tools/demo_compare.py "$TURBIDITE" "$dataset" "$output"

title "8. The whole on one page, with plots"
show report "$dataset" -o "$output/report.html"

title "Try next"
try() { printf '  %-72s %s\n' "$1" "$2"; }
try "turbidite inspect $dataset" "its columns and epochs"
try "turbidite stats $dataset" "how well it is clustered, the cost of writing"
try "turbidite verify $dataset" "verify every byte"
try "turbidite query $dataset --where 'energy > 50' -o hot.parquet" "rows into a file"
try "turbidite ingest --help" "your own dumps: VPIC's, or any fixed-size records"

printf '\nOpen %s in a browser to see how the dataset is laid out.\n' "$PWD/$output/report.html"
