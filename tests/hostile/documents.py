"""Hostile documents: a name, the text or bytes, and words of the expected error."""

NESTED = 50_000


def bomb(levels: int = 9, width: int = 9) -> str:
    """Aliases of aliases: nine to the ninth values in some hundred characters."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


def merge_bomb(levels: int = 14) -> str:
    """Merge keys that double the merged mapping at each level; a reader that follows them hangs."""
    lines = ["m0: &m0 {k: v}"]
    lines += [f"m{level}: &m{level} {{<<: [*m{level - 1}, *m{level - 1}], k{level}: v}}" for level in range(1, levels)]
    return "\n".join(lines)


YAML: dict[str, tuple[str | bytes, str]] = {
    "alias bomb": (bomb(), "anchors"),
    "alias bomb in mappings": (bomb().replace("[", "{q: [").replace("]", "]}"), "anchors"),
    "merge bomb": (merge_bomb(), "anchors"),
    "merge of itself": ("a: &a {<<: *a}", "anchors"),
    "anchor on a key": ("&k a: 1", "anchors"),
    "anchor on nothing": ("a: &x", "anchors"),
    "unknown alias": ("a: *missing", "aliases"),
    "alias as a key": ("*a : 1", "aliases"),
    "merge key": ("a: 1\n<<: {b: 2}", "merge key"),
    "deep lists": ("[" * NESTED, "deeper than"),
    "deep mappings": ("{a: " * NESTED, "deeper than"),
    "deep blocks": ("\n".join(" " * level + "a:" for level in range(500)), "deeper than"),
    "deep sequences": ("- " * NESTED + "x", "deeper than"),
    "deep and closed": ("[" * NESTED + "]" * NESTED, "deeper than"),
    "many items": ("[" + "1," * 60_000 + "1]", "more than"),
    "many keys": ("\n".join(f"k{number}: 1" for number in range(25_000)), "more than"),
    "many documents": ("---\na: 1\n" * 1000, "second document"),
    "an end and more": ("a: 1\n...\nb: 2", "not YAML"),
    "large": ("a: " + "x" * 300_000, "256 KiB"),
    "large of many bytes": ("a: " + "\u4e2d" * 100_000, "256 KiB"),
    "long number": ("a: " + "9" * 5_000, "quote it"),
    "long exponent": ("a: 1e" + "9" * 400, "quote it"),
    "infinite": ("a: .inf", "quote it"),
    "no number": ("a: .nan", "quote it"),
    "sexagesimal": ("a: 190:20:30", "quote it"),
    "octal of 1.1": ("a: 0777", "quote it"),
    "octal of 1.2": ("a: 0o777", "quote it"),
    "hexadecimal": ("a: 0xFFFF", "quote it"),
    "binary": ("a: 0b1010", "quote it"),
    "underscored": ("a: 1_000_000", "quote it"),
    "a key twice": ("a: 1\na: 2", "twice"),
    "a key twice, deep": ("x:\n  - {a: 1, b: {c: 1, c: 2}}", "twice"),
    "a key twice, in two spellings": ('a: 1\n"a": 2', "twice"),
    "a number as a key": ("1: a", "a key is text"),
    "true as a key": ("true: a", "a key is text"),
    "null as a key": ("~: a", "a key is text"),
    "a list as a key": ("? [a, b]\n: 1", "a key is text"),
    "a mapping as a key": ("? {a: b}\n: 1", "a key is text"),
    "an object of Python": ("!!python/object/apply:os.system ['echo']", "tags"),
    "a name of Python": ("a: !!python/name:os.system", "tags"),
    "a tuple of Python": ("a: !!python/tuple [1]", "tags"),
    "binary data": ("a: !!binary aGVsbG8=", "tags"),
    "a set": ("a: !!set {x, y}", "tags"),
    "a timestamp": ("a: !!timestamp 2001-12-14", "tags"),
    "an integer that is none": ("a: !!int abc", "tags"),
    "a tag of one's own": ("a: !include /etc/passwd", "tags"),
    "a tag with a handle": ("%TAG ! tag:evil,2000:\n---\na: !x 1", "tags"),
    "a long tag": ("a: !" + "t" * 1000 + " 1", "tags"),
    "a wrong version": ("%YAML 9.9\n---\na: 1", "not YAML"),
    "a wrong directive": ("%EVIL yes\n---\na: &x 1", "not YAML"),
    "a tab as indentation": ("a:\n\tb: 1", "not YAML"),
    "a bracket that is open": ("a: [1, 2", "not YAML"),
    "a quote that is open": ('a: "b', "not YAML"),
    "a colon too many": ("a: b: c", "not YAML"),
    "a wrong indentation": ("a:\n  - b\n c: d", "not YAML"),
    "an escape that is none": ('a: "\\q"', "not YAML"),
    "half a surrogate": ('a: "\\ud800"', "not"),
    "a control character": ("a: b\x07c", "not YAML"),
    "an escape of the terminal": ('a: "\\e]0;evil\\a"', "cannot be shown"),
    "text that runs backwards": ("a: \u202eevil", "cannot be shown"),
    "isolates": ("a: \u2066evil", "cannot be shown"),
    "a line separator": ('a: "\\L"', "cannot be shown"),
    "a zero byte": (b"a: b\x00c", "not YAML"),
    "Latin-1": ("a: caf\u00e9".encode("latin-1"), "not UTF-8"),
    "UTF-16": ("a: 1".encode("utf-16"), "not UTF-8"),
    "UTF-32": ("a: 1".encode("utf-32"), "not"),
    "overlong UTF-8": (b"a: \xc0\xaf", "not UTF-8"),
    "half a character": (b"a: \xe4\xb8", "not UTF-8"),
    "an ELF file": (b"\x7fELF\x02\x01\x01" + bytes(64), "not"),
    "a pickle": (b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix", "not UTF-8"),
}

JSON: dict[str, tuple[str | bytes, str]] = {
    "deep lists": ("[" * NESTED + "]" * NESTED, ""),
    "deep mappings": ('{"a":' * NESTED + "1" + "}" * NESTED, ""),
    "no number": ('{"version": NaN}', ""),
    "infinite": ('{"version": Infinity}', ""),
    "a long number": ('{"version": ' + "9" * 5_000 + "}", ""),
    "a huge exponent": ('{"version": 1e999}', ""),
    "a list": ("[1, 2]", ""),
    "a text": ('"plan"', ""),
    "nothing": ("", ""),
    "cut off": ('{"version": 1, "type": "Plan', ""),
    "another version": ('{"version": 99, "type": "Plan"}', ""),
    "another type": ('{"version": 1, "type": "Measurement"}', ""),
    "unknown fields": ('{"version": 1, "type": "Plan", "run": "rm -rf /"}', ""),
    "half a surrogate": ('{"version": 1, "type": "\\ud800"}', ""),
    "two keys": ('{"version": 1, "version": 1, "type": "Plan"}', ""),
    "a zero byte": (b'{"version": 1, "type": "Plan\x00"}', ""),
    "UTF-16": ('{"version": 1}'.encode("utf-16"), ""),
    "many values": ("[" + "[]," * 99_990 + "[]]", ""),
    "many keys": ("{" + ",".join(f'"k{number}": {{}}' for number in range(45_000)) + "}", ""),
    "a key twice, after many": ("[" + '{"a":1},' * 49_000 + '{"a": 1, "a": 2}]', ""),
    "too many values": ("[" + "[]," * 200_000 + "[]]", ""),
    "a long text": ('{"version": 1, "type": "' + "x" * 8_000_000 + '"}', ""),
    "a long key": ('{"version": 1, "type": "Plan", "' + "x" * 8_000_000 + '": 1}', ""),
    "large": ("[" + " " * 9_000_000 + "]", ""),
    "a number beyond all": ('{"version": 1, "type": "Plan", "id": ' + "9" * 400 + "}", ""),
}
