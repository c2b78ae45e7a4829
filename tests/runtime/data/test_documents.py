"""Packed documents: a token's logits depend only on earlier tokens of its own document."""

from dataclasses import replace

import pytest
import torch
from strategist_runtime.compat.context import masked_attention
from strategist_runtime.data.documents import SyntheticDocuments
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.sample import Sample
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.attention_metadata import MetadataBuilder, positions_in_documents
from strategist_runtime.model.rotary import Rotary
from strategist_runtime.training.trainer import make_reader

from strategist.contract.measurement import TrialSettings
from strategist.errors import InputError

from ..cases import MODELS
from ..model.test_decoder import materialised
from ..plans import WORKLOAD, plan

pytestmark = pytest.mark.torch
PACKED = SyntheticDocuments(seed=3, seq_len=64, vocab_size=50, mean_tokens=9)
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1]])


def test_a_document_ends_with_its_end_token():
    assert Sample.of(torch.tensor([4, 9, 9, 5, 6, 9]), end=9).documents.tolist() == [0, 0, 1, 2, 2, 2]
    assert Sample.of(torch.tensor([1, 2, 3]), end=9).documents.tolist() == [0] * 3
    assert Sample.of(torch.tensor([1, 2, 3]), end=None).documents is None


def test_positions_restart_with_each_document():
    assert positions_in_documents(DOCUMENTS).tolist() == [[0, 1, 2, 0, 1, 0, 1, 2], [0, 0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("model", ["tiny", "grouped", "gpt", "latent", "sinks"])
def test_packed_documents_have_the_logits_of_separate_documents(model):
    shape = MODELS[model]
    decoder = materialised(shape, seq_len=8)
    tokens = torch.randint(shape.vocab_size, (2, 8), generator=torch.Generator().manual_seed(0))
    logits = decoder(tokens, documents=DOCUMENTS)
    for row, (first, last) in [(0, (0, 3)), (0, (3, 5)), (0, (5, 8)), (1, (0, 1)), (1, (1, 8))]:
        padded = torch.cat((tokens[row, first:last], tokens[row].new_zeros(8 - (last - first))))[None]
        alone = decoder(padded)[0, : last - first]  # padding after the document is masked
        torch.testing.assert_close(logits[row, first:last], alone, rtol=1e-4, atol=1e-6)


def test_synthetic_documents_have_the_requested_mean_length_and_are_deterministic():
    rows = torch.stack([PACKED.sample(number).ids for number in range(300)])
    assert rows.shape == (300, 65)
    assert torch.equal(rows[7], PACKED.sample(7).ids)
    assert not torch.equal(rows[7], rows[8])
    ends = (rows == PACKED.end).sum().item()
    assert 8 < rows.numel() / ends < 10
    assert rows.max() == PACKED.end


def test_data_parallel_ranks_together_read_the_documents_of_one_process():
    readers = [Reader(dataset=PACKED, rank=rank, ranks=2) for rank in range(2)]
    whole = Reader(dataset=PACKED, rank=0, ranks=1).read(8, 4)
    parts = [reader.read(8, 4) for reader in readers]
    assert torch.equal(torch.cat([part.documents for part in parts]), whole.documents)
    assert whole.documents[:, 0].tolist() == [0] * 4
    assert (whole.documents.max(dim=1).values > 0).all()


@pytest.mark.parametrize("ranks", [2, 4])
def test_context_parallel_metadata_equal_those_of_a_single_process(ranks):
    rotary, follow = Rotary(8, 4, 10000.0, torch.device("cpu")), torch.arange(8)
    whole = MetadataBuilder(rotary, follow).build(DOCUMENTS)
    order = torch.stack([torch.randperm(8, generator=torch.Generator().manual_seed(row)) for row in range(2)])
    for rank in range(ranks):
        mine = order.chunk(ranks, dim=1)[rank]
        part = MetadataBuilder(rotary, follow, rank=rank, ranks=ranks, always_mask=True).build(DOCUMENTS, order)
        assert torch.equal(part.positions, whole.positions.gather(1, mine))
        for row in range(2):
            assert torch.equal(part.mask[row, 0], whole.mask[row, 0][mine[row]][:, order[row]])
            assert torch.equal(part.rotary.cos[row], rotary.cos[mine[row]])


@pytest.mark.parametrize(("planned", "given", "mean"), [(0, None, 0), (9, None, 9), (9, 4, 4), (0, 4, 4)])
def test_document_length_comes_from_the_settings_or_the_plan(planned, given, mean):
    settings = TrialSettings(mean_document_tokens=given)
    reader = make_reader(plan(workload=replace(WORKLOAD, document_tokens=planned)), settings, Meshes())
    assert getattr(reader.dataset, "mean_tokens", 0) == mean
    assert (reader.read(0, 1).documents is not None) == bool(mean)


@pytest.mark.parametrize("wrong", [{"document_end": 3}, {"mean_document_tokens": 0}, {"mean_document_tokens": 8, "data": "x.bin"}])
def test_inconsistent_document_settings_are_refused(wrong):
    with pytest.raises(InputError):
        TrialSettings(**wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [2, 4])
def test_flex_attention_with_documents_on_a_gpu_equals_masked_attention_on_a_cpu(heads):
    """FlexAttention with a block mask, forward and backward, against fused attention with a dense mask."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([100, 28, 300, 84])
    documents = torch.arange(4).repeat_interleave(lengths).expand(2, -1)
    parts = [torch.randn(2, count, 512, 32, generator=generator) for count in (4, heads, heads)]
    found = []
    for on in (torch.device("cpu"), torch.device("cuda")):
        metadata = MetadataBuilder(None, torch.arange(512, device=on)).build(documents.to(on))
        inputs = [part.detach().to(on).requires_grad_() for part in parts]
        mixed = masked_attention(*inputs, metadata.mask)
        mixed.square().sum().backward()
        found.append([mixed.detach().cpu(), *(part.grad.cpu() for part in inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)  # TF32 has 10 bits of mantissa
