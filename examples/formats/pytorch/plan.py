# strategist plan aa60f0fc625c: tiny on 4xcpu
# 16 sequences of 128 tokens a step, fp32, adamw
# expected: 103 ms a step, 19,828 tokens/s, 35.2 MiB of 1.8 GiB a device
# missing: data: --data with token ids; without it the text is synthetic
# missing: weights: --weights with a folder of Hugging Face's; without it they are random
# missing: learning rate, steps and checkpoints: LEARNING_RATE in plan.py is 0.0001 at every step; without --steps and --save FOLDER 10 steps are trained, and nothing is kept

LAYERS = 4
HIDDEN_SIZE = 128
HEADS = 8
KV_HEADS = 4
HEAD_SIZE = 16
FFN_SIZE = 384
VOCAB_SIZE = 512
ROPE_THETA = 10000.0
NORM_EPSILON = 1e-05
SEQ_LEN = 128
PRECISION = "float32"
LEARNING_RATE = 0.0001
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
SEED = 0
TP = 2
MICRO_BATCH = 8
RESHARD_AFTER_FORWARD = False  # FSDP-002: All links are equal, so a subgroup holds more memory and saves little traffic.
RESHARD_ROOT = False
REDUCE_DTYPE = "float32"
CHECKPOINT_INTERVAL = 1000
GLOBAL_BATCH = 16
MESH = {'dp_shard': 2, 'tp': 2}

# Settings that determined the code of the other files; to change one, plan and export again.
MODEL = "tiny"
OPTIMIZER = "adamw"
DP_SHARD = 2
OPTIMIZER_KERNEL = "fused"  # OPT-002: One kernel updates parameter and moments together; one for each operation passes over them about ten times.
RECOMPUTE = "none"  # AC-001: State and activations take less than half the device, at 34 bytes a token and hidden unit of each layer.
OFFLOAD = "none"  # OFF-001: A rank's share of the state, with the layer inputs of one sequence, its logits and their gradient, takes less than half the device.
SEQUENCE_PARALLEL = True  # TP-001: A reduce-scatter and an all-gather move what one all-reduce moves, and norms and residuals take 1/tp of the memory.
LOSS_PARALLEL = True
COMPILE = False  # COMP-003: The first step takes 7 to 29 s where other steps take under one, and CPUs have no kernel launches to save.
