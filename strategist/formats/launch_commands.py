"""How an exported training starts on each node: its launcher's arguments, which take the node's place from the environment.

A start script for several nodes finds NODE_RANK, MASTER_ADDR and MASTER_PORT in its environment. The jobs of ``launch`` set them.
"""

from collections.abc import Mapping, Sequence

from strategist.contract.plan import Plan
from strategist.formats.commented_text import Shell, script

PORT = 29500
"""MASTER_PORT where it is not set; what torch's examples take."""

NODE_RANK, MASTER_ADDR, MASTER_PORT = (Shell(f'"${name}"') for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
NODE = (
    "On each node NODE_RANK, MASTER_ADDR and MASTER_PORT say where the ranks meet; strategist export --job writes what sets them."
)
_LACKING = "is not set; start this script by a job, see strategist export --job"


def torchrun(plan: Plan) -> tuple[str, ...]:
    """The arguments of torchrun, up to the program.

    Nodes meet statically: by c10d they would tell each other their host names, which need not lead from one to the other.
    """
    nodes, each = plan.cluster.nodes, f"--nproc-per-node={plan.cluster.gpus_per_node}"
    if nodes == 1:
        return ("--standalone", each)
    place = (f"--node-rank={NODE_RANK}", f"--master-addr={MASTER_ADDR}", f"--master-port={MASTER_PORT}")
    return (f"--nnodes={nodes}", each, *map(Shell, place))


def start_script(
    plan: Plan,
    command: Sequence[str],
    arguments: Sequence[tuple[Sequence[str], str]] = (),
    *,
    about: Sequence[str],
    environment: Mapping[str, str],
) -> str:
    """The script that starts the ranks of one node; whatever it is called with follows the arguments."""
    if plan.cluster.nodes == 1:
        return script(command, arguments, about=about, environment=environment)
    place = [
        f'export MASTER_PORT="${{MASTER_PORT:-{PORT}}}"',
        *(f'export {name}="${{{name}:?{_LACKING}}}"' for name in ("NODE_RANK", "MASTER_ADDR")),
    ]
    return script(command, arguments, about=(*about, "", NODE), environment=environment, first=place)
