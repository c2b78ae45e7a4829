"""Launchers of the formats: folders of the real launchers, and stubs that start ranks like them.

A stub is this file under a launcher's name. A stub needs no torch, so every format and job runs in every test run; it reads
the real launcher's arguments, and gives ranks the real launcher's environment.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
PROBE = HERE / "probe"
LAUNCHERS = {
    "pytorch": "torchrun", "deepspeed": "deepspeed", "megatron-lm": "torchrun", "torchtitan": "torchrun",
    "llama-factory": "llamafactory-cli", "axolotl": "axolotl", "nanotron": "torchrun", "accelerate": "accelerate",
    "hf-trainer": "torchrun", "lightning": "torchrun",
}  # fmt: skip
"""The launcher that each format's start script calls."""

PACKAGES = {
    "torchrun": (), "deepspeed": ("deepspeed",), "accelerate": ("accelerate",), "llamafactory-cli": ("llama_factory",),
    "axolotl": ("axolotl", "llama_factory"),
}  # fmt: skip
"""Folders of ``.frameworks`` that contain each launcher."""


def stubs(folder: Path) -> Path:
    """A folder of stubs, to be put first on ``PATH``."""
    folder.mkdir()
    for name in {*LAUNCHERS.values(), "python"}:
        words = shlex.join((sys.executable, "-S", "-E", str(HERE / "launchers.py"), name))
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def main(name: str, words: Sequence[str]) -> int:
    """Runs the stub of a launcher."""
    known = {"torchrun": torchrun, "accelerate": accelerate, "deepspeed": deepspeed, "axolotl": axolotl}
    return {**known, "llamafactory-cli": llama_factory}[name](list(words))


def options(words: list[str], known: Sequence[str], flags: Sequence[str] = ()) -> dict[str, str]:
    """Removes the options before the program from ``words``; an unknown option is an error, as in the real launchers."""
    found: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, sign, value = words.pop(0).removeprefix("--").replace("-", "_").partition("=")
        assert name in (*known, *flags), f"{name} is not an option"
        found[name] = value if sign else "1" if name in flags else words.pop(0)
    return found


def started(program: Sequence[str], nodes: int, each: int, node: int, address: str, port: str) -> int:
    """Starts the ranks of a node with the variables of torch.distributed (elastic/agent/server/local_elastic_agent.py)."""
    assert 0 <= node < nodes, f"node {node} of {nodes}"
    assert "" not in (address, port), "no rendezvous address"
    running = []
    for local in range(each):
        given_variables = {
            "RANK": node * each + local, "LOCAL_RANK": local, "WORLD_SIZE": nodes * each, "LOCAL_WORLD_SIZE": each,
            "GROUP_RANK": node, "MASTER_ADDR": address, "MASTER_PORT": port,
        }  # fmt: skip
        running.append(rank_with({name: str(value) for name, value in given_variables.items()}, program))
    return max(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in running)


def rank_with(variables: Mapping[str, str], program: Sequence[str]) -> int:
    """Number of a new process that is the rank with these variables: a fork, as an interpreter of its own takes longer to start."""
    if number := os.fork():
        return number
    try:
        os.environ.update(variables)
        sys.path.insert(0, str(PROBE))
        sys.argv[1:] = program
        import_module("rank").main()
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def torchrun(words: list[str]) -> int:
    """torch/distributed/run.py: an option may be set by a variable with prefix PET_; the command line has precedence."""
    flags = ("standalone",)
    known = ("nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port")
    found = {name: os.environ.get(f"PET_{name.upper()}", "") for name in known} | options(words, known, flags)
    if "standalone" in found:
        return started(words, 1, int(found["nproc_per_node"]), 0, "127.0.0.1", "29400")
    place = (int(found["nnodes"]), int(found["nproc_per_node"]), int(found["node_rank"]))
    return started(words, *place, found["master_addr"], found["master_port"])


def accelerate(words: list[str]) -> int:
    """accelerate/commands/launch.py: num_processes counts processes of all machines."""
    assert words.pop(0) == "launch"
    found = options(words, ("config_file", "machine_rank", "main_process_ip", "main_process_port"))
    lines = (line.partition(":")[::2] for line in Path(found["config_file"]).read_text().splitlines() if line[:1].isalpha())
    config = {name: value.partition("#")[0].strip() for name, value in lines}
    nodes = int(config["num_machines"])
    node = int(found.get("machine_rank", config["machine_rank"]))
    place = (found.get("main_process_ip", ""), found.get("main_process_port", "")) if nodes > 1 else ("127.0.0.1", "29500")
    return started(words, nodes, int(config["num_processes"]) // nodes, node, *place)


def deepspeed(words: list[str]) -> int:
    """deepspeed/launcher/runner.py: without ssh a hostfile gives the number of hosts and their ranks."""
    known = ("hostfile", "num_nodes", "num_gpus", "node_rank", "master_addr", "master_port")
    found = options(words, known, ("no_ssh",))
    if "hostfile" not in found:
        assert found["num_nodes"] == "1"
        return started(words, 1, int(found["num_gpus"]), 0, "127.0.0.1", "29500")
    hosts = [line.split() for line in Path(found["hostfile"]).read_text().splitlines()]
    assert len({name for name, _ in hosts}) == len(hosts)
    [each] = {int(slots.removeprefix("slots=")) for _, slots in hosts}
    assert "no_ssh" in found, "ssh leads to no host of the list"
    return started(words, len(hosts), each, int(found["node_rank"]), found["master_addr"], found["master_port"])


def llama_factory(words: list[str]) -> int:
    """llamafactory/launcher.py: all options are environment variables."""
    assert words.pop(0) == "train"
    assert os.environ["FORCE_TORCHRUN"] == "1"
    given_variables = {
        name: os.environ.get(name, "") for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    }
    if given_variables["NNODES"] == "1":
        return started(words, 1, int(given_variables["NPROC_PER_NODE"]), 0, "127.0.0.1", "29500")
    place = (int(given_variables["NNODES"]), int(given_variables["NPROC_PER_NODE"]), int(given_variables["NODE_RANK"]))
    return started(words, *place, given_variables["MASTER_ADDR"], given_variables["MASTER_PORT"])


def axolotl(words: list[str]) -> int:
    """axolotl/cli/main.py: arguments after -- are torchrun's."""
    assert words.pop(0) == "train"
    own, _, given = (words[: words.index("--")], "--", words[words.index("--") + 1 :])
    place = own.index("--launcher")
    assert own[place + 1] == "torchrun"
    return torchrun([*given, "-m", "axolotl.cli.train", *own[:place], *own[place + 2 :]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
