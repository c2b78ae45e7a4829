"""API of config files of other frameworks: reads, checks and imports them, and exports a plan as one. Exported by
``strategist.api``.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from strategist.api.cards import Folders, Ids, load_cards
from strategist.api.plans import check_legal
from strategist.contract.estimate import DEFAULT_CONFIDENCE
from strategist.contract.plan import Plan
from strategist.contract.review import Review
from strategist.contract.settings import full_name, value_of
from strategist.cost.calibration import load_calibration
from strategist.errors import FileError, InputError
from strategist.expr.evaluate import Facts
from strategist.files import outputs
from strategist.formats.catalog import backend, find_format, formats, readable_formats
from strategist.formats.completed_config import GivenValues, setup
from strategist.formats.export_notes import header_lines
from strategist.formats.finding_codes import finding
from strategist.formats.format import ExportedFiles, File
from strategist.formats.supported_plan import supported_plan
from strategist.launch.catalog import JOBS, NONE, unused_options as unused_job_options, with_job
from strategist.launch.job import JobOptions
from strategist.rules.backend import Backend
from strategist.search.facts import situation_facts

REQUIRED_PARTS = ("layout", "model", "workload", "device")
"""Parts of a plan that a format must be able to express: otherwise its file would train something else."""

__all__ = [
    "JOBS", "JobOptions", "check_config", "export_plan", "find_format", "formats", "import_plan", "job_file", "named_model",
    "readable_formats", "unused_job_options", "write_files",
]  # fmt: skip


def import_plan(
    path: str | Path,
    given: GivenValues,
    *,
    format: str = "",
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> Review:
    """Reads the plan that another framework's file describes, as that framework would run it, with findings about the file.

    Args:
        given: values that the file does not state, such as model and GPUs.
        format: name of the format; recognised from the file if empty.
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: file with the calibration of a study; None for the shipped one.

    Raises:
        FileError: no format can read the file, or it holds an invalid value.
        InputError: no model is given, or a name is unknown.
    """
    from strategist.formats.config_reader import read
    from strategist.planning.review import imported

    source, config_format, parsed = read(path, format)
    job = setup(source, parsed, given)
    return imported(source, config_format, job, deck=load_cards(cards, without), calibration=load_calibration(calibration))


def check_config(
    path: str | Path,
    given: GivenValues,
    *,
    format: str = "",
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Review:
    """The review of :func:`import_plan`, with better plans and the cards that ask for changes.

    Args:
        confidence: probability from which the plan counts as fitting; at one minus this value or less it counts as too large.

    Raises:
        FileError, InputError: as :func:`import_plan`.

    >>> from pathlib import Path
    >>> from strategist.api import GivenValues, check_config
    >>> Path("ds_config.json").write_text('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 64}') > 0
    True
    >>> review = check_config("ds_config.json", GivenValues(model="8b", gpus="8x24GB"))
    >>> [found.message for found in review.findings if found.level.value == "error"]
    ['needs 3.7 TiB a device of the 22.8 GiB that can be used: fits with probability 1%']
    """
    from strategist.formats.config_reader import read
    from strategist.planning.review import reviewed

    source, config_format, parsed = read(path, format)
    job = setup(source, parsed, given)
    factors = load_calibration(calibration)
    return reviewed(source, config_format, job, deck=load_cards(cards, without), calibration=factors, confidence=confidence)


def named_model(path: str | Path, *, format: str = "") -> str | None:
    """Name or path of the model in another framework's file; None if the file names none or describes the model itself.

    Raises:
        FileError, InputError: as :func:`import_plan`.
    """
    from strategist.formats.config_reader import read

    _, _, parsed = read(path, format)
    return parsed.model if isinstance(parsed.model, str) else None


def job_file(path: str | Path) -> File:
    """Reads a file of the user, so that a job can ship it to its nodes.

    Raises:
        FileError: the file cannot be read, or is not text.
    """
    file_path = Path(path)
    try:
        return File(name=file_path.name, text=file_path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(file_path, f"cannot be read: {error.strerror}; name another file") from None
    except UnicodeDecodeError:
        raise FileError(file_path, "is not text, and jobs ship text files; put it on a volume") from None


def export_plan(
    plan: Plan,
    format: str,
    *,
    job: str = "",
    options: JobOptions = NONE,
    inputs: Mapping[str, str] = {},
    cards: Folders = (),
    without: Ids = (),
) -> ExportedFiles:
    """The plan as files of another framework, with a finding for each setting that the format cannot express.

    Args:
        format: name of the format.
        job: a kind of ``JOBS``; adds files that start the training on all nodes of the plan.
        options: options of that job: image, volumes, environment variables, files of the user, hosts.
        inputs: weights, data and tokenizer; they replace the format's placeholders.
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.

    Raises:
        InputError: the plan breaks a law, the format or job is unknown, or the format cannot express the plan's layout, model or
            workload, so that its file would train something else.

    >>> from strategist import Request, plan
    >>> from strategist.api import export_plan, write_files
    >>> best = plan(Request(model="8b", gpus="8xH100", backend="pytorch"), top=1).plans[0]
    >>> [path.name for path in write_files(export_plan(best, "pytorch"), "train")]
    ['plan.py', 'train.py', 'checkpoint.py', 'data.py', 'model.py', 'config.json', 'train.sh']
    """
    from strategist.planning.review import reasons

    check_legal(plan)
    target_format = find_format(format)
    if target_format.write is None:
        raise InputError(f"format {target_format.name}", "is only read", f"choose one of {', '.join(formats())}")
    limits, facts = backend(target_format), situation_facts(plan.model, plan.cluster, plan.workload)
    do = f"plan again with --backend {target_format.name}"
    expressed = _expressed_plan(plan, limits, facts, do)
    refused = limits.refusals(plan.candidate, plan.model, plan.workload, facts)
    kept = {
        name: text
        for name, text in reasons(plan, load_cards(cards, without)).items()
        if value_of(expressed.candidate, name) == value_of(plan.candidate, name) and limits.varies(full_name(name))
    }
    written = target_format.write(expressed, kept).with_inputs(inputs)
    shipped = {file.name for file in options.files}
    needs = tuple(need for need in written.needs if need.partition(":")[0] not in shipped)
    header = (*(f"not in this file: {text}" for text in refused), *(f"missing: {need}" for need in needs))
    findings = (*(finding("FMT-007", text, do) for text in refused), *written.findings)
    written = replace(written, findings=findings, needs=needs)
    written = written.with_remarks(header_lines(plan), header) if header else written
    return with_job(plan, written, job, options) if job else written


def _expressed_plan(plan: Plan, limits: Backend, facts: Facts, do: str) -> Plan:
    """The plan without the settings that the format cannot express; ``do`` is the advice where they cannot be left out."""
    unsupported = limits.unsupported_settings(plan.candidate, plan.model, plan.workload, plan.cluster.device.kind)
    if blocking := sorted(
        (name for name in unsupported if name.partition(".")[0] in REQUIRED_PARTS), key=lambda name: name.startswith("layout.")
    ):
        other = "change the request, or export to another format: plan --show backends"
        raise InputError(f"plan {plan.id}", unsupported[blocking[0]], do if blocking[0].startswith("layout.") else other)
    expressed = supported_plan(plan, limits, facts)
    if refusals := limits.refusals(expressed.candidate, plan.model, plan.workload, facts):
        raise InputError(f"plan {plan.id}", refusals[0], do)
    return expressed


def write_files(written: ExportedFiles, folder: str | Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes the files of an export into a folder, which is created if needed, and returns their paths.

    Args:
        force: overwrites existing files.

    Raises:
        FileError: a file exists already, or the folder cannot be written.
    """
    paths = tuple(Path(folder) / file.name for file in written.files)
    outputs.make_folder(folder)
    for path in paths:
        outputs.check(path, marker="", force=force)
    for path, file in zip(paths, written.files, strict=True):
        outputs.write(path, file.text, marker="", force=force, executable=file.runs)
    return paths
