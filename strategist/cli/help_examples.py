"""Examples in the help of each command: lines that can be pasted into a shell."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": ("strategist init -o request.yaml",),
    "plan": (
        "strategist plan --model 32b --gpus 8x24GB",
        "strategist plan --model llama3-70b --gpus 8x8xH100 --seq-len 8192 --fix tp=8 -o plan.json",
        "strategist plan --model 8b --gpus 4x8xH100 --tokens 1T --node-failures 6h --price 2.5",
        "strategist plan --model 8b --gpus 8xH100 --show backends",
        "strategist plan --model 8b --gpus 2x8xH100 --to axolotl --job slurm --job-output job/",
    ),
    "run": (
        "strategist run plan.json",
        "strategist run plan.json --steps 1000 --save checkpoints --data tokens.bin",
        "strategist run plan.json --hosts node1,node2",
    ),
    "tune": (
        "strategist tune --request request.yaml --trials 8 --study studies/mine",
        "strategist tune --request request.yaml --study studies/mine --engine slurm --slurm=--partition=gpu --at-once 4",
        "strategist tune --request request.yaml --study studies/mine --pareto memory,cost",
    ),
    "study": (
        "strategist study list studies",
        "strategist study show studies/mine",
        "strategist study export studies/mine --to trials.csv",
    ),
    "watch": ("strategist watch studies/mine",),
    "explain": (
        "strategist explain plan.json",
        "strategist explain plan.json --why-not recompute=full",
        "strategist explain plan.json --lang zh",
    ),
    "report": ("strategist report plan.json -o report.html", "strategist report studies/mine"),
    "compare": ("strategist compare plan.json other.json",),
    "check": (
        "strategist check ds_config.json --model 8b --gpus 8x24GB",
        "strategist check train.yaml --gpus 8xH100 --output github",
    ),
    "import": ("strategist import axolotl.yaml --gpus 8x24GB -o plan.json",),
    "export": (
        "strategist export plan.json --to pytorch -o train/",
        "strategist export plan.json --to torchtitan --job slurm -o train/",
    ),
    "simulate": ("strategist simulate plan.json --all-stages",),
    "shadow": ("strategist shadow plan.json --rank 0",),
    "trace": ("strategist trace plan.json -o trace.json",),
    "cards": (
        "strategist cards list",
        "strategist cards show FSDP-001",
        "strategist cards new TP-101 --out my-cards && strategist cards lint my-cards",
    ),
    "accuracy": ("strategist accuracy",),
    "bench": ("strategist bench replay --samplers surrogate,random",),
    "profile": (
        "strategist profile && strategist plan --model 8b --gpus local",
        "strategist profile --nccl-tests all_reduce.log all_gather.log -o cluster.yaml",
    ),
    "topo": ("strategist topo -o cluster.yaml --nodes 4",),
    "doctor": ("strategist doctor",),
    "scale": ("strategist scale plan.json --gpus 1,2,4 --weak",),
    "programs": ("strategist programs torchtitan --plan plan.json",),
    "schema": (
        "strategist schema answer",
        "strategist schema -o schemas",
    ),
    "completion": ('eval "$(strategist completion bash)"',),
    "mcp": ("strategist mcp --workspace .", "strategist mcp --workspace . --grant trials=3,minutes=30"),
    "models": ("strategist models show 32b",),
    "hardware": ("strategist hardware show h100",),
    "profiles": ("strategist profiles --json",),
    "config": ("strategist config",),
}
