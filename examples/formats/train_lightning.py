"""A script as people have it: FSDP by Lightning's Trainer, around a module of their own."""

import lightning as L
from lightning.pytorch.strategies import FSDPStrategy
from model import Block, Model
from torch.utils.data import DataLoader

if __name__ == "__main__":
    strategy = FSDPStrategy(
        sharding_strategy="SHARD_GRAD_OP",
        auto_wrap_policy={Block},
        activation_checkpointing_policy={Block},
        state_dict_type="sharded",
    )
    trainer = L.Trainer(
        accelerator="gpu",
        devices=8,
        strategy=strategy,
        precision="bf16-mixed",
        accumulate_grad_batches=4,
        max_steps=1000,
    )
    model = Model()
    trainer.fit(model, DataLoader(model.dataset, batch_size=2, num_workers=4))
