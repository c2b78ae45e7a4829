"""The use-cases of files of other systems: what they describe, whether that is any good, and how a plan is said in them."""

from dataclasses import replace
from pathlib import Path

from strategist.api_cards import Folders, Ids, load_cards
from strategist.api_plans import check_legal, load_calibration
from strategist.contract.plan import Plan
from strategist.contract.review import Review
from strategist.errors import FileError, InputError
from strategist.formats.catalog import backend, find_format, formats
from strategist.formats.codes import finding
from strategist.formats.format import Written
from strategist.formats.setup import Given, setup
from strategist.launch.job import NOTHING, Texts
from strategist.launch.jobs import JOBS, with_job
from strategist.search.facts import situation_facts

GRAVE = ("layout", "model", "workload", "device")
"""Parts of a plan that a format must be able to say: without one its file would train something else."""

__all__ = ["JOBS", "check_config", "export_plan", "find_format", "formats", "import_plan", "named_model", "write_files"]


def import_plan(
    path: str | Path,
    given: Given,
    *,
    format: str = "",
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> Review:
    """The plan that a file of another system describes, as that system would run it, with what is to be said of the file.

    Raises:
        FileError: the file cannot be read as any format's, or holds a value that is none.
        InputError: nobody says which model, or a name is not known.
    """
    from strategist.formats.reading import read
    from strategist.review import imported

    source, chosen, found = read(path, format)
    made = setup(source, found, given)
    return imported(source, chosen, made, deck=load_cards(cards, without), calibration=load_calibration(calibration))


def check_config(
    path: str | Path,
    given: Given,
    *,
    format: str = "",
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> Review:
    """The same, with what would be better, and which cards ask for it.

    Raises:
        FileError, InputError: as :func:`import_plan`.

    >>> from pathlib import Path
    >>> from strategist.api import check_config
    >>> from strategist.formats.setup import Given
    >>> Path("ds_config.json").write_text('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 64}') > 0
    True
    >>> review = check_config("ds_config.json", Given(model="8b", gpus="8x24GB"))
    >>> [found.message for found in review.findings if found.level.value == "error"]
    ['needs 4.2 TiB a device, of which 22.8 GiB can be used']
    """
    from strategist.formats.reading import read
    from strategist.review import reviewed

    source, chosen, found = read(path, format)
    made = setup(source, found, given)
    return reviewed(source, chosen, made, deck=load_cards(cards, without), calibration=load_calibration(calibration))


def named_model(path: str | Path, *, format: str = "") -> str | None:
    """The name or path of the model that a file of another system says, None where it says none or describes the model itself.

    Raises:
        FileError, InputError: as :func:`import_plan`.
    """
    from strategist.formats.reading import read

    _, _, found = read(path, format)
    return found.model if isinstance(found.model, str) else None


def export_plan(
    plan: Plan,
    format: str,
    *,
    job: str = "",
    image: str = "",
    volumes: Texts = NOTHING,
    environment: Texts = NOTHING,
    resources: Texts = NOTHING,
    cards: Folders = (),
    without: Ids = (),
) -> Written:
    """The plan in another system's words, with a finding for each setting that it cannot say.

    Args:
        job: a kind of JOBS: the file with which a scheduler runs the plan on its nodes is written as well.
        image: the container's, for jobs of Kubernetes; volumes: claims there, with the folder where each is mounted.
        environment: variables that the job's ranks get as well; resources: of a node's container in Kubernetes, such as network
            adapters, with how many.

    Raises:
        InputError: the plan breaks a law, no format or job has the name, or the format cannot say the plan's layout, model or
            arithmetic, so that its file would train something else.

    >>> from strategist import Request, plan
    >>> from strategist.api import export_plan, write_files
    >>> best = plan(Request(model="8b", gpus="8xH100", backend="pytorch"), top=1).plans[0]
    >>> [path.name for path in write_files(export_plan(best, "pytorch"), "train")]
    ['train.py', 'train.sh']
    """
    from strategist.review import reasons

    check_legal(plan)
    chosen = find_format(format)
    limits, facts = backend(chosen), situation_facts(plan.model, plan.cluster, plan.workload)
    do = f"plan again with --backend {chosen.name}"
    outside = limits.outside(plan.candidate, plan.model, plan.workload, plan.cluster.device.kind)
    if grave := next((text for name, text in outside.items() if name.partition(".")[0] in GRAVE), ""):
        raise InputError(f"plan {plan.id}", grave, do)
    written = chosen.write(plan, reasons(plan, load_cards(cards, without)))
    refused = limits.refusals(plan.candidate, plan.model, plan.workload, facts)
    written = replace(written, findings=(*(finding("FMT-007", text, do) for text in refused), *written.findings))
    asked = (image, volumes, environment, resources)
    return with_job(plan, written, job, *asked) if job or any(asked) else written


def write_files(written: Written, folder: str | Path) -> tuple[Path, ...]:
    """Writes the files of an export into a folder, which is made where there is none; nothing that is there is overwritten.

    Raises:
        FileError: a file is there already, or the folder cannot be written.
    """
    target = Path(folder)
    paths = tuple(target / file.name for file in written.files)
    if there := next((path for path in paths if path.exists()), None):
        raise FileError(there, "is there already; name another folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path, file in zip(paths, written.files, strict=True):
            path.write_text(file.text, encoding="utf-8")
            if file.runs:
                path.chmod(0o755)
    except OSError as error:
        raise FileError(target, f"cannot be written: {error.strerror}; choose another place") from None
    return paths
