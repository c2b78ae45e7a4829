#!/usr/bin/env bash
# Two trials at once on a Ray cluster, each on a node of its own: ray.sh STUDY, on a node of the cluster and in a folder that all nodes
# share. Killed, it goes on where the study is when it is started again.
set -euo pipefail
exec strategist tune --model tiny --gpus 1xcpu --seq-len 64 --global-batch 8 --trials "${TRIALS:-6}" --confirm 0 --steps 3 \
  --study "$1" --engine ray --at-once 2
