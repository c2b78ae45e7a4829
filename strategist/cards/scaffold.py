"""Template of a new card: it acts, passes the linter, and explains in comments what to write where."""

import json
import os
import re
from pathlib import Path

from strategist.cards.deck import Deck
from strategist.cards.reader import CHANGES
from strategist.cards.schema import SCHEMA_FILES
from strategist.contract.knobs import show_value
from strategist.contract.request import CONVERGENCE
from strategist.errors import InputError
from strategist.expr.vocabulary import SETTINGS, Name
from strategist.files import outputs

FIRST_SETTING = "knobs.recompute"
"""Setting of the first policy where no card of the module names one yet."""

_ID = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*", re.ASCII)

_TEMPLATE = """\
# yaml-language-server: $schema={schema}
protocol: 1
StrategyCard:
  id: {id}
  title: {title}  # any text may also be {{en: ..., zh: ...}}
  status: preview  # a stable card also has a title, sources, a case with an effect and one without
  module: {module}
  intent: One sentence on what is traded against what.
  # The card is skipped unless all of these are true. Unknown is not enough.
  preconditions:
    - {{when: workload.train == "full", text: All parameters are trained.}}
  # The settings that the card is about; `strategist cards schema` lists them all.
  control_points:
    - {{name: {name}, path: {path}, changes: {changes}, effect: What it trades.}}
  # What the card does. prefer breaks near-ties; set is a default; require and forbid drop candidates for good.
  policies:
    - id: for-long-sequences
      when: workload.seq_len >= 4096 and device.usable_memory_bytes < 48 GiB
      prefer: {{{name}: {value}}}
      because: One sentence, shown with the plan.
  # What can go wrong while it is followed; shown with each plan that runs the risk.
  risks:
    - {{when: workload.seq_len > 100000, text: It is untested on sequences as long as these.}}
  # Its own tests, by rules alone: one with an effect, one without. Values that are not given are unknown.
  cases:
    - given:
        facts: {{workload.train: full, workload.seq_len: 8192, device.usable_memory_bytes: 22 GiB}}
        candidate: {{{name}: {value}}}
      expect: {{reasons: [for-long-sequences]}}
    - given:
        facts: {{workload.train: full, workload.seq_len: 512, device.usable_memory_bytes: 22 GiB}}
        candidate: {{{name}: {value}}}
      expect: {{reasons: []}}
  # Where the knowledge comes from. A stable card has a source, and figures have theirs under evidence.
  # source_refs:
  #   - {{symbol: torch.distributed.fsdp.fully_shard, parameter: reshard_after_forward}}
  #   - {{url: "https://...", note: "Section 3.2"}}
"""


def scaffold(
    card_id: str, folder: Path, *, deck: Deck, schema: Path, module: str = "", title: str = "", force: bool = False
) -> Path:
    """Writes a new card with this id into ``folder`` and returns its path. Without ``force``, no existing file is replaced.

    Args:
        deck: its cards determine the default module for such an id, and the setting of the first policy.
        schema: folder of the deck whose JSON Schema editors use.

    Raises:
        InputError: the id is invalid.
        FileError: the file exists already, or the folder cannot be written.
    """
    if not _ID.fullmatch(card_id):
        raise InputError(f"card id {card_id}", "letters, digits and dashes are needed", "write e.g. TP-101")
    module = module or _module(card_id, deck)
    path = folder / f"{'-'.join([card_id, *re.findall('[a-z0-9]+', title.lower())])}.yaml"
    setting = _setting(module, deck)
    name = setting.name.partition(".")[2]
    text = _TEMPLATE.format(
        schema=Path(os.path.relpath(schema / "schema" / SCHEMA_FILES["card"], folder)).as_posix(),
        id=card_id,
        title=json.dumps(title or f"What {card_id} is about", ensure_ascii=False),
        module=module if module.isidentifier() else json.dumps(module, ensure_ascii=False),
        name=name,
        path=setting.name,
        changes=CHANGES[name in CONVERGENCE],
        value=show_value(setting.choices[-1] if setting.choices else 2),
    )
    outputs.make_folder(folder)
    outputs.write(path, text, marker="", force=force)
    return path


def _module(card_id: str, deck: Deck) -> str:
    """Module of the cards whose ids have the same prefix; else the prefix itself in lower case."""
    prefix = card_id.partition("-")[0]
    return next((card.module for card in deck.cards if card.id.partition("-")[0] == prefix), prefix.lower())


def _setting(module: str, deck: Deck) -> Name:
    """The first setting that a card of the module is about; START where there is none."""
    points = (point.path for card in deck.cards if card.module == module for point in card.control_points)
    return SETTINGS[next(filter(None, points), FIRST_SETTING)]
