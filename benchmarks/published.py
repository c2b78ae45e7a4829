"""Published runs on 8 x RTX 4090 beside what the cost model says of them; the same runs that tests/cost/test_published.py holds."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cost"))

from test_published import STEPS, predicted

from strategist.contract.layout import Layout


def main() -> None:
    """Prints a row a run: published, predicted, ratio."""
    print(f"{'run (arXiv 2604.27085)':<44}{'published':>14}{'predicted':>14}{'ratio':>8}")
    for name, (seconds, model, batch, layout, knobs) in STEPS.items():
        found = predicted(model, batch, layout, **knobs).step_seconds
        print(f"{f'{model}, {name}, {batch} sequences':<44}{seconds:>12.1f} s{found:>12.1f} s{found / seconds:>8.2f}")
    offloads = {
        "all": (218, 8, Layout(dp_shard=8), {}),
        "streamed": (5516, 256, Layout(pp=8), {"pp_schedule": "gpipe"}),
    }
    for offload, (published, batch, layout, knobs) in offloads.items():
        rate = predicted("qwen3-32b", batch, layout, offload=offload, **knobs).tokens_per_second
        name = f"qwen3-32b, offload {offload}, tokens/s of the box"
        print(f"{name:<44}{published:>14}{rate:>14.0f}{rate / published:>8.2f}")


if __name__ == "__main__":
    main()
