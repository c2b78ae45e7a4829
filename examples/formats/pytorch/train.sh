#!/usr/bin/env bash
# strategist plan aa60f0fc625c: tiny on 4xcpu
# 16 sequences of 128 tokens a step, fp32, adamw
# expected: 103 ms a step, 19,828 tokens/s, 35.2 MiB of 1.8 GiB a device
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
exec torchrun --standalone --nproc-per-node=4 train.py "$@"
