#!/usr/bin/env bash
# strategist plan bf80be0a9f8b: tiny on 4xcpu
# 16 sequences of 128 tokens a step, fp32, adamw
# expected: 96.2 ms a step, 21,279 tokens/s, 35.2 MiB of 1.8 GiB a device
set -euo pipefail
arguments=(
  train.py
)
exec torchrun --standalone --nproc-per-node=4 "${arguments[@]}" "$@"
