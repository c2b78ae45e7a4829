"""Exit codes of commands; the message of a failure is on standard error."""

from strategist.contract.estimate import Fit

FAILED, USER_ERROR, UNDECIDED, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 130, 141

EXIT_CODES = {
    0: "all is well",
    FAILED: "a trial failed, a check found something wrong, or nothing fits",
    USER_ERROR: "wrong input: one line with the value, the law it breaks, and what to do",
    UNDECIDED: "check, plan --check or simulate cannot say that it fits: it is tight, or not all is priced",
    INTERRUPTED: "interrupted, or ended by a scheduler; all started processes have ended",
    PIPE_CLOSED: "broken pipe: standard output was closed",
}


def verdict_code(fit: Fit) -> int:
    """The exit code of a verdict on memory."""
    return {Fit.FITS: 0, Fit.TOO_LARGE: FAILED}.get(fit, UNDECIDED)
