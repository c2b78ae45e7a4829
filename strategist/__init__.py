"""strategist: strategy cards, a cost model and measured trials that propose settings for distributed PyTorch training.

What most programs need is handed out here, loaded on first use; all use-cases are in :mod:`strategist.api`.

>>> import strategist
>>> answer = strategist.plan(strategist.Request(model="32b", gpus="8x24GB"))
>>> answer.plans[0].candidate.layout.pp
8
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strategist.api import plan as plan, run as run, study as study, tune as tune
    from strategist.contract.answer import Answer as Answer
    from strategist.contract.goals import Goals as Goals
    from strategist.contract.measurement import Measurement as Measurement, TrialSettings as TrialSettings
    from strategist.contract.plan import Plan as Plan
    from strategist.contract.request import Request as Request
    from strategist.contract.study import Study as Study
    from strategist.contract.workload import Workload as Workload
    from strategist.errors import FileError as FileError, InputError as InputError, StrategistError as StrategistError
    from strategist.search.tuning_result import TuningResult as TuningResult
    from strategist.tuner.limits import Limits as Limits

_PLACES = {
    "api": ("plan", "run", "study", "tune"),
    "contract.answer": ("Answer",),
    "contract.measurement": ("Measurement", "TrialSettings"),
    "contract.plan": ("Plan",),
    "contract.request": ("Request",),
    "contract.workload": ("Workload",),
    "errors": ("FileError", "InputError", "StrategistError"),
    "contract.goals": ("Goals",),
    "tuner.limits": ("Limits",),
    "search.tuning_result": ("TuningResult",),
    "contract.study": ("Study",),
}
_MODULES = {name: f"strategist.{module}" for module, names in _PLACES.items() for name in names}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'strategist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_MODULES)
