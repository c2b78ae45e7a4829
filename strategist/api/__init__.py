"""The typed Python API, used by the command line and by agents. Each name is imported on first use."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strategist.contract.display import renderers

if TYPE_CHECKING:
    from strategist.api.cards import Folders as Folders
    from strategist.api.cards import Ids as Ids
    from strategist.api.cards import fix_cards as fix_cards
    from strategist.api.cards import in_language as in_language
    from strategist.api.cards import lint as lint
    from strategist.api.cards import lint_check as lint_check
    from strategist.api.cards import lint_checks as lint_checks
    from strategist.api.cards import lint_codes as lint_codes
    from strategist.api.cards import listed_cards as listed_cards
    from strategist.api.cards import load_cards as load_cards
    from strategist.api.cards import new_card as new_card
    from strategist.api.cards import not_as_shipped as not_as_shipped
    from strategist.api.cards import reference as reference
    from strategist.api.cards import run_card_tests as run_card_tests
    from strategist.api.cards import schema as schema
    from strategist.api.cards import torch_installed as torch_installed
    from strategist.api.cards import write_reference as write_reference
    from strategist.api.catalog import cluster as cluster
    from strategist.api.catalog import model as model
    from strategist.api.catalog import profiles as profiles
    from strategist.api.config_files import JOBS as JOBS
    from strategist.api.config_files import JobOptions as JobOptions
    from strategist.api.config_files import check_config as check_config
    from strategist.api.config_files import export_plan as export_plan
    from strategist.api.config_files import find_format as find_format
    from strategist.api.config_files import formats as formats
    from strategist.api.config_files import import_plan as import_plan
    from strategist.api.config_files import job_file as job_file
    from strategist.api.config_files import named_model as named_model
    from strategist.api.config_files import unused_job_options as unused_job_options
    from strategist.api.config_files import write_files as write_files
    from strategist.api.machines import profile_links as profile_links
    from strategist.api.machines import profile_machine as profile_machine
    from strategist.api.machines import readable_places as readable_places
    from strategist.api.machines import topology as topology
    from strategist.api.plans import by_backend as by_backend
    from strategist.api.plans import compare as compare
    from strategist.api.plans import explain as explain
    from strategist.api.plans import plan as plan
    from strategist.api.plans import price as price
    from strategist.api.plans import prove as prove
    from strategist.api.plans import simulate as simulate
    from strategist.api.plans import trace as trace
    from strategist.api.plans import why_not as why_not
    from strategist.api.plans import write_trace as write_trace
    from strategist.api.published import accuracy as accuracy
    from strategist.api.published import replay as replay
    from strategist.api.published import transfer as transfer
    from strategist.api.reports import report as report
    from strategist.api.reports import report_of as report_of
    from strategist.api.reports import run_report as run_report
    from strategist.api.reports import study_report as study_report
    from strategist.api.runs import BACKEND as BACKEND
    from strategist.api.runs import DEFAULTS as DEFAULTS
    from strategist.api.runs import command as command
    from strategist.api.runs import doctor as doctor
    from strategist.api.runs import evidence as evidence
    from strategist.api.runs import program as program
    from strategist.api.runs import run as run
    from strategist.api.runs import scale as scale
    from strategist.api.runs import shadow as shadow
    from strategist.api.studies import advise as advise
    from strategist.api.studies import export_study as export_study
    from strategist.api.studies import import_trials as import_trials
    from strategist.api.studies import list_studies as list_studies
    from strategist.api.studies import merge_studies as merge_studies
    from strategist.api.studies import repair_study as repair_study
    from strategist.api.studies import study as study
    from strategist.api.studies import trial_row as trial_row
    from strategist.api.studies import tune as tune
    from strategist.api.studies import watch_study as watch_study
    from strategist.cards.card import ENGLISH as ENGLISH
    from strategist.cards.card import LANGUAGES as LANGUAGES
    from strategist.cards.card import Card as Card
    from strategist.cards.deck import Deck as Deck
    from strategist.cost.calibration import load_calibration as load_calibration
    from strategist.executors.engine import Engine as Engine
    from strategist.executors.engine import Ray as Ray
    from strategist.executors.engine import Slurm as Slurm
    from strategist.executors.engine import hosts as hosts
    from strategist.expr.vocabulary import VOCABULARY as VOCABULARY
    from strategist.formats.format import ExportedFiles as ExportedFiles
    from strategist.formats.setup import GivenValues as GivenValues
    from strategist.ledger.address import redacted as redacted
    from strategist.profiles.local_machine import cores as cores
    from strategist.profiles.request_file import load_request as load_request
    from strategist.profiles.request_file import request_text as request_text
    from strategist.programs.backends import programs as programs
    from strategist.programs.program import Program as Program
    from strategist.rules.observe_policies import Proposal as Proposal
    from strategist.search.settings import SAMPLERS as SAMPLERS
    from strategist.search.tuning_result import TuningResult as TuningResult
    from strategist.tuner.elastic import Shrink as Shrink
    from strategist.tuner.event import EventType as EventType
    from strategist.tuner.event import TuneEvent as TuneEvent
    from strategist.tuner.json_lines import TuneLines as TuneLines
    from strategist.tuner.limits import Limits as Limits
    from strategist.tuner.parallel_tuners import parallel_tuners as parallel_tuners
    from strategist.tuner.study_metrics import StudyMetrics as StudyMetrics
    from strategist.tuner.tuning_follower import TuningFollower as TuningFollower
    from strategist.tuner.tuning_follower import TuningSnapshot as TuningSnapshot

_PLACES = {
    "api.cards": (
        "Folders Ids fix_cards in_language lint lint_check lint_checks lint_codes listed_cards load_cards new_card not_as_shipped "
        "reference run_card_tests schema torch_installed write_reference"
    ),
    "api.config_files": (
        "JOBS JobOptions check_config export_plan find_format formats import_plan job_file named_model unused_job_options "
        "write_files"
    ),
    "api.catalog": "cluster model profiles",
    "api.machines": "profile_links profile_machine readable_places topology",
    "api.plans": "by_backend compare explain plan price prove simulate trace why_not write_trace",
    "api.published": "accuracy replay transfer",
    "api.reports": "report report_of run_report study_report",
    "api.runs": "BACKEND DEFAULTS command doctor evidence program run scale shadow",
    "api.studies": ("advise export_study import_trials list_studies merge_studies repair_study study trial_row tune watch_study"),
    "cards.card": "ENGLISH LANGUAGES Card",
    "cards.deck": "Deck",
    "cost.calibration": "load_calibration",
    "executors.engine": "Engine Ray Slurm hosts",
    "expr.vocabulary": "VOCABULARY",
    "formats.format": "ExportedFiles",
    "formats.setup": "GivenValues",
    "ledger.address": "redacted",
    "profiles.local_machine": "cores",
    "profiles.request_file": "load_request request_text",
    "programs.backends": "programs",
    "programs.program": "Program",
    "rules.observe_policies": "Proposal",
    "search.settings": "SAMPLERS",
    "search.tuning_result": "TuningResult",
    "tuner.elastic": "Shrink",
    "tuner.event": "EventType TuneEvent",
    "tuner.json_lines": "TuneLines",
    "tuner.limits": "Limits",
    "tuner.parallel_tuners": "parallel_tuners",
    "tuner.study_metrics": "StudyMetrics",
    "tuner.tuning_follower": "TuningFollower TuningSnapshot",
}
"""By module the names that it holds."""

_MODULES = {name: f"strategist.{module}" for module, names in _PLACES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'strategist.api' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def _renderer(name: str) -> Callable[[Any], str | None]:
    """A renderer that is loaded when a notebook asks for it."""
    return lambda value: getattr(import_module("strategist.report.notebook"), name)(value)


renderers.update(html=_renderer("as_html"), markdown=_renderer("as_markdown"))


def __dir__() -> list[str]:
    return sorted(_MODULES)
