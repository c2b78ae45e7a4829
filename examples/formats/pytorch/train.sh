#!/usr/bin/env bash
# strategist plan b89b53a5e034: tiny on 4xcpu
# 16 sequences of 128 tokens a step, fp32, adamw
# expected: 99 ms a step, 20,694 tokens/s, 35.2 MiB of 1.8 GiB a device
set -euo pipefail
exec torchrun --standalone --nproc-per-node=4 train.py "$@"
