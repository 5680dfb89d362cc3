#!/usr/bin/env bash
# Every test that needs a CUDA device, each told as it ends, with a summary at the end (a Ctrl-C
# brings it too). Run it on a machine that has one.
set -uo pipefail
cd "$(dirname "$0")/.."
# Tests run programs in other folders: full paths.
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$(tr : '\n' <<<"$PYTHONPATH" | xargs -d '\n' realpath -ms | paste -sd:)}"
python3 -c 'import torch; assert torch.cuda.is_available(), "no CUDA device here"' || exit 3
python3 -m pytest -m gpu -p no:cacheprovider -vv -rA --show-capture=no "$@"
