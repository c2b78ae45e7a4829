"""Context parallelism: distribution of tokens over ranks, exchanged bytes, and refusals."""

import json
from dataclasses import replace

import pytest
import torch
from strategist_runtime.capability import refusals
from strategist_runtime.compat import context as compat_context
from strategist_runtime.parallel.context import divisible_lengths

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.contract.options import Options
from strategist.contract.workload import Workload
from strategist.cost.traffic import step_traffic
from strategist.expr.columns import row_of, table

from ..context_rank import HEAD_SIZE, HEADS, KEY_HEADS, ROWS, TOKENS
from ..launch import forked
from ..plans import TINY, cluster, plan

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
SHARED = {"layout": Layout(cp=2)}
FLEX = Options(cp_attention="flex")
PACKED = TrialSettings(mean_document_tokens=6)


def pairs_by_rank(documents, order, ranks):
    """Pairs of tokens that each rank computes."""
    position = torch.arange(len(documents))
    seen = (position[:, None] >= position) & (documents[:, None] == documents)
    return seen[order].sum(1).view(ranks, -1).sum(1)


def test_head_tail_order_balances_causal_attention():
    whole = torch.zeros(64, dtype=torch.long)
    even = pairs_by_rank(whole, compat_context.head_tail_order(64, 4, CPU), 4)
    assert (even == even[0]).all()
    assert pairs_by_rank(whole, torch.arange(64), 4).max() > 1.7 * even[0]


@pytest.mark.parametrize("lengths", [[64], [40, 8, 16], [8, 8, 48]])
def test_per_document_order_balances_each_document(lengths):
    documents = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    order = compat_context.head_tail_order_per_document(lengths, 4, CPU)
    assert order.sort().values.tolist() == list(range(64))
    even = pairs_by_rank(documents, order, 4)
    assert (even == even[0]).all()


def test_documents_of_any_length_are_nearly_balanced():
    lengths = torch.tensor([100, 1, 2, 61, 300, 48])
    documents = torch.arange(6).repeat_interleave(lengths)
    shared = divisible_lengths(documents, 8)
    assert sum(shared) == 512
    assert all(length % 8 == 0 for length in shared)
    order = compat_context.head_tail_order_per_document(shared, 4, CPU)
    loads = pairs_by_rank(documents, order, 4)
    unbalanced = pairs_by_rank(documents, compat_context.head_tail_order(512, 4, CPU), 4)
    assert loads.max() / loads.min() < 1.1 < unbalanced.max() / unbalanced.min()


@pytest.mark.parametrize(("model", "settings"), [(TINY, PACKED), (replace(TINY, sliding_window=4), TrialSettings())])
def test_ring_attention_refuses_masks_that_gathered_attention_supports(model, settings):
    (text,) = refusals(plan(**SHARED, model=model), settings)
    assert text.endswith("the ring of cp 2 is causal only; choose cp_attention flex, which gathers")
    assert refusals(plan(**SHARED, model=model, options=FLEX), settings) == ()
    assert refusals(plan(model=model), settings) == ()


def test_a_window_as_long_as_the_sequence_is_ignored():
    assert refusals(plan(**SHARED, model=replace(TINY, sliding_window=16))) == ()


@pytest.fixture(scope="module", params=[2, 4])
def attention_messages(request, tmp_path_factory):
    """The number of ranks, and the messages of a layer's attention on one of them, by kind and collective."""
    target = tmp_path_factory.mktemp("context") / "found.json"
    done = forked(request.param, ["runtime.context_rank", str(target)])
    assert done.returncode == 0, done.stderr
    return request.param, json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.timeout(60)
def test_attention_messages_equal_a_hand_count(attention_messages):
    """Ring attention gathers keys and values in the forward and again in the backward pass, or passes them on; gradients travel
    around the ring, each slice ``ranks`` times, in fp32 for any compute dtype. Gathered attention keeps the gathered tensors and
    reduce-scatters gradients.
    """
    ranks, found = attention_messages
    for name, element in (("torch.float32", 4), ("torch.bfloat16", 2)):
        whole = 2 * ROWS * KEY_HEADS * TOKENS * HEAD_SIZE  # elements of keys and values of all ranks
        gradients = [whole // ranks * 4] * ranks
        assert found[f"sdpa allgather {name}"] == {"all_gather": [whole * element] * 2, "all_to_all": gradients}
        passed = [whole // ranks * element] * 2 * (ranks - 1)
        assert sorted(found[f"sdpa alltoall {name}"]["all_to_all"]) == sorted(passed + gradients)
        apart = [whole // 2 * element] * 2
        assert found[f"flex allgather {name}"] == {"all_gather": apart, "reduce_scatter": apart}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["sdpa allgather", "sdpa alltoall", "flex allgather"])
@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "torch.float32"), ("bf16", "torch.bfloat16")])
def test_priced_traffic_equals_the_exchanged_bytes(attention_messages, kind, precision, dtype):
    """A gather or scatter sends all of a message except the rank's own share; point-to-point messages are
    sent completely.
    """
    ranks, found = attention_messages
    shares = {"all_gather": (ranks - 1) / ranks, "reduce_scatter": (ranks - 1) / ranks, "all_to_all": 1.0}
    counted = sum(shares[name] * sum(messages) for name, messages in found[f"{kind} {dtype}"].items())
    model = replace(TINY, layers=1, heads=HEADS, kv_heads=KEY_HEADS, head_size=HEAD_SIZE)
    packed = 6 if kind.startswith("flex") else 0
    workload = Workload(seq_len=TOKENS, global_batch=ROWS, precision=precision, document_tokens=packed)
    columns = table([row_of(Candidate(layout=Layout(cp=ranks), knobs=Knobs(micro_batch=ROWS)), 1)])
    traffic = step_traffic(model, cluster(ranks, kind="cuda"), workload, columns)
    assert sum(part.message_bytes for part in traffic if part.axis == "cp") == pytest.approx(counted, rel=1e-9)
