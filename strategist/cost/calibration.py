"""Calibration: factors that bring the model's parts to what was measured on a cluster."""

import hashlib
from dataclasses import dataclass

from strategist.contract import codec


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Factors on predicted parts; 1 says what the profiles say. ``trials`` is how many measurements they come from.

    ``compute`` stretches everything that devices compute, ``communication`` every collective, ``launch`` the host's time to launch
    kernels; ``overhead_seconds`` is added to each step; ``memory`` stretches what comes and goes within a step.
    """

    compute: float = 1.0
    communication: float = 1.0
    launch: float = 1.0
    overhead_seconds: float = 0.0
    memory: float = 1.0
    trials: int = 0

    @property
    def digest(self) -> str:
        return hashlib.sha256(codec.dumps(self).encode()).hexdigest()[:16]


NEUTRAL = Calibration()
