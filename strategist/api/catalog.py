"""API of named models, clusters and profiles: what each name resolves to. Exported by ``strategist.api``."""

from strategist.contract.cluster import Cluster
from strategist.contract.model import NamedModel
from strategist.contract.workload import Workload
from strategist.cost.model_states import model_state_bytes
from strategist.formats.catalog import formats
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.hardware import device_names, find_device, load_device
from strategist.profiles.models import presets, resolve_model
from strategist.programs.backends import backends


def model(name: str) -> NamedModel:
    """The model that ``--model NAME`` resolves to, with the bytes of its model states.

    Raises:
        InputError, FileError: there is no such model, or the file cannot be read as a model.

    >>> from strategist.api import model
    >>> model("32b").shape.name
    'qwen2.5-32b'
    """
    resolved = resolve_model(name)
    workloads = {"full training, adamw": Workload(), "full training, adamw8bit": Workload(optimizer="adamw8bit")}
    workloads |= {"lora": Workload(train="lora"), "qlora": Workload(train="qlora")}
    state_bytes = {name: int(model_state_bytes(resolved.shape, workload)) for name, workload in workloads.items()}
    return NamedModel(shape=resolved.shape, note=resolved.note, state_bytes=state_bytes)


def cluster(name: str, *, by_device: bool = True) -> Cluster:
    """The cluster that ``--gpus NAME`` resolves to. With ``by_device``, the name of a device alone means its usual node.

    Raises:
        InputError, FileError: the name describes no cluster.

    >>> from strategist.api import cluster
    >>> cluster("16x8xH100").devices
    128
    """
    stem = find_device(name) if by_device else None
    return resolve_cluster(name if stem is None else f"{load_device(stem)[1].gpus_per_node}x{name}")


def profiles() -> dict[str, tuple[str, ...]]:
    """Known names, by kind: models, devices, backends and formats."""
    return {"models": presets(), "devices": device_names(), "backends": backends(), "formats": formats()}
