"""A script that starts an exported plan on hosts through ssh or another remote shell: it ships the files and waits for all
hosts.
"""

import re
import shlex

from strategist.errors import InputError
from strategist.executors import engine
from strategist.formats.format import File
from strategist.launch.job import PORT, Job

NAME, ON_HOST = "hosts.sh", "on_host.sh"
GRACE_SECONDS = 10
"""Between the signals SIGTERM and SIGKILL to the ranks of a host."""

_HOST = re.compile(r"[A-Za-z0-9_.:@%\[\]-]{1,255}", re.ASCII)

_ON_HOST = """\
#!/usr/bin/env bash
# Starts the ranks of one host, whose number is the first argument, and ends them when standard input closes: what asked for them is
# gone.
set -um
cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")"
export NODE_RANK=$1 NNODES={nodes} MASTER_ADDR={address} MASTER_PORT={port}
{variables}shift
{command} "$@" < /dev/null &
command=$!
{{ cat > /dev/null; kill -TERM -- "-$command"; sleep {grace}; kill -KILL -- "-$command"; }} 2> /dev/null &
watch=$!
wait "$command"
code=$?
{{ kill -TERM -- "-$watch"; wait "$watch"; }} 2> /dev/null
exit "$code"
"""

_SCRIPT = """\
#!/usr/bin/env bash
# Starts {name} on its hosts: ships this folder to each, starts all, and ends all when one fails. Arguments are passed on.
set -euo pipefail
cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")"
hosts=({hosts})
remote() {{ exec {remote}; }}
quoted() {{ local word; for word in "$@"; do printf " '%s'" "${{word//\\'/\\'\\\\\\'\\'}}"; done; }}
folder=$(quoted {folder})
arguments=$(quoted "$@")

for host in "${{hosts[@]}}"; do
  tar -cf - . | (remote "$host" "mkdir -p -- $folder && tar -xf - -C $folder")
done
running=()
end_all() {{ kill "${{running[@]}}" 2> /dev/null || true; wait "${{running[@]}}" || true; }}
trap end_all EXIT
start_all() {{
  running=()
  for number in "${{!hosts[@]}}"; do
    (remote "${{hosts[number]}}" "cd -- $folder && exec bash {on_host} $number $arguments") < <(exec tail --pid=$$ -f /dev/null) &
    running+=($!)
  done
  for _ in "${{hosts[@]}}"; do
    wait -n "${{running[@]}}" || return
  done
}}
{start}
"""
_RESTARTING = """\
for start in {{1..{starts}}}; do
  code=0; start_all || code=$?
  if ((code == 0)); then break; fi
  echo "start $start of at most {starts} ended with exit code $code" >&2
  end_all
  sleep {grace}  # until each host has ended its ranks
done
exit "$code\""""


def files(job: Job) -> tuple[File, ...]:
    """The script to run where the hosts can be reached, and the script that it runs on each host.

    Raises:
        InputError: hosts are missing, are not as many as the plan's nodes, or have an invalid name.
    """
    names, quote = _hosts(job), shlex.quote
    variables = "".join(f"export {name}={quote(value)}\n" for name, value in job.options.environment.items())
    on_host = _ON_HOST.format(
        nodes=job.nodes,
        address=quote(names[0][1]),
        port=PORT,
        variables=variables,
        command=shlex.join(job.written.command),
        grace=GRACE_SECONDS,
    )
    text = _SCRIPT.format(
        name=job.name, hosts=shlex.join(name for name, _ in names), folder=quote(job.options.workdir or job.name),
        remote=_remote(job.options.remote_shell), on_host=ON_HOST, start=_start(job.restarts),
    )  # fmt: skip
    return (File(name=ON_HOST, text=on_host), File(name=NAME, text=text, runs=True))


def _start(restarts: int) -> str:
    """Commands that start the training on all hosts, and start it again when it fails."""
    return _RESTARTING.format(starts=restarts + 1, grace=GRACE_SECONDS + 2) if restarts else "start_all"


def _hosts(job: Job) -> list[tuple[str, str]]:
    """Names of the hosts with their addresses."""
    hosts_option = job.options.hosts
    if not hosts_option:
        raise InputError("--hosts", "is missing", "name the hosts of --job hosts, e.g. --hosts node1,node2")
    known = engine.hosts(hosts_option, job.options.remote_shell)
    names = [(name, address or name) for name, _, address in (host.partition("=") for host in known.names)]
    if invalid := next((part for pair in names for part in pair if not _HOST.fullmatch(part) or part.startswith("-")), ""):
        raise InputError(
            f"--hosts {hosts_option}", f"{invalid!r} is not a host", "write names or addresses, e.g. --hosts node1,node2=10.0.0.2"
        )
    if len(names) != job.nodes:
        law = f"names {len(names)} hosts, and the plan has {job.nodes} nodes of {job.devices_per_node} devices"
        raise InputError(f"--hosts {hosts_option}", law, "name as many, or plan for what there is with --gpus")
    return names


def _remote(text: str) -> str:
    """The remote shell's command as the body of a function whose arguments are host and command."""
    replacements = {"{host}": '"$1"', "{command}": '"$2"'}
    return " ".join(replacements.get(word) or _with_host(word) for word in shlex.split(text))


def _with_host(word: str) -> str:
    return '"$1"'.join(shlex.quote(part) if part else "" for part in word.split("{host}"))
