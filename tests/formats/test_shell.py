"""Shell scripts are read like bash reads them."""

import subprocess

import pytest

from strategist.formats.shell import commands

PRINT_ARGUMENTS = 'run() { printf "%s\\n" "$@"; }\n'
"""A function that prints each of its arguments on a line."""

SCRIPTS = {
    "several on a line": 'TP=8; PP=4\nrun --tp $TP --pp "$PP"',
    "one after another": 'export A=1 B="2 3"; readonly C=4\nrun $A "$B" $B $C',
    "an array": 'ARGS=(--tp 8 # of eight\n  --name "two words"\n)\nARGS+=(--bf16)\nrun "${ARGS[@]}" ${ARGS[@]} ${ARGS[0]}',
    "an array of arrays": 'A=(--x 1)\nB=("${A[@]}" --y 2)\nrun "${B[@]}"',
    "declared": 'declare -a ARGS=(--a 1)\nrun "${ARGS[@]}"',
    "options in a string": 'OPTS="--a 1 \\\n  --b 2"\nOPTS+=" --c 3"\nrun $OPTS',
    "quotes": 'run \'single $X\' "double \\"inner\\" word" a\\ b \'it\'"\'"\'s\' "" end',
    "text next to a variable": 'N=4\nrun --n=$N --m="$N"x ${N}0 "$N$N"',
    "defaults": 'A=1\nrun ${A:-2} ${B:-3} "${C:-four five}" ${D:=6} $D ${A:+yes}',
    "a default of a default": "run ${A:-${B:-7}}",
    "arithmetic": "TP=4 PP=2\nrun $((TP * PP)) $(( $TP+1 )) $((16 / TP % 3))",
    "continued lines": "run --a 1 \\\n  --b 2 \\\n  --c",
    "comments": "run --a 1 # --b 2\n# run --c 3\nrun a#b",
    "redirections": "run --a 1 2>&1 | cat > /dev/null; run --b 2 >/dev/null 2>/dev/null; run --c 3",
    "leading redirections": "run --a 1\n> /dev/null\n</dev/null\nrun --b 2;>/dev/null\n(>/dev/null)\nrun --c &>/dev/stdout",
    "a here-document": "cat <<'END' > /dev/null\n--x 1 it's\nEND\nrun --a 1",
    "a function": "train() {\n  local X=3\n  run --x $X\n}\ntrain",
    "a reassigned variable": "A=1\nA=2\nrun $A",
    "spaces in an unquoted variable": 'A=" x  y "\nrun p$A q',
    "arguments of a script": "TP=${1:-8}; run ${TP} ${2:-x}",
    "no arguments": 'run a "$@" b $@ c',
}


def run_words(text: str) -> list[str]:
    """The arguments of the calls of ``run``, in script order."""
    found = [command.words for command in commands(text) if command.words[0].text == "run"]
    return [word.text for words in found for word in words[1:]]


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_equal_those_of_bash(name: str) -> None:
    text = SCRIPTS[name].replace("| cat > /dev/null", "").replace(">/dev/null 2>/dev/null", "")
    shell = subprocess.run(["bash", "-c", PRINT_ARGUMENTS + text], capture_output=True, text=True, check=True, env={})
    assert run_words(SCRIPTS[name]) == shell.stdout.splitlines()


@pytest.mark.parametrize(
    "text",
    [
        "run $X",
        "X=`date`\nrun $X",
        "X=$(hostname)\nrun $X",
        "for X in 1 2; do run $X; done",
        "X=1\nif [ -n $Y ]; then X=2; fi\nrun $X",
        "X=1\ncase $Y in a) X=2 ;; esac\nrun $X",
        "X=1\n[ -n $Y ] && X=2\nrun $X",
        "X=1\ntest -n $Y || X=2\nrun $X",
        "run $((X + 1))",
        "X=1\nrun ${X%1}",
        "X=4\nif [ $Y ]; then X=2; fi\nrun ${X:-1}",
    ],
)
def test_values_known_only_at_run_time_keep_their_dollar_sign(text: str) -> None:
    assert all("$" in word for word in run_words(text))
    assert run_words(text)


def test_the_output_of_a_command_with_spaces_is_one_word() -> None:
    assert run_words('A=$(date +"%F %T")\nN=run_${A}_1\nrun --name $N --x 1')[1:] == ['run_$(date +"%F %T")_1', "--x", "1"]


def test_words_added_by_a_condition_are_uncertain() -> None:
    [words] = [item.words for item in commands('A=(--a 1)\nif [ $Y ]; then A+=(--b 2); fi\nrun "${A[@]}" --c')]
    assert {word.text: word.certain for word in words[1:]} == {"--a": True, "1": True, "--b": False, "2": False, "--c": True}


@pytest.mark.parametrize(("itself", "before"), [("$A", "--a 1"), ("${A}", "--a 1"), ("${A[@]}", "--a 1")])
def test_words_added_by_a_condition_around_a_value_are_uncertain(itself: str, before: str) -> None:
    text = f'A="{before}"\nif [ $Y ]; then A="--z {itself} --b"; fi\nrun $A'
    [words] = [item.words for item in commands(text)]
    assert {word.text: word.certain for word in words[1:]} == {"--z": False, "--a": True, "1": True, "--b": False}


def test_an_array_that_a_condition_extends_as_a_text_keeps_its_words() -> None:
    """Bash puts the joined text into the first element, which is the value without an index."""
    text = 'A=(\n--a 1\n--b 2\n)\nif [ $Y ]; then A="${A[@]} --c"; else A="${A[@]} --d"; fi\nrun $A'
    [words] = [item.words for item in commands(text)]
    certain = [word.text for word in words[1:] if word.certain]
    assert certain == ["--a", "1", "--b", "2"]


def test_eval_removes_quotes_again() -> None:
    [words] = [item.words for item in commands("A=\"--list '([0]*3+[1])' --stages E\\|t\"\neval run $A")]
    assert [word.text for word in words[1:]] == ["--list", "([0]*3+[1])", "--stages", "E|t"]


def test_brackets_inside_a_sum_do_not_end_it() -> None:
    assert run_words("run --n $((8 / (2 * 2))) --m 1") == ["--n", "2", "--m", "1"]


def test_words_have_the_line_on_which_they_are_written() -> None:
    [words] = [item.words for item in commands('ARGS="\n--a 1\n--b 2"\nM=(\n--c\n)\nrun $ARGS \\\n "${M[@]}" --d')]
    assert {word.text: word.line for word in words if word.text[0] == "-"} == {"--a": 2, "--b": 3, "--c": 5, "--d": 8}


def test_unused_option_arrays_come_last() -> None:
    found = list(commands("MINE=(--a 1)\nOTHER=x\nrun --b 2"))
    assert [(item.words[0].text, item.runs) for item in found] == [("run", True), ("--a", False)]


@pytest.mark.parametrize(
    "text",
    [
        "run 'open",
        'run "open',
        "run ${open",
        "run $(open",
        "A=(1 2",
        "run `x",
        "a <<END\n",
        "\\",
        "$",
        "&&&",
        "))((",
        "\n>",
        "|>",
        ")>",
    ],
)
def test_unclosed_quotes_and_brackets_end_with_the_text(text: str) -> None:
    list(commands(text))
