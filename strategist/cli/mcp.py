"""``strategist mcp``: serves the tools for agents over standard input and output, or over HTTP."""

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from strategist.cli import render
from strategist.cli.parser import Parser, above_zero, option_name, positive
from strategist.errors import FileError, InputError

INSTALL = "pip install 'torch-strategist[mcp]'"
MIN_TOKEN = 16
TOKEN = "STRATEGIST_MCP_TOKEN"


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--workspace", default=".", metavar="DIR", help="the one folder that agents read and write (default: this one)"
    )
    parser.add_argument(
        "--grant", metavar="AMOUNT", help="let agents run trials: trials=3,minutes=30 in all, for this folder of studies"
    )
    parser.add_argument("--study", metavar="DIR", help="folder of these trials, inside the workspace (default: its studies)")
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="serve HTTP instead, to clients with the token: 127.0.0.1:8765; port 0 takes a free one"
    )
    parser.add_argument("--token-file", metavar="FILE", help=f"the token's file (default: the environment's {TOKEN})")
    parser.add_argument("--audit", metavar="FILE", help="log file of all calls (default: .strategist in the workspace)")
    parser.add_argument(
        "--long-calls", type=positive("--long-calls"), metavar="N",
        help="long calls (plans, simulations) that run at a time; others wait (default: 4, or the number of cores if larger)",
    )  # fmt: skip
    parser.add_argument(
        "--call-minutes",
        type=above_zero("--call-minutes"),
        default=30.0,
        metavar="M",
        help="end a call after M minutes (default 30)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serves until the client disconnects or the command is interrupted."""
    if find_spec("mcp") is None:
        raise InputError("strategist mcp", "the SDK of the Model Context Protocol is not installed", INSTALL)
    for name in ("study", "token_file"):
        required = {"study": "grant", "token_file": "http"}[name]
        if getattr(options, name) and not getattr(options, required):
            raise InputError(option_name(name), f"is nothing without --{required}", f"add --{required}, or leave it out")
    from strategist.agent.open_session import open_session

    session = open_session(
        options.workspace, options.grant, options.study, options.audit, long_calls=options.long_calls,
        call_minutes=options.call_minutes,
    )  # fmt: skip
    if options.http is None:
        from strategist.agent.server import serve_stdio

        serve_stdio(session)
        return 0
    from strategist.agent.http import Address, serve_http

    address, token = Address.parsed(options.http), _token(options.token_file)
    serve_http(session, address, token, on_ready=lambda url: render.print_note(f"serves {url}"))
    return 0


def _token(file: str | None) -> str:
    """The token. It is never an argument, because all users of a machine see these."""
    try:
        token = os.environ.get(TOKEN, "") if file is None else Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}; name another file") from None
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        law = f"a token of at least {MIN_TOKEN} letters and digits is needed"
        do = "openssl rand -hex 32 > FILE, and --token-file FILE"
        raise InputError(f"--token-file {file}" if file else TOKEN, law, do)
    return token
