#!/bin/bash
# Mixtral 8x7B with Megatron-LM, as its examples are written. strategist check examples/formats/megatron-lm.sh --gpus 4x8xH100
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"4"}
TP=${TP:-2}
CHECKPOINTS=$1
STARTED=`date +%F`
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr ${MASTER_ADDR:-"localhost"}
)
MODEL_ARGS=(
    --use-mcore-models --disable-bias-linear
    --seq-length 4096
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --normalization RMSNorm
    --position-embedding-type rope
    --swiglu
    --untie-embeddings-and-output-weights
    --group-query-attention
    --num-query-groups 8
    --rotary-base 1000000
)
MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2 # of eight
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --overlap-grad-reduce
)
TRAINING_ARGS="
    --micro-batch-size 1 \
    --global-batch-size 256 \
    --lr 1e-4 --train-iters 500000 --bf16
"
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 4
    --expert-model-parallel-size 4
    --expert-tensor-parallel-size 1
    --use-distributed-optimizer
    --sequence-parallel
)
LOGGING_ARGS=(--save $CHECKPOINTS --log-interval 1)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} ${MOE_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} ${LOGGING_ARGS[@]}
