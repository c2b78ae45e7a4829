"""Start commands of an exported training on each node; the launcher takes the node's place from the environment.

A start script for several nodes reads NODE_RANK, MASTER_ADDR and MASTER_PORT from its environment. The jobs of ``launch`` set them.
"""

from collections.abc import Mapping, Sequence

from strategist.contract.plan import Plan
from strategist.formats.commented_text import Shell, script

PORT = 29500
"""Default of MASTER_PORT; the port of torch's examples."""

NODE_RANK, MASTER_ADDR, MASTER_PORT = (Shell(f'"${name}"') for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
NODE = (
    "On each node NODE_RANK, MASTER_ADDR and MASTER_PORT say where the ranks meet; strategist export --job writes what sets them."
)
_UNSET_ADVICE = "is not set; start this script by a job, see strategist export --job"


def torchrun(plan: Plan) -> tuple[str, ...]:
    """Arguments of torchrun, up to the program.

    Rendezvous is static: with c10d, nodes would exchange host names, which other nodes need not be able to resolve.
    """
    nodes, processes = plan.cluster.nodes, f"--nproc-per-node={plan.cluster.gpus_per_node}"
    if nodes == 1:
        return ("--standalone", processes)
    rendezvous = (f"--node-rank={NODE_RANK}", f"--master-addr={MASTER_ADDR}", f"--master-port={MASTER_PORT}")
    return (f"--nnodes={nodes}", processes, *map(Shell, rendezvous))


def start_script(
    plan: Plan,
    command: Sequence[str],
    arguments: Sequence[tuple[Sequence[str], str]] = (),
    *,
    about: Sequence[str],
    environment: Mapping[str, str],
) -> str:
    """Script that starts the ranks of one node; the arguments that it is called with follow ``arguments``."""
    if plan.cluster.nodes == 1:
        return script(command, arguments, about=about, environment=environment)
    exports = [
        f'export MASTER_PORT="${{MASTER_PORT:-{PORT}}}"',
        *(f'export {name}="${{{name}:?{_UNSET_ADVICE}}}"' for name in ("NODE_RANK", "MASTER_ADDR")),
    ]
    return script(command, arguments, about=(*about, "", NODE), environment=environment, first=exports)
