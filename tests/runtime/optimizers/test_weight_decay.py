"""Which parameters are left out of weight decay."""

from strategist_runtime.optimizers.weight_decay import no_decay_parameters
from torch import nn


class PreNormBlock(nn.Module):
    """A block whose class name contains that of its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.RMSNorm(4)
        self.linear = nn.Linear(4, 4)


def test_matrices_of_a_block_named_after_its_norm_keep_their_weight_decay() -> None:
    model = nn.Sequential(PreNormBlock())
    groups = (["norms"], ["biases"], ["norms", "biases"])
    assert [no_decay_parameters([model], group) for group in groups] == [
        {"0.before.weight"}, {"0.linear.bias"}, {"0.before.weight", "0.linear.bias"},
    ]  # fmt: skip
