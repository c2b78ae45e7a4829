"""Tests of cards: their cases by the rules alone, their examples as programs."""

from collections.abc import Callable, Iterable

from strategist.cards.card import Card
from strategist.contract.card_example import CardTest, Failure, Script, ScriptOutcome, ScriptResult
from strategist.executors.card_examples import TIMEOUT_SECONDS, run_scripts
from strategist.lint.cases import failures

OnCard = Callable[[CardTest], None]
ExampleKey = tuple[str, int]
"""Path of a card and index of the example in it."""


def run_examples(
    cards: Iterable[Card],
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    on_result: Callable[[ExampleKey, ScriptResult], None] | None = None,
) -> dict[ExampleKey, ScriptResult]:
    """Results of all examples of the cards that are scripts.

    Raises:
        InputError: there are scripts, and no Linux or no torch to run them.
    """
    scripts = {(card.document.path, index): example for card in cards for index, example in enumerate(card.example) if example.run}
    keys = list(scripts)

    def forward(number: int, result: ScriptResult) -> None:
        if on_result is not None:
            on_result(keys[number], result)

    programs = [Script(run=example.run, ranks=example.ranks, refused=example.refused) for example in scripts.values()]
    ran = run_scripts(programs, timeout_seconds=timeout_seconds, on_result=forward)
    return dict(zip(keys, ran, strict=True))


def run_tests(
    cards: Iterable[Card], *, timeout_seconds: float = TIMEOUT_SECONDS, on_card: OnCard | None = None
) -> tuple[CardTest, ...]:
    """Test results of the cards, in their order; ``on_card`` is called with each as soon as its last example has ended.

    Raises:
        InputError: there are scripts, and no Linux or no torch to run them.
    """
    waiting, results, tests = list(cards), dict[ExampleKey, ScriptResult](), list[CardTest]()

    def advance(key: ExampleKey | None = None, result: ScriptResult | None = None) -> None:
        if key is not None and result is not None:
            results[key] = result
        while waiting and all(_key(waiting[0], index) in results for index in _runnable(waiting[0])):
            tests.append(_test(waiting.pop(0), results))
            if on_card is not None:
                on_card(tests[-1])

    advance()
    ran = run_examples(tuple(waiting), timeout_seconds=timeout_seconds, on_result=advance)
    for key, result in ran.items():  # scripts that the runner did not reach
        advance(key, result)
    return tuple(tests)


def _key(card: Card, index: int) -> ExampleKey:
    return card.document.path, index


def _runnable(card: Card) -> list[int]:
    return [index for index, example in enumerate(card.example) if example.run]


def _test(card: Card, results: dict[ExampleKey, ScriptResult]) -> CardTest:
    ran = {index: results[_key(card, index)] for index in _runnable(card)}
    return CardTest(
        card=card.id,
        path=card.document.path,
        cases=len(card.cases),
        examples=len(ran),
        refused=sum(result.outcome is ScriptOutcome.REFUSED for result in ran.values()),
        seconds=sum(result.seconds for result in ran.values()),
        failures=(
            *_case_failures(card),
            *(_example_failure(card, index, result) for index, result in ran.items() if not result.sound),
        ),
    )


def _case_failures(card: Card) -> list[Failure]:
    return [
        Failure(part="case", number=index + 1, message=message, line=card.document.mark(("StrategyCard", "cases", index))[0])
        for index, case in enumerate(card.cases)
        for message in failures(card, case)
    ]


def _example_failure(card: Card, index: int, result: ScriptResult) -> Failure:
    begin = card.document.mark(("StrategyCard", "example", index, "run"))[0]
    script_line = result.line if result.line and "\n" in card.example[index].run else 0  # a block begins on the line after its mark
    return Failure(part="example", number=index + 1, message=result.message, line=begin + script_line, script_line=result.line)
