"""JSON documents that commands print and files hold, each with its JSON Schema. Exported by ``strategist.api``."""

import json
from pathlib import Path
from typing import Any

from strategist.contract.answer import Answer
from strategist.contract.card_example import CardTest
from strategist.contract.cluster import Cluster
from strategist.contract.comparison import Comparison
from strategist.contract.configuration import Configuration
from strategist.contract.diagnostic import Diagnostic
from strategist.contract.evidence import TrialEvidence
from strategist.contract.explanation import Explanation, WhyNot
from strategist.contract.listings import LintPage, ListedCard, ListedProgram
from strategist.contract.machine import MachineRecord
from strategist.contract.measurement import Measurement
from strategist.contract.model import NamedModel
from strategist.contract.plan import Plan
from strategist.contract.replay import ReplayDocument, TransferDocument
from strategist.contract.review import Review
from strategist.contract.scaling import Scaling
from strategist.contract.schema import document_schema
from strategist.contract.simulation import Simulation
from strategist.contract.study import Study, StudySummary
from strategist.contract.topology import Topology
from strategist.files import outputs
from strategist.formats.format import ExportedFiles
from strategist.profiles.catalog import unknown
from strategist.report.accuracy import AccuracyDocument
from strategist.search.tuning_result import TuningResult
from strategist.tuner.flat_table import Cell
from strategist.tuner.json_lines import TuneLine

DOCUMENTS: dict[str, tuple[Any, str]] = {
    "plan": (Plan, "plan -o, import --json, best-plan.json of a study"),
    "answer": (Answer, "plan --json"),
    "explanation": (Explanation, "explain --json"),
    "why-not": (WhyNot, "explain --why-not --json"),
    "comparison": (Comparison, "compare --json"),
    "review": (Review, "check --json"),
    "reviews": (tuple[Review, ...], "check --json, of several files"),
    "written": (ExportedFiles, "export --json"),
    "simulation": (Simulation, "simulate --json"),
    "measurement": (Measurement, "run --json, shadow --json, measurement.json of a trial"),
    "scaling": (Scaling, "scale --json"),
    "tuning": (TuningResult, "tune --json"),
    "line": (TuneLine, "each line of tune --json-lines"),
    "study": (Study, "study show --json"),
    "studies": (tuple[StudySummary, ...], "study list --json"),
    "trial": (dict[str, Cell], "each line of study watch --json"),
    "machine": (MachineRecord, "profile --json"),
    "topology": (Topology, "topo --json"),
    "model": (NamedModel, "models show --json"),
    "configuration": (Configuration, "config --json"),
    "models": (dict[str, NamedModel], "models list --json"),
    "cluster": (Cluster, "hardware show --json"),
    "clusters": (dict[str, Cluster], "hardware list --json"),
    "names": (dict[str, tuple[str, ...]], "profiles --json"),
    "program": (ListedProgram, "programs NAME --json"),
    "programs": (tuple[ListedProgram, ...], "programs --json"),
    "cards": (tuple[ListedCard, ...], "cards list --json"),
    "findings": (tuple[Diagnostic, ...], "cards lint --json, doctor --json"),
    "lint-page": (LintPage, "cards explain CODE --json"),
    "lint-pages": (tuple[LintPage, ...], "cards explain --json"),
    "card-tests": (tuple[CardTest, ...], "cards test --json"),
    "evidence": (TrialEvidence, "cards evidence --json"),
    "accuracy": (AccuracyDocument, "accuracy --json"),
    "replay": (ReplayDocument, "bench replay --json"),
    "transfer": (TransferDocument, "bench replay --transfer --json"),
}
"""Documents by name: their type, and the commands and files that they come from."""


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of the documents with this name.

    Raises:
        InputError: there is no such document.
    """
    if name not in DOCUMENTS:
        raise unknown(f"schema {name}", "is of no document", name, tuple(DOCUMENTS), "name one that is known", tuple(DOCUMENTS))
    return document_schema(DOCUMENTS[name][0], name)


def write_schemas(folder: str | Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes the schema of each document into the folder, as ``NAME.schema.json``.

    Args:
        force: overwrites files that are no such schemas.

    Raises:
        FileError: the folder cannot be written.
    """
    schema_folder = Path(folder)
    paths = tuple(schema_folder / f"{name}.schema.json" for name in DOCUMENTS)
    outputs.make_folder(schema_folder)
    for path, name in zip(paths, DOCUMENTS, strict=True):
        text = json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"
        outputs.write(path, text, marker='"$id": "urn:strategist:schema:', force=force)
    return paths
