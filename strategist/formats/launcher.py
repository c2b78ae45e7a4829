"""What a trainer's file leaves to its launcher: accelerate's own file may shard what the trainer's does not."""

import re
from dataclasses import replace

from strategist.formats.effects import LAUNCH_FILE
from strategist.formats.finding_codes import finding
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source

_ACCELERATE = re.compile(r"accelerate(\.commands\.launch|\s+launch)")


def left_to_launcher(found: ParsedConfig, source: Source) -> ParsedConfig:
    """What is read of a file that does not shard, with an open finding that giving ``dp_shard`` settles. Nothing is left to the
    launcher of a script that starts otherwise: torchrun and python shard nothing."""
    if source.language == "command" and not _ACCELERATE.search(source.text):
        return found
    message = f"neither deepspeed nor fsdp is there: DDP is assumed, and {LAUNCH_FILE} may shard"
    do = "give --fix dp_shard=GPUS where it does, dp_shard=1 where it does not"
    unread = finding("FMT-011", message, do, source, about=LAUNCH_FILE)
    return replace(found, said={**found.said, "dp_shard": LAUNCH_FILE}, findings=(*found.findings, unread))
