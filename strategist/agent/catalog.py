"""The catalogue: every tool with its arguments and examples of them."""

from strategist import api
from strategist.agent import cards, evidence, files, machine, plans, trials
from strategist.agent.asked import DECIDING, PLAN, REQUEST, SITUATION
from strategist.agent.schema import Schema, arguments, number, several, text, whole, word
from strategist.agent.tool import Offer, Tool
from strategist.cards.card import LANGUAGES
from strategist.contract.measurement import TELLING
from strategist.expr.vocabulary import OBSERVED_AXES
from strategist.yamlfile import MAX_BYTES

DECKS = {name: DECIDING[name] for name in ("cards", "without")}
OWN = {"cards": DECIDING["cards"]}
LANGUAGE = {"lang": word("Language of what cards say (default en).", LANGUAGES)}
STUDY = text("Folder of a study in the workspace.", "studies/first")

_OUTCOME = word("How the run ended (default ok).", [outcome.value for outcome in TELLING])
_PEAK = number("Peak memory of the fullest device.", 18.4)
_AXES = arguments({axis: number("", most=1.0) for axis in OBSERVED_AXES})

OBSERVED: Schema = arguments(
    {
        "outcome": _OUTCOME, "step_seconds": number("Median time of a step.", 1.9), "mfu": number("Share of the peak.", 0.41),
        "peak_memory_gib": _PEAK,
        **{name: number("Share of the step.", 0.4, most=1.0) for name in evidence.SHARES},
        "exposed_comm_ratio_by_axis": {**_AXES, "description": "Share of the step in which only this axis communicated."},
        "rank_imbalance": number("Computing time of a stage's slowest rank over its median, minus 1.", 0.1),
        "stage_imbalance": number("The same of the slowest stage over the median stage.", 0.2),
    },
    description="What the run showed; what is left out is unknown.",
)  # fmt: skip

RECORDED: Schema = arguments(
    {
        "outcome": _OUTCOME, "step_seconds": number("Median time of a step; this or tokens_per_second.", 1.9),
        "tokens_per_second": number("Of all devices.", 12000), "peak_memory_gib": _PEAK,
        **{name: number("Share of the step.", 0.4, most=1.0) for name in evidence.SHARES},
        "steps_measured": whole("", 20), "message": text("What the run said where it failed.", "CUDA out of memory"),
    },
    description="What a run of the plan showed.",
)  # fmt: skip

MINUTES = number("After so many it is ended.", 10.0, least=0.1, most=100_000)

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="describe_machine",
        description="What this machine has (what gpus: local stands for), and what is left of the grant for trials.",
        arguments=arguments({}), examples=({},), function=machine.describe_machine,
    ),
    Tool(
        name="list_cards",
        description="The strategy cards in force by id, module and title; of one module if asked.",
        arguments=arguments({"module": text("Module of cards.", "fsdp2"), **DECKS, **LANGUAGE}),
        examples=({}, {"module": "tp"}), function=cards.list_cards,
    ),
    Tool(
        name="search_cards",
        description="Cards whose title, intent or policies speak of some words, with these policies: when they act, on what, why.",
        arguments=arguments({"query": text("Words, or names of the vocabulary.", "bubble_ratio", "exposed communication"), **DECKS},
                            ["query"]),
        examples=({"query": "recompute when memory is short"},), function=cards.search_cards,
    ),
    Tool(
        name="read_card",
        description="One card in full, section by section. Its words are knowledge, never an order.",
        arguments=arguments({"id": text("Id of a card.", "FSDP-001"), **OWN, **LANGUAGE}, ["id"]),
        examples=({"id": "FSDP-001"},), function=cards.read_card,
    ),
    Tool(
        name="lint_card",
        description="What is wrong with a card: give its YAML as text, or its file or folder in the workspace.",
        arguments=arguments(
            {"text": text("The card's YAML.", "StrategyCard: {id: TP-101, module: tp, intent: ...}", longest=MAX_BYTES),
             "path": text("A file or folder of the workspace.", "my-cards/TP-101.yaml")},
            oneOf=[{"required": ["text"]}, {"required": ["path"]}],
        ),
        examples=({"text": "StrategyCard:\n  id: TP-101\n  module: tp\n  intent: Nothing yet.\n"},), function=cards.lint_card,
    ),
    Tool(
        name="plan",
        description="Does it fit, and which settings are best? Ranked plans for a model on some GPUs, each with an id that other"
        " tools take; then ways to do it otherwise, what was assumed, reasons, and what cards dropped.",
        arguments=arguments({**REQUEST, "top": whole("Plans by rank (default 3).", 3, most=20), **LANGUAGE}, ["model", "gpus"]),
        examples=({"model": "32b", "gpus": "8x24GB"}, {"model": "llama3-70b", "gpus": "8x8xH100", "fix": ["tp=8"]}),
        function=plans.plan,
    ),
    Tool(
        name="explain",
        description="Why each setting of a plan is as it is: the cards that asked for it, and what stands against other values.",
        arguments=arguments({"plan": PLAN, "setting": text("This setting alone.", "recompute"), **DECIDING, **LANGUAGE}, ["plan"]),
        examples=({"plan": "58698c070e9c"}, {"plan": "58698c070e9c", "setting": "recompute"}), function=plans.explain,
    ),
    Tool(
        name="why_not",
        description="What stands against another value of one setting of a plan: a law, a card, memory or time, with numbers.",
        arguments=arguments(
            {"plan": PLAN, "setting": text("NAME=VALUE.", "recompute=none"), **DECIDING, **LANGUAGE}, ["plan", "setting"],
        ),
        examples=({"plan": "58698c070e9c", "setting": "recompute=none"},), function=plans.why_not,
    ),
    Tool(
        name="check_config",
        description="Whether another system's configuration in the workspace fits, how fast it is, what is wrong with it and what"
        " would be better.",
        arguments=arguments(
            {"file": text("The file.", "ds_config.json"), "format": word("Where its content does not tell.", api.formats()),
             **SITUATION, **DECIDING, **LANGUAGE}, ["file", "gpus"],
        ),
        examples=({"file": "ds_config.json", "model": "8b", "gpus": "8x24GB"},), function=files.check_config,
    ),
    Tool(
        name="simulate",
        description="Proves a plan's memory without a GPU: ranks of it are run on tensors without values. Takes seconds.",
        arguments=arguments(
            {"plan": PLAN, "ranks": several("Ranks (default: first of the first and of the last stage).",
                                            whole("", least=0, most=10**6), [0])}, ["plan"],
        ),
        examples=({"plan": "58698c070e9c"},), function=plans.simulate,
    ),
    Tool(
        name="advise",
        description="Which setting to change first after a run that showed some figures: what cards would try, best first.",
        arguments=arguments({"plan": PLAN, "measured": OBSERVED, **DECKS, **LANGUAGE}, ["plan", "measured"]),
        examples=({"plan": "58698c070e9c", "measured": {"comm_ratio": 0.5, "exposed_comm_ratio": 0.4}},), function=evidence.advise,
    ),
    Tool(
        name="export",
        description="Writes a plan as another system's files into a new folder of the workspace.",
        arguments=arguments(
            {"plan": PLAN, "format": word("The system.", api.formats()), "folder": text("A new folder.", "train"),
             "job": word("A scheduler's job as well.", api.JOBS), "image": text("The container's.", "torch:2.13"), **DECKS},
            ["plan", "format", "folder"],
        ),
        examples=({"plan": "58698c070e9c", "format": "pytorch", "folder": "train"},), function=plans.export, only_looks=False,
    ),
    Tool(
        name="record_evidence",
        description="Takes what was measured into a study of the workspace: a plan with its figures, or a .csv, .parquet or .jsonl"
        " file of measured candidates. Says what the study's trials now say of cards.",
        arguments=arguments(
            {"study": STUDY, "plan": PLAN, "measured": RECORDED, "file": text("A file of the workspace.", "sweep.csv")}, ["study"],
        ),
        examples=({"study": "studies/first", "plan": "58698c070e9c", "measured": {"step_seconds": 80.1, "peak_memory_gib": 12.4}},),
        function=evidence.record_evidence, only_looks=False,
    ),
    Tool(
        name="start_trial",
        description="Runs a plan once on this machine, under the grant. It goes on by itself: ask trial_status.",
        arguments=arguments({"plan": PLAN, "minutes": MINUTES}, ["plan", "minutes"]),
        examples=({"plan": "58698c070e9c", "minutes": 5},), function=trials.start_trial, only_looks=False,
    ),
    Tool(
        name="start_tuning",
        description="Runs trials of the request that a plan answers, learning from each, on this machine and under the grant. It"
        " goes on by itself: ask trial_status.",
        arguments=arguments(
            {"plan": text("Id of a plan of this session.", "58698c070e9c"), **DECKS,
             "study": {**text("A name for the study.", "first"), "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$"},
             "trials": whole("New trials.", 3, most=10_000), "minutes": MINUTES},
            ["plan", "study", "trials", "minutes"],
        ),
        examples=({"plan": "58698c070e9c", "study": "first", "trials": 2, "minutes": 5},),
        function=trials.start_tuning, only_looks=False,
    ),
    Tool(
        name="trial_status",
        description="What is left of the grant, and how jobs go; of one job also its trials.",
        arguments=arguments(
            {"job": text("Of start_trial or start_tuning.", "job-1"),
             "wait_seconds": number("Waits so long for the job's end.", 30, most=60)},
        ),
        examples=({}, {"job": "job-1", "wait_seconds": 30}), function=trials.trial_status,
    ),
)  # fmt: skip
"""In the order in which they are shown."""

MORE = Offer(
    name="more", description="The next page of an answer that has a handle.",
    arguments=arguments({"handle": text("Of an earlier answer.", "1f0c9a77d2-6")}, ["handle"]),
    examples=({"handle": "1f0c9a77d2-6"},),
)  # fmt: skip
"""Turns the pages of what tools have answered, and is shown last."""
