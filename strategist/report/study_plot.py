"""A plot of a study."""

from strategist.contract.report import StudyReport
from strategist.errors import InputError
from strategist.report.page.study_progress import course_plot, front_plot
from strategist.report.page.svg_file import svg_file


def study_plot(report: StudyReport) -> str:
    """Front of the first two objectives, or the best so far against trials, as an SVG file.

    Raises:
        InputError: no trial ran successfully.
    """
    drawn = front_plot(report) if len(report.objectives) > 1 else course_plot(report)
    if drawn is None:
        raise InputError(f"study {report.study}", "holds no trial that ran successfully", "plot it when there is one")
    return svg_file(drawn[0])
