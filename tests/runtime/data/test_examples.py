"""Examples for fine-tuning: trained tokens, packing into sequences, and losses that packing does not change."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from strategist_runtime.data.batch import IGNORED
from strategist_runtime.data.examples import open_examples, packed_rows
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.tokenizer import Tokenizer
from strategist_runtime.mesh import Meshes
from strategist_runtime.training.trainer import make_trainer
from tokenizers import Tokenizer as Tokenizers, models, pre_tokenizers

from strategist.contract.data_source import DataSource
from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings
from strategist.errors import StrategistError

from ..plans import plan

pytestmark = pytest.mark.torch

WORDS = ["<end>", "<user>", "<bot>", "\n", *"abcdefghij"]
TEMPLATE = (
    "{% for m in messages %}<{{ 'bot' if m.role == 'assistant' else 'user' }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)
END = 0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The folder of a tokenizer with one token per letter."""
    folder = tmp_path_factory.mktemp("tokenizer")
    made = Tokenizers(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="\n"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.add_special_tokens(WORDS[:3])
    made.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>", "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def ids(text):
    return [WORDS.index(letter) for letter in text]


def write_lines(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def open_text(place, tokenizer, seq_len=12, vocab_size=64, packed=True):
    return open_examples(place, Tokenizer(str(tokenizer)), seq_len=seq_len, vocab_size=vocab_size, packed=packed)


def trained_tokens(sample):
    """Token ids that are targets."""
    return sample.ids[1:][sample.trained[1:]].tolist()


def test_only_response_tokens_are_trained(tokenizer, tmp_path):
    text = open_text(write_lines(tmp_path / "a.jsonl", {"prompt": "abc", "response": "de"}), tokenizer)
    sample = text.sample(0)
    assert sample.ids.tolist() == [*ids("abcde"), END, *[0] * 7]
    assert trained_tokens(sample) == [*ids("de"), END]
    assert text.trained(0) == 3


def test_only_assistant_messages_are_trained(tokenizer, tmp_path):
    turns = [("user", "ab"), ("assistant", "c"), ("user", "d"), ("assistant", "ef")]
    line = {"messages": [{"role": role, "content": content} for role, content in turns]}
    sample = open_text(write_lines(tmp_path / "a.jsonl", line), tokenizer, seq_len=20).sample(0)
    assert trained_tokens(sample) == [*ids("c"), END, *ids("ef"), END]
    user, bot = WORDS.index("<user>"), WORDS.index("<bot>")
    assert sample.ids[:13].tolist() == [user, *ids("ab"), END, bot, *ids("c"), END, user, *ids("d"), END, bot, *ids("ef")]


def test_plain_text_is_trained_completely_and_split_if_long(tokenizer, tmp_path):
    text = open_text(write_lines(tmp_path / "a.jsonl", {"text": "abcdefghij"}), tokenizer, seq_len=4)
    found = [target for number in range(text.samples) for target in trained_tokens(text.sample(number))]
    assert sorted(found) == sorted([*ids("bcdefghij"), END])


def test_short_examples_are_packed_as_documents_of_a_sequence(tokenizer, tmp_path):
    lines = [{"prompt": "a", "response": "b"}, {"prompt": "c", "response": "d"}, {"prompt": "abc", "response": "defgh"}]
    text = open_text(write_lines(tmp_path / "a.jsonl", *lines), tokenizer)
    assert text.samples == 2
    batch = Reader(dataset=text, rank=0, ranks=1).read(0, 2)
    assert batch.trained == 2 + 2 + 6
    assert (batch.targets != IGNORED).sum() == 10
    assert batch.documents[0].tolist() == [0] * 9 + [1] * 3
    assert batch.documents[1].tolist() == [0] * 3 + [1] * 9  # the rest is padding


@given(st.lists(st.integers(1, 20), max_size=30))
def test_packing_assigns_each_example_to_one_row_within_the_length(lengths):
    rows = packed_rows(lengths, 20)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 20 for row in rows)
    assert sum(sum(lengths[index] for index in row) <= 10 for row in rows) <= 1  # two half-empty rows would share one


def test_packed_and_padded_losses_equal_the_mean_over_single_examples(tokenizer, tmp_path):
    """The mean over all response tokens, computed in a loop over single examples."""
    generator = torch.Generator().manual_seed(0)
    letters = ["".join("abcdefghij"[i] for i in torch.randint(10, (n,), generator=generator)) for n in (2, 5, 3, 1, 4, 6, 2, 3)]
    lines = [{"prompt": first, "response": second} for first, second in zip(letters, letters[::-1], strict=True)]
    place = write_lines(tmp_path / "a.jsonl", *lines)
    losses = {}
    for packing in (True, False):
        settings = TrialSettings(data=(DataSource(path=place),), tokenizer=str(tokenizer), packing=packing, clip_norm=None)
        trainer = make_trainer(plan(knobs=Knobs(micro_batch=2)), settings, Meshes(), torch.device("cpu"))
        text = open_examples(place, Tokenizer(str(tokenizer)), seq_len=16, vocab_size=64, packed=packing)
        batch = Reader(dataset=text, rank=0, ranks=1).read(0, 8)
        losses[packing] = float(trainer.evaluate(batch, batch.trained))
    (model,) = trainer.parts
    total, count = 0.0, 0
    for line in lines:
        whole = torch.tensor([*ids(line["prompt"] + line["response"]), END])
        logits = model(torch.cat((whole[:-1], whole.new_zeros(17 - len(whole))))[None])[0, : len(whole) - 1]
        first = len(line["prompt"]) - 1
        total += F.cross_entropy(logits[first:], whole[first + 1 :], reduction="sum").item()
        count += len(whole) - 1 - first
    assert losses[True] == pytest.approx(total / count, rel=1e-6)
    assert losses[False] == pytest.approx(total / count, rel=1e-6)


def test_gradients_of_masked_examples_do_not_depend_on_micro_batches(tokenizer, tmp_path):
    """Micro-batches have unequal numbers of response tokens."""
    lines = [{"prompt": "abcd"[: 1 + n % 4], "response": "efghij"[: 1 + n % 5]} for n in range(8)]
    place = write_lines(tmp_path / "a.jsonl", *lines)
    settings = TrialSettings(data=place, tokenizer=str(tokenizer), packing=False, clip_norm=None)
    norms = []
    for micro_batch in (1, 8):
        chosen = plan(knobs=Knobs(micro_batch=micro_batch))
        trainer = make_trainer(chosen, settings, Meshes(), torch.device("cpu"))
        norms.append(trainer.step(trainer.batch(0)).grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"prompt": "a"}\n', "a.jsonl:1: holds no text, prompt and response, or messages as text"),
        ('{"text": "a"}\nno', "a.jsonl:2: is not JSON: each line is an object"),
        ('{"text": "a"}\n{"prompt": "a", "response": "b"}\n', "a.jsonl:2: holds prompt after lines of another kind"),
        ("\n", "a.jsonl: holds no example"),
        ('{"prompt": "abcdefghijabcdefghij", "response": "a"}\n', "has no example with a token to learn within 12 tokens"),
    ],
)
def test_invalid_example_files_raise_a_one_line_error(tokenizer, tmp_path, content, words):
    (tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(StrategistError) as raised:
        open_text(str(tmp_path / "a.jsonl"), tokenizer)
    assert words in str(raised.value)


def test_a_token_outside_the_vocabulary_is_an_error(tokenizer, tmp_path):
    place = write_lines(tmp_path / "a.jsonl", {"prompt": "a", "response": "j"})
    with pytest.raises(StrategistError, match="holds the token 13, the model knows 12"):
        open_text(place, tokenizer, vocab_size=12)


def test_an_invalid_tokenizer_raises_a_one_line_error(tmp_path):
    with pytest.raises(StrategistError, match=r"holds no tokenizer\.json; give such a file"):
        Tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StrategistError, match="is not a tokenizer"):
        Tokenizer(str(tmp_path))


def test_messages_need_a_chat_template(tokenizer, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    place = write_lines(tmp_path / "a.jsonl", {"messages": [{"role": "assistant", "content": "a"}]})
    with pytest.raises(StrategistError, match="has no chat template to write messages with; give lines of prompt"):
        open_text(place, tmp_path)


def test_examples_are_documents_unless_packing_is_off():
    settings = TrialSettings(data="a.jsonl")
    assert settings.document_tokens(plan().workload) == 1
    assert replace(settings, packing=False).document_tokens(plan().workload) == 0
