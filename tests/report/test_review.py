"""Text of a review: one screen by default, whole sections on request, and a verdict with both figures."""

import json

import pytest

from strategist.api import GivenValues, check_config
from strategist.cli import check
from strategist.contract.review import Review
from strategist.report.review import SECTIONS, review_report, verdict
from tests.report.samples import rendered

UNKNOWN = {f"key_of_a_fork_{index}": index for index in range(30)}


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory) -> Review:
    path = tmp_path_factory.mktemp("review") / "ds_config.json"
    config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1, "aio": {"block_size": 1}, **UNKNOWN}
    path.write_text(json.dumps(config), encoding="utf-8")
    return check_config(path, GivenValues(model="8b", gpus="8x24GB"))


def test_a_review_with_many_findings_fits_a_screen(review: Review) -> None:
    lines = rendered(review_report(review), 80).splitlines()
    text = " ".join(" ".join(lines).split())
    assert len(review.findings) > len(UNKNOWN)
    assert len(lines) <= 40
    assert "unknown names: key_of_a_fork_0, key_of_a_fork_1, key_of_a_fork_2, key_of_a_fork_3 and 26 more" in text
    assert "strategist check --show findings" in text
    assert "What it describes" in text


def test_sections_of_a_review_are_printed_whole(review: Review) -> None:
    assert tuple(SECTIONS) == check.SECTIONS
    text = rendered(review_report(review, ("findings",)), 200)
    assert all(name in text for name in UNKNOWN)
    assert "What it describes" not in text


def test_an_open_verdict_names_the_priced_one_and_what_could_turn_it(review: Review) -> None:
    assert review.plan is not None
    words = verdict(review)
    assert words.startswith("Cannot tell whether it fits: as priced it does not (")
    assert "of 22.8 GiB a device), but train and seq_len are assumed, with" in words
