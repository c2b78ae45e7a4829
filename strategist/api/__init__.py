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
    from strategist.api.config_files import named_model as named_model
    from strategist.api.config_files import unused_job_options as unused_job_options
    from strategist.api.config_files import write_files as write_files
    from strategist.api.machines import profile_links as profile_links
    from strategist.api.machines import profile_machine as profile_machine
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
    from strategist.cost.calibration import load_calibration as load_calibration
    from strategist.programs.backends import programs as programs
    from strategist.programs.program import Program as Program

_PLACES = {
    "api.cards": (
        "Folders Ids fix_cards in_language lint lint_check lint_checks lint_codes load_cards new_card not_as_shipped "
        "reference run_card_tests schema torch_installed write_reference"
    ),
    "api.config_files": (
        "JOBS JobOptions check_config export_plan find_format formats import_plan named_model unused_job_options write_files"
    ),
    "api.catalog": "cluster model profiles",
    "api.machines": "profile_links profile_machine topology",
    "api.plans": "by_backend compare explain plan price prove simulate trace why_not write_trace",
    "api.published": "accuracy replay transfer",
    "api.reports": "report run_report study_report",
    "api.runs": "BACKEND DEFAULTS command doctor evidence program run scale shadow",
    "api.studies": ("advise export_study import_trials list_studies merge_studies repair_study study trial_row tune watch_study"),
    "cost.calibration": "load_calibration",
    "programs.backends": "programs",
    "programs.program": "Program",
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
