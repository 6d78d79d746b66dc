#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `peer` does among all GPUs of a node, in nine minutes with eight of them:
#
#   sh benchmarks/eight.sh FOLDER
#
# Builds altorch without kernels compiled ahead, unless BUILT=1; runs the tests that hold for any
# number of ranks on all GPUs; measures every collective from 8 B to 256 MiB, eager and in graphs,
# by each protocol of `peer` beside NCCL and torch's symmetric memory; decoding, experts, windows,
# two halves of the GPUs at the same time; and lets ranks fail. FOLDER gets rows (*.jsonl), what
# each part printed (*.log), and a line for each part in parts.txt. A part that takes too long is
# ended, and the next begins; none begins later than SECONDS_AT_MOST (520). RANKS: by default one
# for each GPU.
set -u
folder=${1:?usage: sh benchmarks/eight.sh FOLDER}
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
ranks=${RANKS:-$(nvidia-smi --list-gpus | wc -l)}
most=${SECONDS_AT_MOST:-520}
began=$(date +%s)
python=.venv/bin/python
failed=0
export OMP_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=

# part NAME SECONDS COMMAND...
part() {
  name=$1 limit=$2
  shift 2
  at=$(($(date +%s) - began))
  if [ "$at" -ge "$most" ]; then
    echo "$name: skipped, $at s after the beginning" | tee -a "$folder/parts.txt"
    return
  fi
  echo "== $name"
  timeout -k 5 "$limit" "$@" >"$folder/$name.log" 2>&1
  code=$?
  [ "$code" = 0 ] || failed=1
  tail -n 40 "$folder/$name.log" | cut -c 1-200
  echo "$name: exit code $code after $(($(date +%s) - began - at)) s of $limit" | tee -a "$folder/parts.txt"
}
# on RANKS MODULE ARGUMENTS...
on() {
  of=$1 module=$2
  shift 2
  echo "$python -m torch.distributed.run --standalone --nproc-per-node $of -m benchmarks.$module --json $folder/rows.jsonl $*"
}
tests() { echo "$python -m pytest -q -rf -p no:warnings -m gpu -n 2 --dist worksteal -k ${ranks}ranks $*"; }

: >"$folder/parts.txt"
[ -n "${BUILT:-}" ] || part build 150 env CMAKE_ARGS=-DALTORCH_AHEAD=OFF make build USE_SYSTEM=1
# shellcheck disable=SC2046  # words are meant to be split
{
  export ALTORCH_TEST_RANKS="$ranks"
  part tests_chosen 60 $(tests tests/python/test_cuda.py tests/python/test_cuda_quantized.py tests/python/test_cuda_token_switch.py)
  part tests_peer 60 env ALTORCH_ROUTE=cuda=peer $(tests tests/python/test_cuda.py tests/python/test_cuda_windows.py)
  part all_reduce 60 $(on "$ranks" cuda_collectives --operations all_reduce --modes sync,graph \
    --contenders al,al:peer/ll,al:peer/ll128,al:peer/ll128_two_shot,nccl,symm:two_shot)
  part moves 75 $(on "$ranks" cuda_collectives --operations all_gather,reduce_scatter,broadcast,all_to_all \
    --modes sync,graph --contenders al,al:peer,nccl)
  part decode 40 $(on "$ranks" cuda_decode)
  part experts 40 $(on "$ranks" token_switch --device cuda --tokens 4,64,512,4096 --turns 5)
  part quantized 30 $(on "$ranks" quantized --device cuda --dtypes bfloat16 --sizes 1M,16M,64M)
  part windows 25 $(on 2 cuda_windows)
  half=$((ranks / 2))
  if [ "$half" -ge 2 ]; then
    first=$(seq -s , 0 $((half - 1))) second=$(seq -s , "$half" $((ranks - 1)))
    (CUDA_VISIBLE_DEVICES="$second" timeout 40 $(on "$half" cuda_collectives --operations all_reduce --modes sync \
      --contenders al:peer,nccl --suffix _beside) >"$folder/second_half.log" 2>&1) &
    part halves 40 env CUDA_VISIBLE_DEVICES="$first" $(on "$half" cuda_collectives --operations all_reduce --modes sync \
      --contenders al:peer,nccl --suffix _half)
    wait
  fi
  part drill 50 $python -m tests.drill --device cuda --within 40 --json "$folder/drill.json"
}
echo "done after $(($(date +%s) - began)) s"
exit $failed
