import torch


class LossScale:
    """The factor on fp16 losses, which keeps small gradients from becoming 0 (arXiv 1710.03740, section 3.2)."""

    state = torch.tensor([2.0**16, 0.0])  # the scale, and the steps since gradients last overflowed

    @classmethod
    def value(cls):
        return cls.state[0].item()

    @classmethod
    def update(cls, overflow):
        """Halves the scale where gradients overflowed, doubles it after 2000 steps in which none did."""
        scale, good_steps = cls.state.tolist()
        if overflow and scale <= 1:
            raise SystemExit("training diverged: gradients overflow at a loss scale of 1")
        doubled = not overflow and good_steps == 1999
        cls.state[0] = scale / 2 if overflow else scale * 2 if doubled else scale
        cls.state[1] = 0 if overflow or doubled else good_steps + 1
