"""Screenshots of reports in a browser, for docs/pictures: ``python -m tests.report.page.pictures FOLDER`` writes them."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

from browser import Browser, browser
from PIL import Image

from strategist import api
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.paths import data_dir
from strategist.report.page.plan_page import plan_page
from strategist.report.page.study_page import study_page
from tests.report.page.reports import pipeline

MEASURED = data_dir("profiles") / "measurements" / "tiny-4xcpu-layouts.jsonl"
TINY = Request(model="tiny", gpus="4xcpu", workload=Workload(seq_len=128, global_batch=8, precision="fp32"))
COLOURS = 128
HEIGHT = 844


@cache
def plan() -> str:
    """Page of a plan with pipeline parallelism over two nodes."""
    return plan_page(pipeline())


@cache
def study() -> str:
    """Page of a study of shipped measurements: a tiny model on four processes."""
    with tempfile.TemporaryDirectory() as folder:
        api.import_trials(MEASURED, Path(folder) / "tiny", request=TINY)
        return study_page(api.study_report(Path(folder) / "tiny"))


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Sections of a page from ``first`` to ``last`` at ``width`` pixels; without ``last`` one screen from ``first``."""

    name: str
    page: Callable[[], str]
    width: int
    first: str
    last: str = ""
    dark: bool = False


PICTURES = (
    Picture(name="report", page=plan, width=1100, first="answer", last="memory"),
    Picture(name="plan", page=plan, width=1100, first="mesh", last="timeline"),
    Picture(name="plan-dark", page=plan, width=1100, first="mesh", last="timeline", dark=True),
    Picture(name="plan-phone", page=plan, width=390, first="memory"),
    Picture(name="study", page=study, width=1000, first="best-so-far", last="predicted-and-measured"),
)


def screenshot(picture: Picture, session: Browser, folder: Path) -> Image.Image:
    """The screenshot in few colours; the page is written into ``folder``."""
    page = folder / f"{picture.name}.html"
    page.write_text(picture.page(), encoding="utf-8")
    session.screen(picture.width, HEIGHT, dark=picture.dark)
    session.open(page)
    top, _ = session.bounds(f"#{picture.first}")
    bottom = session.bounds(f"#{picture.last}")[1] if picture.last else top + HEIGHT
    image = Image.open(BytesIO(session.picture(top, picture.width, bottom - top))).convert("RGB")
    return image.quantize(COLOURS, dither=Image.Dither.NONE)


def take(target: Path) -> None:
    """Writes all screenshots into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, browser(Path(name)) as session:
        for picture in PICTURES:
            screenshot(picture, session, Path(name)).save(target / f"{picture.name}.png", optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]))
