#!/usr/bin/env bash
# Two tuners of one study on a Ray cluster, whose trials run side by side where it has room: ray.sh STUDY, on a node of the cluster
# and in a folder that all nodes share. Killed, it goes on where the study is when it is started again.
set -euo pipefail
tune=(strategist tune --model tiny --gpus 2x1xcpu --seq-len 64 --global-batch 8 --trials "${TRIALS:-6}" --confirm 0 --steps 3
  --study "$1" --engine ray)
"${tune[@]}" --quiet > tuner-2.log &
"${tune[@]}"
wait
