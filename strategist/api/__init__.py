"""The typed Python API, used by the command line and by agents. Each name is imported on first use."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strategist.contract.display import renderers

if TYPE_CHECKING:
    from strategist.api.cards import (
        Folders as Folders,
        Ids as Ids,
        fix_cards as fix_cards,
        in_language as in_language,
        lint as lint,
        lint_check as lint_check,
        lint_checks as lint_checks,
        lint_codes as lint_codes,
        listed_cards as listed_cards,
        load_cards as load_cards,
        new_card as new_card,
        not_as_shipped as not_as_shipped,
        reference as reference,
        run_card_tests as run_card_tests,
        schema as schema,
        torch_installed as torch_installed,
        write_reference as write_reference,
    )
    from strategist.api.catalog import cluster as cluster, model as model, profiles as profiles
    from strategist.api.config_files import (
        JOBS as JOBS,
        JobOptions as JobOptions,
        check_config as check_config,
        export_plan as export_plan,
        find_format as find_format,
        formats as formats,
        import_plan as import_plan,
        job_file as job_file,
        named_model as named_model,
        readable_formats as readable_formats,
        unused_job_options as unused_job_options,
        write_files as write_files,
    )
    from strategist.api.machines import (
        profile_links as profile_links,
        profile_machine as profile_machine,
        readable_places as readable_places,
        topology as topology,
    )
    from strategist.api.plans import (
        by_backend as by_backend,
        compare as compare,
        explain as explain,
        plan as plan,
        plan_stages as plan_stages,
        price as price,
        prove as prove,
        simulate as simulate,
        trace as trace,
        why_not as why_not,
        write_trace as write_trace,
    )
    from strategist.api.published import accuracy as accuracy, replay as replay, transfer as transfer
    from strategist.api.reports import (
        report as report,
        report_of as report_of,
        run_report as run_report,
        study_report as study_report,
    )
    from strategist.api.runs import (
        BACKEND as BACKEND,
        DEFAULTS as DEFAULTS,
        command as command,
        doctor as doctor,
        evidence as evidence,
        program as program,
        run as run,
        scale as scale,
        shadow as shadow,
    )
    from strategist.api.studies import (
        advise as advise,
        export_study as export_study,
        import_trials as import_trials,
        list_studies as list_studies,
        merge_studies as merge_studies,
        repair_study as repair_study,
        study as study,
        trial_row as trial_row,
        tune as tune,
        watch_study as watch_study,
    )
    from strategist.cards.card import ENGLISH as ENGLISH, LANGUAGES as LANGUAGES, Card as Card
    from strategist.cards.deck import Deck as Deck
    from strategist.cost.calibration import load_calibration as load_calibration
    from strategist.executors.engine import Engine as Engine, Ray as Ray, Slurm as Slurm, hosts as hosts
    from strategist.expr.vocabulary import VOCABULARY as VOCABULARY
    from strategist.formats.completed_config import GivenValues as GivenValues
    from strategist.formats.format import ExportedFiles as ExportedFiles
    from strategist.ledger.address import redacted as redacted
    from strategist.profiles.local_machine import cores as cores
    from strategist.profiles.request_file import load_request as load_request, request_text as request_text
    from strategist.programs.backends import programs as programs
    from strategist.programs.program import Program as Program
    from strategist.rules.observe_policies import Proposal as Proposal
    from strategist.search.settings import SAMPLERS as SAMPLERS
    from strategist.search.tuning_result import TuningResult as TuningResult
    from strategist.tuner.elastic import Shrink as Shrink
    from strategist.tuner.event import EventType as EventType, TuneEvent as TuneEvent
    from strategist.tuner.json_lines import TuneLines as TuneLines
    from strategist.tuner.limits import Limits as Limits
    from strategist.tuner.parallel_tuners import parallel_tuners as parallel_tuners
    from strategist.tuner.study_metrics import StudyMetrics as StudyMetrics
    from strategist.tuner.tuning_follower import TuningFollower as TuningFollower, TuningSnapshot as TuningSnapshot

_EXPORTS = {
    "api.cards": (
        "Folders Ids fix_cards in_language lint lint_check lint_checks lint_codes listed_cards load_cards new_card not_as_shipped "
        "reference run_card_tests schema torch_installed write_reference"
    ),
    "api.config_files": (
        "JOBS JobOptions check_config export_plan find_format formats import_plan job_file named_model "
        "readable_formats unused_job_options write_files"
    ),
    "api.catalog": "cluster model profiles",
    "api.machines": "profile_links profile_machine readable_places topology",
    "api.plans": "by_backend compare explain plan plan_stages price prove simulate trace why_not write_trace",
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
    "formats.completed_config": "GivenValues",
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
"""Exported names by the module that defines them."""

_MODULES = {name: f"strategist.{module}" for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'strategist.api' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)
    return value


def _renderer(name: str) -> Callable[[Any], str | None]:
    """A renderer whose module is imported when a notebook first displays a value."""
    return lambda value: getattr(import_module("strategist.report.notebook"), name)(value)


renderers.update(html=_renderer("as_html"), markdown=_renderer("as_markdown"))


def __dir__() -> list[str]:
    return sorted(_MODULES)
