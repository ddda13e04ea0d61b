#!/bin/sh
# Checks the machine code for AMX on an x86-64 Linux without AMX, by running those instructions in software (amx.c):
# the tests of tiles, and the default model's logits, which must equal those with emulated tiles to the last bit.
# Needs gcc and the project's environment; takes about five minutes.  tests/amx/check.sh [FOLDER]
set -eu
cd "$(dirname "$0")/../.."
python="${PYTHON:-.venv/bin/python}"
work="${1:-$(mktemp -d)}"
mkdir -p "$work/cache"
gcc -O3 -mavx2 -mfma -Wall -Wextra -shared -fPIC -o "$work/amx.so" tests/amx/amx.c
models="$("$python" -c 'from engine.catalog import resolve; print(resolve("smollm2-135m-instruct").parent)')"
ln -sfn "$models" "$work/cache/models"
target="$("$python" -c 'import llvmlite.binding as l
have = [f for f in l.get_host_cpu_features().flatten().split(",") if "amx" not in f]
print(l.get_host_cpu_name(), ",".join([*have, "+amx-tile", "+amx-bf16"]))')"
export NUMBA_CPU_NAME="${target%% *}" NUMBA_CPU_FEATURES="${target#* }" KVSCOPE_CACHE_DIR="$work/cache" AMX_COUNT=1
unset KVSCOPE_TILES

LD_PRELOAD="$work/amx.so" "$python" -m pytest -q -p tests.amx.granted -p no:faulthandler -p no:cacheprovider \
    tests/kernels/test_tiles.py tests/kernels/test_tile_programs.py

echo '[[1, 4093, 198, 1780, 511, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198, 504, 3575]]' >"$work/ids.json"
logits='import tests.amx.granted
import sys
from engine.cli import main
sys.exit(main(["logits", "smollm2-135m-instruct", "--file", sys.argv[1], "--top", "1000", "--json"]))'
LD_PRELOAD="$work/amx.so" "$python" -c "$logits" "$work/ids.json" >"$work/amx.json"
KVSCOPE_TILES=emulated "$python" -c "$logits" "$work/ids.json" >"$work/emulated.json"
cmp "$work/amx.json" "$work/emulated.json"
echo "the same bits"
