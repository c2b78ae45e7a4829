#!/usr/bin/env bash
# Llama 3 8B on one node, as TorchTitan's run_train.sh starts it: a registered configuration, and flags over it.
NGPU=${NGPU:-"8"}
MODULE=${MODULE:-"llama3"}
CONFIG=${CONFIG:-"llama3_8b"}

PYTORCH_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" \
  --local-ranks-filter 0 --role rank --tee 3 \
  -m torchtitan.train --module ${MODULE} --config ${CONFIG} \
  --parallelism.tensor_parallel_degree 2 --training.local_batch_size 2 --compile.enable
