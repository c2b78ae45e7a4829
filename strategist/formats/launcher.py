"""Settings that a trainer's file leaves to its launcher: accelerate may shard what the trainer's file does not.

Options of ``accelerate launch`` override its file (accelerate 1.15.0, commands/launch.py: ``_validate_launch_command``).
transformers 5.23.0 takes the launcher's precision if its arguments state none, and the launcher's DeepSpeed if they have no
``deepspeed``, with or without ``fsdp`` (training_args.py; accelerate's state.py). Gradient accumulation must be the same in both
(integrations/deepspeed.py: ``trainer_config_finalize``).
"""

import os
from dataclasses import field, replace
from pathlib import Path

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.errors import FileError
from strategist.formats import accelerate, trl_accelerate_configs
from strategist.formats.accelerate_export import DYNAMO, FSDP, PARALLELISM, ZERO
from strategist.formats.accelerate_launch import default_file
from strategist.formats.config_entries import Entries
from strategist.formats.config_reader import parse_config
from strategist.formats.finding_codes import finding
from strategist.formats.memory_effects import LAUNCH_FILE
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.referenced_files import find_file, named_entries
from strategist.formats.source import Entry, Launch, Source, load
from strategist.frozen import frozen

PREFIX = "accelerate."
"""Prefix of the launcher's entries among those of the trainer."""

_TYPE = "distributed_type"
_FLAGS = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM", "multi_gpu": "MULTI_GPU"}
"""Options that set the distributed type; they override the file."""

_SECTIONS = {
    **{f"{prefix.partition('.')[2]}_": prefix.partition(".")[0] for prefix in (FSDP, DYNAMO, PARALLELISM, accelerate.MEGATRON)},
    **dict.fromkeys(("zero", "offload_", "gradient_", "deepspeed_"), ZERO),
}
"""Section of the file that an option belongs to, by the prefix of the option's name."""

_SECTION_TYPES = {ZERO: "DEEPSPEED", FSDP.partition(".")[0]: "FSDP", accelerate.MEGATRON.partition(".")[0]: "MEGATRON_LM"}
"""Sections that the launcher passes on to ranks of one distributed type only."""

_PLAIN = ("mixed_precision", "num_machines", "num_processes")
_UNSET: dict[str, KnobValue] = {"recompute": "none", "compile": False, "fullgraph": False, "activation_offload": False}
"""Values at which the launcher leaves a setting to the trainer."""


@frozen
class LauncherConfig:
    """Settings of the launcher. ``kind``: its distributed type; empty if unknown."""

    kind: str = ""
    config: ParsedConfig = field(default_factory=ParsedConfig)

    @property
    def shards_first(self) -> bool:
        """Whether the launcher's sharding overrides the trainer's own ``fsdp``."""
        return self.kind == "DEEPSPEED"


def with_launcher_entries(source: Source) -> Source:
    """The script with its launcher's entries: those of the launcher's file, overridden by the launcher's options."""
    source = _named_by_trainer(source)
    if source.launch is None or not source.launch.accelerate:
        return source
    file, _ = _launcher_file(source)
    stated = {entry.name: entry for entry in named_entries(file)} if file else {}
    for option, entry in source.launch.options.items():
        section = next((section for prefix, section in _SECTIONS.items() if option.startswith(prefix)), "")
        if option in _FLAGS:
            stated[_TYPE] = replace(entry, value=_FLAGS[option])
        elif section or option in _PLAIN:
            name = f"{section}.{option}" if section else option
            stated[name] = entry
    kind = stated[_TYPE].value if _TYPE in stated else ""
    passed = {name: entry for name, entry in stated.items() if _SECTION_TYPES.get(name.partition(".")[0], kind) == kind}
    found = {f"{PREFIX}{name}": replace(entry, name=f"{PREFIX}{name}") for name, entry in passed.items()}
    return replace(source, entries={**source.entries, **found})


def _named_by_trainer(source: Source) -> Source:
    """Settings of TRL's trainer that name the launcher's file, which its command takes from there."""
    named = source.entries.get(trl_accelerate_configs.CONFIG)
    if named is None:
        return source
    options = {"config_file": named, **(source.launch.options if source.launch else {})}
    entries = {name: entry for name, entry in source.entries.items() if name != trl_accelerate_configs.CONFIG}
    return replace(source, entries=entries, launch=Launch(accelerate=True, options=options))


def launcher_config(entries: Entries, precision: str = "") -> LauncherConfig:
    """Settings of the launcher, for a trainer that computes in ``precision``; empty if the trainer states none."""
    source = entries.source
    stated = {name.removeprefix(PREFIX): entry for name, entry in source.entries.items() if name.startswith(PREFIX)}
    entries.get(*(f"{PREFIX}{name}" for name in stated))
    if not stated:
        return LauncherConfig()
    kind = stated.get(_TYPE)
    if precision:
        stated["mixed_precision"] = replace(stated.get("mixed_precision") or Entry(name="", value=""), value=precision)
    launcher_entries = {name: replace(entry, name=name) for name, entry in stated.items()}
    path = (kind.path if kind else "") or source.path
    found = parse_config(Source(path=path, text="", language="yaml", entries=launcher_entries), accelerate.FORMAT)
    entry_names = {setting: f"{PREFIX}{name}" for setting, name in found.entry_names.items() if name in stated}
    return LauncherConfig(
        kind=str(kind.value) if kind and kind.value in accelerate.KINDS else "", config=replace(found, entry_names=entry_names)
    )


def sharded_by_launcher(found: ParsedConfig, launcher: LauncherConfig, entries: Entries) -> ParsedConfig:
    """The config of a trainer that does not shard, sharded as its launcher does.

    If the launcher's type is unknown, an open finding is added, which a given ``dp_shard`` resolves. A script that is not
    started by accelerate is unchanged: torchrun shards nothing.
    """
    source, config = entries.source, launcher.config
    if not launcher.kind:
        return found if source.launch and not source.launch.accelerate else _with_unknown_launcher(found, source)
    left_to_trainer = {name for name, unset in _UNSET.items() if config.settings.get(name) == unset}
    left_to_trainer |= {"no_sync"} if launcher.kind != "DEEPSPEED" else set()  # decided by the trainer
    left_to_trainer |= {"reduce_dtype"} if accelerate.KINDS[launcher.kind] == "replicas" else set()
    settings = {name: value for name, value in config.settings.items() if name not in left_to_trainer}
    entry_names = {name: entry for name, entry in config.entry_names.items() if name in (*settings, "devices")}
    return replace(
        found, settings={**{name: value for name, value in found.settings.items() if name != "dp_shard"}, **settings},
        workload={**found.workload, **{name: value for name, value in config.workload.items() if name == "global_batch"}},
        spare=config.spare, devices=config.devices, stack=config.stack,
        entry_names={**found.entry_names, "dp_shard": f"{PREFIX}{_TYPE}", **entry_names},
        findings=(*found.findings, *config.findings, *_accumulation_findings(config, entries), *_default_file_findings(source)),
    )  # fmt: skip


def _accumulation_findings(config: ParsedConfig, entries: Entries) -> tuple[Diagnostic, ...]:
    """Finding if launcher and trainer state different gradient accumulation."""
    name, trainer_steps = "gradient_accumulation_steps", entries.integer("gradient_accumulation_steps") or 1
    if config.accumulation in (None, trainer_steps):
        return ()
    text = f"{name} is {config.accumulation} of the launcher's DeepSpeed and {trainer_steps} of the trainer, which ends on it"
    do = "make them equal, or leave the launcher's out"
    return (finding("FMT-004", text, do, entries.source, f"{PREFIX}{ZERO}.{name}"),)


def _with_unknown_launcher(found: ParsedConfig, source: Source) -> ParsedConfig:
    """The config as DDP, with a finding that the launcher's file may shard, and which file that is."""
    _, reason = _launcher_file(source)
    prefix = f"{reason}: " if reason else "the file has neither deepspeed nor fsdp: "
    do = "give --fix dp_shard=GPUS where it does, dp_shard=1 where it does not"
    do = f"name the file by a path that leads to it, or {do}" if reason else do
    unread = finding("FMT-011", f"{prefix}DDP is assumed, and {LAUNCH_FILE} may shard", do, source, about=LAUNCH_FILE)
    named = source.launch.options.get("config_file") if source.launch else None
    unread = replace(unread, line=named.line if named else None)
    return replace(found, entry_names={**found.entry_names, "dp_shard": LAUNCH_FILE}, findings=(*found.findings, unread))


def _default_file_findings(source: Source) -> tuple[Diagnostic, ...]:
    """The finding that accelerate's default file of this machine is read, if the command names no other."""
    if source.launch is None or "config_file" in source.launch.options:
        return ()
    text = f"--config_file is not given: accelerate's default file of this machine is read, {default_file()}"
    return (finding("FMT-003", text, "name the file that counts by --config_file", source, about=LAUNCH_FILE),)


def _launcher_file(source: Source) -> tuple[Source | None, str]:
    """The file that the launcher is given, else its default file; and why it cannot be read where there is one."""
    named = source.launch.options.get("config_file") if source.launch else None
    if named is None:
        has_default = source.launch and "cpu" not in source.launch.options and os.path.isfile(default_file())
        return _load_launcher_file(default_file(), f"accelerate's default file {default_file()}") if has_default else (None, "")
    value, subject = str(named.value), f"--config_file {named.value}"
    if "$" in value:
        return None, f"{subject} is known only where the script runs"
    path = find_file(source.path, value)
    if path is None:
        shipped = trl_accelerate_configs.shipped(value)
        return (shipped, "") if shipped else (None, f"{subject} is not found from the script's folder up")
    return _load_launcher_file(path, subject)


def _load_launcher_file(path: Path, subject: str) -> tuple[Source | None, str]:
    try:
        file = load(path)
    except FileError as error:
        return None, f"{subject} cannot be read ({error})"
    return (file, "") if accelerate.recognises(file) else (None, f"{subject} has no {_TYPE}")
