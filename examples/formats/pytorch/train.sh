#!/usr/bin/env bash
# strategist plan 697e0f611c07: tiny on 4xcpu
# 16 sequences of 128 tokens a step, fp32, adamw
# expected: 90.4 ms a step, 22,650 tokens/s, 30.2 MiB of 1.8 GiB a device
set -euo pipefail
arguments=(
  train.py
)
exec torchrun --standalone --nproc-per-node=4 "${arguments[@]}" "$@"
