"""Prompts: workflows that a user can start an agent with."""

from typing import Annotated

from pydantic import Field

from strategist.agent.schema import MAX_TEXT

Short = Field(max_length=MAX_TEXT)


def choose_a_layout(
    model: Annotated[str, Short, Field(description="a preset, a size such as 32b, or a config.json")],
    gpus: Annotated[str, Short, Field(description="such as 8x24GB or 16x8xH100")],
) -> str:
    """Choose a layout for a model on some GPUs, and say why."""
    return (
        f"Choose how to train {model} on {gpus}.\n"
        "1. Call plan with this model and these gpus. Read first its verdict, which says whether the model fits.\n"
        "2. If nothing fits or the best plan needs much host memory, weigh the items of kind alternative; say which of them"
        " change the trained model.\n"
        "3. Call explain for the plan you choose, and why_not for each value that the person would have expected instead.\n"
        "4. Call simulate if fit_confidence is below 0.9. If that becomes a job, call job_status until it has ended, and read its"
        " answer with more.\n"
        "5. Answer with the settings, the predicted step time and peak memory, the cards behind them by id, and what was assumed."
        " Say that the figures are predicted. Start a trial only if the person wants one and describe_machine shows a grant."
    )


def why_is_my_run_slow(
    run: Annotated[str, Short, Field(description="model, GPUs, settings or configuration file, and measured figures")],
) -> str:
    """Find what makes a run slow, and what to change first."""
    return (
        f"This run is slow: {run}\n"
        "1. Make a plan of its settings: with check_config if there is a configuration file, else with plan and fix for each known"
        " setting.\n"
        "2. Compare what was measured with the plan's step_seconds, comm_ratio, exposed_comm_ratio and bubble_ratio: change first"
        " what differs most.\n"
        "3. Call diagnose if it runs on this machine, and advise with the plan and the measured figures; give the peak memory if it"
        " is known.\n"
        "4. For the first two proposals call why_not, which says what the change would bring, and read_card for its risks.\n"
        "5. Answer with one change to try first, what it should bring, and how to see whether it did. After the run,"
        " record_evidence stores the measured figures."
    )


def write_a_card(
    knowledge: Annotated[str, Short, Field(description="the statement, and its source")],
) -> str:
    """Write a strategy card from a piece of knowledge, with its source."""
    return (
        f"Write a strategy card that says: {knowledge}\n"
        "1. search_cards for the same knowledge: if a card has it already, say so and stop.\n"
        "2. Read resource strategist://schemas/card, strategist://vocabulary and one card of the same module as a pattern.\n"
        "3. Write the YAML: protocol, id, status preview, module, intent, policies with when, effect and because, source_refs with"
        " where it comes from, and cases that must be forbidden, allowed or proposed.\n"
        "4. lint_card with the text, and correct until it is sound. It runs no examples; a person can,"
        " with strategist cards test.\n"
        "5. Answer with the YAML and with what you could not verify."
    )


PROMPTS = (choose_a_layout, why_is_my_run_slow, write_a_card)
