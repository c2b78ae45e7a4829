"""Server for one reader of this folder, ``forked.py READER``. Each line of standard input is a list of its arguments, a file for
its output and one for its errors; the reader runs in a fork of this process, which has done its imports, and a line reports its
exit code.
"""

import json
import os
import runpy
import sys
import traceback


def run(reader: str, arguments: list[str], output: str, errors: str) -> None:
    """Runs the reader as a script, and ends the process."""
    for descriptor, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.argv = [reader, *arguments]
    ended = 0
    try:
        runpy.run_path(reader, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        ended = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)


if __name__ == "__main__":
    reader = sys.argv[1]
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of imports is not a reply
    runpy.run_path(reader, run_name="imported")
    for line in sys.stdin:
        arguments, output, errors = json.loads(line)
        child = os.fork()
        if child == 0:
            run(reader, arguments, output, errors)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=replies, flush=True)
