"""Texts that escape their place if a writer does not quote them, and random texts of the same characters."""

import random
from collections.abc import Iterator

CANARY = "canary"
_RUN = f"touch {CANARY}"
_SHELL = (
    f'$({_RUN})', f'`{_RUN}`', f'; {_RUN}', f'| {_RUN}', f'&& {_RUN}', f'\n{_RUN}\n', f"'; {_RUN}; '", f'"; {_RUN}; "',
    f'${{x:-$({_RUN})}}', f'<({_RUN})', f"a\\'; {_RUN} #", f"$'\\n{_RUN}'", f'\r\n{_RUN}', f'x; {_RUN} #', f'%s\n#!{_RUN}',
    '-rf', '--', '-', '*', '~', '~root', '$HOME', '${PATH}', '!!', '!x', '{a,b}', '[a-z]', '?', 'a b', ' a', 'a ', '\t',
    'a=b', '=', '#', 'a #b', '\\', '\\\\n', "'", '"', "''", '""', '',
)  # fmt: skip
_YAML = (
    'key: value', '- item', '? a', ': a', 'a: b: c', '&a x', '*a', '!!python/object:os.system', '!x', '|', '| ', '>',
    '%YAML 1.1', '---', '...', '\n---\nkind: Pod', 'a\nspec: {}', '{a: b}', '[a, b]', '@a', '<<', '<<: *a', 'null', '~',
    'yes', 'no', 'on', 'Off', 'TRUE', '1e3', '1.0e3', '1e-4', '0o10', '010', '0x1F', '1_000', '1:30', '.inf', '.nan',
    '2024-01-01', '=', 'a\n\n  b', '\ta', 'a\t#b', "'a", "a'b", '"a', 'a:', 'a,b',
)  # fmt: skip
_OTHERS = (
    '"}', '\\u0000', '\\x00', '"""', "'''", '*/', '-->', ']]>', '{{ x }}', '{% x %}', '${{ x }}', '%(x)s',
    '#SBATCH --wrap=id', '\n#SBATCH --wrap=id', '\u2028a', '\u2029a', '\x85a', '\ufeffa', '\u202ea', '\x7f', '\x1b[31m',
    '\x07', 'é', '日本', '😀', 'a\x0bb', 'a\x0cb', '\x01',
)  # fmt: skip
HOSTILE = tuple(dict.fromkeys((*_SHELL, *_YAML, *_OTHERS)))
"""Without duplicates, and without the zero byte, which arguments and environment variables cannot contain."""

LETTERS = "abcXYZ019 \t\n\r'\"\\$`!#&*?|<>()[]{};:,.-_=+~^%@/\x01\x1b\x7f\x85\xa0é\u2028\u2029\ufeff\ufffe日\U0001f600"


def random_texts(chance: random.Random, count: int) -> Iterator[str]:
    """Random texts of up to thirty characters, most of which are special in some language."""
    for _ in range(count):
        yield "".join(chance.choices(LETTERS, k=chance.randrange(30)))
