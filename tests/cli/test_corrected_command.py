"""The next step for a misspelled word is the corrected command."""

import pytest

from strategist.cli.main import main


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        ("plan --model lama3-8b --gpus 8xH100", "plan --model llama3-8b --gpus 8xH100"),
        ("plan --model 8b --gpus 8xH10O", "plan --model 8b --gpus 8xh100"),
        ("plan --model 8b --gpus 8xH100 --fix tpp=2,pp=1", "plan --model 8b --gpus 8xH100 --fix tp=2,pp=1"),
        ("plan --model 8b --gpus 8xH100 --fix recompute=ful", "plan --model 8b --gpus 8xH100 --fix recompute=full"),
        ("plan --modle 8b --gpus 8xH100", "plan --model 8b --gpus 8xH100"),
        ("plan --gpus 8xH100 --mode 8b", "plan --gpus 8xH100 --model 8b"),
        ("plan --model 8b --seq-len 4096 --seq 8192", "plan --model 8b --seq-len 4096 --seq-len 8192"),
        ("plan --model 8b --gpus 8*A100", "plan --model 8b --gpus 8xA100"),
        ("plan --model 8b --gpus A100x8", "plan --model 8b --gpus 8xA100"),
        ("plan --model 8b --gpus 8x24", "plan --model 8b --gpus 8x24GB"),
        ("plan --model 8b --gpus 8xH100 --fix TP=8", "plan --model 8b --gpus 8xH100 --fix tp=8"),
        ("plan --model 8b --gpus 8xH100 --fix ac=full", "plan --model 8b --gpus 8xH100 --fix recompute=full"),
        ("plan --model 8b --gpus 8xH100 --allow fp8", "plan --model 8b --gpus 8xH100 --allow float8"),
        ("plan --model 8b --gpus 8xH100 --seq-len 8k", "plan --model 8b --gpus 8xH100 --seq-len 8192"),
        ("plan --model 8b --gpus 8xH100 --seq-len=8,192", "plan --model 8b --gpus 8xH100 --seq-len=8192"),
        ("plan --model 8b --gpus 8xH100 --global-batch 1M", "plan --model 8b --gpus 8xH100 --global-batch 1048576"),
        ("plan --model 8b --gpus 8xH100 --host-memory 256", "plan --model 8b --gpus 8xH100 --host-memory 256GiB"),
        ("cards lnit", "cards list"),
        ("plam --model 8b", "plan --model 8b"),
        ("cards show 'OPT-0022 '", ""),
    ],
)
def test_a_misspelled_word_is_corrected_in_the_whole_command(
    typed: str, corrected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split(" ")) == 2
    found = capsys.readouterr().err
    assert (f"(next: strategist {corrected})" in found) if corrected else "(next:" not in found


def test_a_word_in_quotation_marks_is_corrected_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "8b", "--gpus", "8 RTX 4090"]) == 2
    assert "(next: strategist plan --model 8b --gpus 8xRTX4090)" in capsys.readouterr().err


def test_words_in_corrected_commands_are_shell_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "8b", "--gpus", "8xH100", "--train", "lorra", "--data", "a b; rm x"]) == 2
    assert "--train lora --data 'a b; rm x')" in capsys.readouterr().err
