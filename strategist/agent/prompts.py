"""Prompts: ways of working that a person can hand to an agent."""

from collections.abc import Mapping
from dataclasses import dataclass

from strategist.agent.problem import RefusedError

MOST_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """``arguments`` are names with what they mean, all needed; ``text`` has their places."""

    name: str
    description: str
    arguments: Mapping[str, str]
    text: str


PROMPTS = (
    Prompt(
        name="choose_a_layout",
        description="Choose a layout for a model on some GPUs, and say why.",
        arguments={"model": "a preset, a size such as 32b, or a config.json", "gpus": "such as 8x24GB or 16x8xH100"},
        text="Choose how to train {model} on {gpus}.\n"
        "1. Call plan with this model and these gpus. Read its verdict first: it says whether it fits, and with what.\n"
        "2. Where nothing fits or the best plan needs much host memory, weigh the items of kind way; say which of them change the"
        " trained model.\n"
        "3. Call explain for the plan you choose, and why_not for each value that the person would have expected instead.\n"
        "4. Call simulate where fit_confidence is below 0.9.\n"
        "5. Answer with the settings, the predicted step time and peak memory, the cards behind them by id, and what was assumed."
        " Predictions are predictions: say so. Start a trial only if the person wants one and describe_machine shows a grant.",
    ),
    Prompt(
        name="why_is_my_run_slow",
        description="Find out what holds a run back, and what to change first.",
        arguments={"run": "what is known of it: model, GPUs, settings or configuration file, and what it showed"},
        text="This run is slow: {run}\n"
        "1. Have its settings as a plan: check_config where there is a configuration file, else plan with fix for each known"
        " setting.\n"
        "2. Compare what was measured with the plan's step_seconds, comm_ratio, exposed_comm_ratio and bubble_ratio: the part that"
        " is furthest off is the place to look.\n"
        "3. Call advise with the plan and the measured figures; give the peak memory if it is known.\n"
        "4. For the first two proposals call why_not, which says what the change would bring, and read_card for its risks.\n"
        "5. Answer with one change to try first, what it should bring, and how to see whether it did. Once it was tried,"
        " record_evidence keeps what was measured.",
    ),
    Prompt(
        name="write_a_card",
        description="Write a strategy card from a piece of knowledge, with its source.",
        arguments={"knowledge": "what should be known, and where it comes from"},
        text="Write a strategy card that says: {knowledge}\n"
        "1. search_cards for the same knowledge: where a card has it already, say so and stop.\n"
        "2. Read resource strategist://schemas/card, strategist://vocabulary and one card of the same module as a pattern.\n"
        "3. Write the YAML: protocol, id, status preview, module, intent, policies with when, effect and because, source_refs with"
        " where it comes from, and cases that must be forbidden, allowed or proposed.\n"
        "4. lint_card with the text, and correct until it is sound. Examples are not run here; a person does, by cards test.\n"
        "5. Answer with the YAML and with what you could not verify.",
    ),
)


def filled(name: str, arguments: Mapping[str, str]) -> tuple[Prompt, str]:
    """A prompt with its text.

    Raises:
        RefusedError: there is none, or its arguments are others.
    """
    prompt = next((item for item in PROMPTS if item.name == name), None)
    if prompt is None:
        raise RefusedError("unknown_tool", f"prompt {name} is none", f"known are {', '.join(item.name for item in PROMPTS)}")
    if set(arguments) != set(prompt.arguments) or any(len(text) > MOST_CHARACTERS for text in arguments.values()):
        wanted = ", ".join(prompt.arguments)
        raise RefusedError(
            "invalid_arguments", f"prompt {name} takes {wanted}", f"give each, in up to {MOST_CHARACTERS} characters"
        )
    return prompt, prompt.text.format(**arguments)
