"""optuna-dashboard opens an exported study; skipped if not installed."""

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from tuner_stand_in import StandIn

from strategist.contract.goals import Goals
from strategist.contract.measurement import Outcome
from strategist.tuner.export import export
from strategist.tuner.study import read
from tuner.studies import WIDE, tuned

dashboard = pytest.importorskip("optuna_dashboard")


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


@contextmanager
def served(storage: str) -> Iterator[Callable[[str], bytes]]:
    """A function that gets a path of the storage's dashboard."""
    with make_server("127.0.0.1", 0, dashboard.wsgi(storage), handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def get(address: str) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{address}") as answer:
                return bytes(answer.read())

        try:
            yield get
        finally:
            server.shutdown()


def pairs_as_dict(pairs: list[dict[str, Any]], name: str, value: str) -> dict[str, Any]:
    return {pair[name]: pair[value] for pair in pairs}


@pytest.mark.full
def test_the_dashboard_shows_trials_values_settings_and_figures(tmp_path: Path) -> None:
    place = tmp_path / "first"
    tuned(place, 1, StandIn(outcome=Outcome.OOM), request=WIDE, goals=Goals(objectives=("throughput", "memory")))
    tuned(place, 5, request=WIDE)
    export(place, f"sqlite:///{tmp_path / 'o.db'}")
    study = read(place)
    with served(f"sqlite:///{tmp_path / 'o.db'}") as get:
        (summary,) = json.loads(get("/api/studies"))["study_summaries"]
        found = json.loads(get(f"/api/studies/{summary['study_id']}"))
        influences = json.loads(get(f"/api/studies/{summary['study_id']}/param_importances?evaluator=ped_anova"))
        page = get("/dashboard/")
    assert (summary["study_name"], summary["directions"]) == ("first", ["minimize", "minimize"])
    assert found["objective_names"] == ["step_seconds", "peak_memory_bytes"]
    assert [trial["state"] for trial in found["trials"]] == ["Pruned"] + ["Complete"] * 4
    assert sorted(trial["number"] for trial in found["best_trials"]) == [number - 1 for number in study.front]
    for shown, trial in zip(found["trials"][1:], study.finished[1:], strict=True):
        assert shown["values"] == [trial.measurement.step_seconds, max(trial.measurement.peak_memory_bytes)]
        assert pairs_as_dict(shown["params"], "name", "param_external_value")["layout.pp"] == str(trial.plan.candidate.layout.pp)
        assert (
            json.loads(pairs_as_dict(shown["user_attrs"], "key", "value")["tokens_per_second"])
            == trial.measurement.tokens_per_second
        )
    assert all("layout.pp" in {item["name"] for item in of_one} for of_one in influences["param_importances"])
    assert b"<html" in page
