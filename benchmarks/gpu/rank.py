"""One rank as strategist starts it, which also leaves the allocator's statistics: rank.py PLAN.json --out DIR [--shadow R]"""

import json
import sys
from unittest.mock import patch

from strategist_runtime import __main__ as program
from strategist_runtime.rank_record import Recorder

from strategist.contract.measurement import Outcome


class Recording(Recorder):
    """Writes ``allocator.json`` before the record, which is the last thing that a rank does."""

    def end(self, outcome: Outcome, message: str = "") -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            (self.folder / "allocator.json").write_text(json.dumps(torch.cuda.memory_stats()), encoding="utf-8")
        super().end(outcome, message)


if __name__ == "__main__":
    with patch.object(program, "Recorder", Recording):
        program.main(sys.argv[1:])
