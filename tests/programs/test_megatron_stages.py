"""Pipeline stages in the notation of Megatron-LM's command line."""

import pytest

from strategist.programs.megatron_stages import stage_list


@pytest.mark.parametrize(
    ("layers", "text"), [((2, 2, 1), "Et*2|t*2|tL"), ((1, 3), "Et|t*3L"), ((4,), "Et*4L"), ((1,) * 3, "Et|t|tL")]
)
def test_first_and_last_stage_have_embedding_and_loss(layers: tuple[int, ...], text: str) -> None:
    assert stage_list(layers) == text
