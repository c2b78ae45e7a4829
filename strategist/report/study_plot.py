"""A plot of a study."""

from strategist.contract.study import Study
from strategist.errors import InputError
from strategist.report.page.study_progress import front_plot, progress_plot
from strategist.report.page.svg_file import svg_file


def study_plot(study: Study) -> str:
    """Front of the first two objectives, or the best so far against trials, as an SVG file.

    Raises:
        InputError: no trial ran successfully.
    """
    picture = front_plot(study) if study.goals.several else progress_plot(study)
    if picture is None:
        raise InputError(f"study {study.study}", "holds no trial that ran successfully", "plot it when there is one")
    return svg_file(picture[0])
