#!/usr/bin/env bash
# What boundby says of some models' fixes, and the clock, on a machine with a CUDA device:
#   scripts/gpu_predictions.sh FOLDER SECONDS MODEL...
# Rows are kept in FOLDER as each model ends. Put them into benchmarks/ledgers/predictions.jsonl.
set -uo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 3 ]; then
  echo "usage: scripts/gpu_predictions.sh FOLDER SECONDS MODEL..." >&2
  exit 2
fi
folder=$1 seconds=$2
shift 2
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python3 -c 'import torch; assert torch.cuda.is_available(), "no CUDA device here"' || exit 3
ledger=benchmarks/ledgers/predictions.jsonl
before=$(wc -l <"$ledger")
mkdir -p "$folder"
for model; do
  python3 benchmarks/predictions.py go "$model" --seconds "$seconds"
  tail -n "+$((before + 1))" "$ledger" >"$folder/predictions.jsonl"
done
