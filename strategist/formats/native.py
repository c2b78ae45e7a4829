"""strategist's own plans, as ``strategist plan -o`` and ``--json`` write them, edited or not; devices are included."""

from collections.abc import Mapping
from dataclasses import fields

from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, full_name, value_of
from strategist.contract.workload import Workload
from strategist.formats.config_entries import Entries
from strategist.formats.format import ExportedFiles, File, Format
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source

PLAN, ANSWER = Plan.__name__, Answer.__name__


def recognises(source: Source) -> bool:
    """Whether a source is strategist's: JSON with the version and type of a plan or an answer."""
    kind = source.entries.get("type")
    return source.language == "json" and source.has("version") and kind is not None and kind.value in (PLAN, ANSWER)


def read(entries: Entries) -> ParsedConfig:
    """Settings of the plan; of an answer's best plan."""
    plan = _plan(entries)
    is_plan = entries.get("type") == PLAN
    entry_names = {name: f"candidate.{full_name(name)}" for name in SETTING_NAMES} | {"devices": "cluster.nodes"}
    entry_names |= {item.name: f"workload.{item.name}" for item in fields(Workload)}
    return ParsedConfig(
        settings={name: value_of(plan.candidate, name) for name in SETTING_NAMES},
        workload={item.name: getattr(plan.workload, item.name) for item in fields(Workload)},
        stack={"name": plan.stack}, model=plan.model, cluster=plan.cluster, devices=plan.cluster.devices,
        entry_names=entry_names if is_plan else dict.fromkeys(entry_names, "plans"),
    )  # fmt: skip


def _plan(entries: Entries) -> Plan:
    source = entries.source
    if entries.get("type") == PLAN:
        return codec.parse(Plan, source.text, source.path)
    answer = codec.parse(Answer, source.text, source.path)
    if not answer.plans:
        raise source.error("plans", f"holds no plan: {answer.verdict}")
    return answer.plans[0]


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """The plan unchanged; it holds its own reasons."""
    return ExportedFiles(files=(File(name="plan.json", text=codec.dumps(plan)),), command=("strategist", "run", "plan.json"))


FORMAT = Format(
    name="native", title="strategist's plan", recognises=recognises, read=read, write=write, ignores=("*",)
)  # fmt: skip
