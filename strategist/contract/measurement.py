"""Measurement: outcome and figures of one trial."""

from dataclasses import field
from enum import StrEnum

from strategist.contract.codec import added
from strategist.contract.data_source import Data, sources_of
from strategist.contract.outcome import EVIDENCE_OUTCOMES as EVIDENCE_OUTCOMES, RAN as RAN, Outcome as Outcome
from strategist.contract.rank_observation import Moment, Traffic
from strategist.contract.workload import Workload
from strategist.errors import InputError, not_among
from strategist.frozen import frozen


class Kind(StrEnum):
    REAL = "real"
    SHADOW = "shadow"
    SIMULATED = "simulated"
    PUBLISHED = "published"


@frozen
class Evidence:
    """Evidence for the outcome: rank and phase where it happened, a message, and the last lines of that rank's log."""

    message: str = ""
    rank: int | None = None
    phase: str = ""
    log_tail: str = ""


MEASURED_PARTS = ("world_communication", "data", "other")
"""Parts of a measured step in addition to those of ``TimeParts``: reductions over all ranks, waiting for data, and the rest."""

MODELLED_PARTS = (
    "tp_communication", "cp_communication", "ep_communication", "dp_communication", "pp_communication", "bubble",
)  # fmt: skip
"""Parts of a shadow run's step that cannot be measured without peers; they come from the estimate."""

GLOO_NOTE = (
    "The comm ratio of gloo on CPUs tests the code; it does not predict that of GPUs, where the ratio of computation to link"
    " bandwidth differs, a reduce-scatter is not done by an all-reduce, and FSDP2 overlaps communication."
)


@frozen
class Measurement:
    """Result of one trial; figures are None or empty where they were not measured.

    step_seconds: median over the steps after warm-up of the slowest rank. step_seconds_spread: (90th - 10th percentile) / median.
    peak_memory_bytes: allocated, one per rank. peak_reserved_bytes: reserved by the caching allocator, one per rank; empty on CPU.
    peak_moments: moment of each rank's peak.
    communication_seconds: time per step in which a collective ran. exposed_communication_seconds: the part in which nothing else
        ran. The ratios are shares of the profiled step.
    exposed_comm_ratio_by_axis: share of the step in which only collectives of that mesh axis ran; ``world`` for collectives over
        all ranks.
    bubble_ratio: share of the step in which a pipeline rank waited for its neighbours, without transfers; 0 without a pipeline.
        bubble_ratio_by_stage: the same for each pipeline rank.
    rank_imbalance: compute time of the slowest rank of a stage over the stage's median, minus 1, of the worst stage.
        stage_imbalance: the same of the slowest stage over the median of the stages.
    losses: mean loss over the global batch, by step. grad_norms: norm of the whole gradient, by step.
    warmup_steps: steps left out of the timing, including measured steps that were still warming up.
    time: seconds of the profiled step by part, mean over ranks, with the names of ``TimeParts`` and MEASURED_PARTS; they add up to
        profiled_step_seconds.
    traffic: mean over ranks.
    notes: hints for interpreting the figures.
    restarts: how often the ranks were restarted. lost_ranks: ranks that were taken away or hung, where that ended the trial.
    least_step_seconds: lower limit of the step time, where the trial was ended because one step exceeded it.

    A shadow run has the figures of one rank: its step is the measured computation of that rank plus MODELLED_PARTS, its traffic has
    no seconds, and other figures that need peers are None.
    """

    plan_id: str
    kind: Kind
    outcome: Outcome
    evidence: Evidence = Evidence()
    step_seconds: float | None = None
    step_seconds_spread: float | None = None
    steps_measured: int = 0
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_memory_bytes: tuple[int, ...] = ()
    communication_seconds: float | None = None
    exposed_communication_seconds: float | None = None
    comm_ratio: float | None = None
    exposed_comm_ratio: float | None = None
    exposed_comm_ratio_by_axis: dict[str, float] | None = None
    bubble_ratio: float | None = None
    rank_imbalance: float | None = None
    stage_imbalance: float | None = None
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()
    wall_seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    warmup_steps: int | None = None
    profiled_step_seconds: float | None = None
    time: dict[str, float] | None = None
    bubble_ratio_by_stage: tuple[float, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    peak_reserved_bytes: tuple[int, ...] = ()
    peak_moments: tuple[Moment, ...] = ()
    notes: tuple[str, ...] = ()
    restarts: int = 0
    lost_ranks: tuple[int, ...] = ()
    least_step_seconds: float | None = added(None)


@frozen
class ProfiledStep:
    """Figures of a rank's profiled step, which is a step of its own, because profiling slows it; None where not measured.

    pipeline_waits: seconds of each send, receive and reduction over all ranks in which nothing else ran; empty without a pipeline.
    time: seconds by part; the bubble still counts as pp communication.
    peak_moment: pass and module of the peak of memory.
    """

    profiled_step_seconds: float | None = None
    communication_seconds: float | None = None
    exposed_communication_seconds: float | None = None
    exposed_seconds_by_axis: dict[str, float] | None = None
    pipeline_waits: tuple[float, ...] | None = None
    shortest_transfer_seconds: float | None = None
    compute_seconds: float | None = None
    time: dict[str, float] | None = None
    peak_moment: Moment | None = None


@frozen
class RankRecord(ProfiledStep):
    """Record that one rank of a trial writes before it ends; the parent process derives the trial's outcome from all ranks.

    phase: last section entered: spawn, init, build, warm-up, measure, profile, evaluate, save, STOPPED or done.
    step_seconds: steps after warm-up.
    plan_id: empty where the rank ended before it had read the plan.
    notes: messages for users, such as a failed save.
    """

    rank: int
    outcome: Outcome
    phase: str
    message: str = ""
    step_seconds: tuple[float, ...] = ()
    peak_memory_bytes: int | None = None
    traffic: tuple[Traffic, ...] = ()
    peak_reserved_bytes: int | None = None
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    plan_id: str = added("")
    notes: tuple[str, ...] = added(())


STOPPED = "stopped"
"""Phase of a rank whose training was requested to stop, and has saved a checkpoint."""

LEARNING_RATE_SCHEDULES = ("constant", "linear", "cosine", "wsd")
SAMPLE_TYPES = ("", "uint16", "uint32", "int32")
NO_DECAY_GROUPS = ("norms", "biases", "embeddings")
LEARNING_RATE = 1e-4
"""Default of runs and placeholder in exported files, since a plan has no learning rate. QLoRA's authors tune adapters of 33B and
65B with it (arXiv 2305.14314, appendix B), and Llama 2 70B was trained with 1.5e-4 (arXiv 2307.09288, table 1)."""

NON_FINITE = ("stop", "skip")
WSD_DECAY_SHARE = 0.1
"""Default share of a training's steps in which the schedule wsd decays the learning rate (arXiv 2404.06395, section 4)."""


@frozen
class TrialSettings:
    """Settings of a run of a plan: a trial of ``steps`` measured steps after ``warmup_steps``, or a training of ``total_steps``.

    total_steps: steps of the whole training over all its sessions; None for a trial.
    seed: of weights and data.
    learning_rate: reached after learning_rate_warmup_steps. From there it stays (constant), falls until total_steps linearly
        (linear) or as half a cosine (cosine), or falls linearly in the last learning_rate_decay_steps only (wsd; None: a tenth of
        total_steps), to learning_rate_min_ratio of itself.
    weight_decay: None for the optimizer's default (AdamW and Muon 0.01, SGD none). no_decay: groups of parameters without weight
        decay: norms, biases, embeddings (with the head). betas: of AdamW, None for the optimizer's default.
    clip_norm: gradient norm above which the gradient is scaled down; None: no clipping. non_finite: a step whose loss or gradient
        is not finite ends the run (stop), or updates nothing (skip).
    lora_alpha: LoRA's output is scaled by lora_alpha / rank (arXiv 2106.09685, section 4.1).
    hugging_face: a folder of transformers, whose model runs instead of the native decoder.
    weights: a Hugging Face folder with initial weights, empty for random initialization from the seed. export: such a folder to
        write.
    data: a path or several sources, empty for synthetic text. data_type: type of the tokens in a ``.bin`` file, empty to read it
        from the file beside it, or to choose it by vocabulary size. tokenizer: a tokenizer.json or its folder, for examples; empty
        for that of weights or hugging_face.
    document_end: token that ends a document of ``data``. mean_document_tokens: mean length of the documents of synthetic text, None
        for the workload's. With either, tokens attend only within their document; else a sequence is one document.
    packing: several examples share a sequence, as documents; else each example has a padded sequence of its own.
    evaluation_data: held-out data, as ``data``; its loss is measured every evaluation_every steps (None: at the end only), on
        evaluation_batches global batches (None: on all of it).
    save: folder of checkpoints, empty for none: one every save_every steps (None: the plan's checkpoint_interval) and one at the
        end. The newest ``keep`` are kept, and the ``keep_best`` with the lowest evaluation loss. resume: a checkpoint or a folder
        of checkpoints to start from, where ``save`` holds none.
    log: folder of the curves, empty for none. wandb: project at Weights & Biases that also receives them, empty for none.
    trace: folder of each rank's profile and memory timeline, empty for none.
    max_restarts: None for the plan's. elastic: when ranks are lost, continues with fewer ranks and another plan. Timeouts are in
        seconds; wall_timeout_seconds None means no limit.
    """

    steps: int = 10
    total_steps: int | None = None
    warmup_steps: int = 3
    seed: int = 0
    learning_rate: float = LEARNING_RATE
    learning_rate_schedule: str = "constant"
    learning_rate_warmup_steps: int = 0
    learning_rate_decay_steps: int | None = None
    learning_rate_min_ratio: float = 0.0
    weight_decay: float | None = None
    no_decay: tuple[str, ...] = ()
    betas: tuple[float, float] | None = None
    clip_norm: float | None = 1.0
    non_finite: str = "stop"
    lora_alpha: float = 16.0
    hugging_face: str = ""
    weights: str = ""
    export: str = ""
    data: Data = ""
    data_type: str = ""
    tokenizer: str = ""
    document_end: int | None = None
    mean_document_tokens: int | None = None
    packing: bool = True
    evaluation_data: Data = ""
    evaluation_every: int | None = None
    evaluation_batches: int | None = None
    save: str = ""
    save_every: int | None = None
    keep: int = 2
    keep_best: int = 0
    resume: str = ""
    log: str = ""
    wandb: str = ""
    trace: str = ""
    max_restarts: int | None = None
    elastic: bool = False
    init_timeout_seconds: float = 120.0
    step_timeout_seconds: float = 60.0
    save_timeout_seconds: float = 600.0
    wall_timeout_seconds: float | None = 600.0

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("--learning-rate-schedule", self.learning_rate_schedule, LEARNING_RATE_SCHEDULES),
            ("--data-type", self.data_type, SAMPLE_TYPES),
            ("--non-finite", self.non_finite, NON_FINITE),
            *(("--no-decay", group, NO_DECAY_GROUPS) for group in self.no_decay),
        ):
            if value not in choices:
                raise not_among(f"{name} {value}", str(value), choices)
        for name in ("keep", "save_every", "total_steps", "evaluation_every", "evaluation_batches", "learning_rate_decay_steps"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise InputError(f"{_OPTIONS.get(name, _option(name))} {count}", "must be at least 1", "give a positive number")
        self._check_optimization()
        self._check_schedule()
        self._check_data()
        self._check_training()

    def _check_optimization(self) -> None:
        if self.weight_decay is not None and not 0 <= self.weight_decay < 1e3:
            raise InputError(f"--weight-decay {self.weight_decay}", "is 0 or above", "write e.g. --weight-decay 0.1")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise InputError(f"--clip-norm {self.clip_norm}", "is above 0", "write --clip-norm none to clip nothing")
        if self.betas is not None and not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"--betas {self.betas[0]},{self.betas[1]}", "are from 0 to below 1", "write e.g. --betas 0.9,0.95")

    def _check_schedule(self) -> None:
        name = f"--learning-rate-schedule {self.learning_rate_schedule}"
        if self.learning_rate_decay_steps is not None and self.learning_rate_schedule != "wsd":
            option = f"--learning-rate-decay-steps {self.learning_rate_decay_steps}"
            law = f"is for the schedule wsd, not {self.learning_rate_schedule}"
            raise InputError(option, law, "add --learning-rate-schedule wsd")
        if not 0 <= self.learning_rate_min_ratio <= 1:
            ratio = f"--learning-rate-min-ratio {self.learning_rate_min_ratio}"
            raise InputError(ratio, "is a share of the learning rate, 0 to 1", "write e.g. --learning-rate-min-ratio 0.1")
        if self.total_steps is None:
            if self.learning_rate_schedule != "constant":
                raise InputError(name, "ends with a training, and this is a trial", "add --save DIR and --steps N")
            return
        rises, falls = self.learning_rate_warmup_steps, self.decay_steps
        if rises > self.total_steps:
            law = f"is longer than the training of {self.total_steps} steps"
            raise InputError(f"--learning-rate-warmup-steps {rises}", law, "give fewer, or more --steps")
        if rises + falls > self.total_steps:
            law = f"warms up in {rises} and decays in {falls} of only {self.total_steps} steps"
            raise InputError(name, law, "give fewer of either, or more --steps")

    def _check_data(self) -> None:
        if self.document_end is not None and not self.data:
            raise InputError(f"--document-end {self.document_end}", "is for data of your own", "add --data")
        if self.mean_document_tokens is not None and (self.data or self.mean_document_tokens < 1):
            law = "is at least 1, and for synthetic text only"
            raise InputError(f"--document-tokens {self.mean_document_tokens}", law, "leave it out, or --data")
        sources_of(self.data)
        sources_of(self.evaluation_data, "--eval-data")
        for name in ("evaluation_every", "evaluation_batches", "keep_best"):
            if getattr(self, name) and not self.evaluation_data:
                option = f"{_OPTIONS.get(name, _option(name))} {getattr(self, name)}"
                raise InputError(option, "needs held-out data to evaluate on", "add --eval-data PATH")

    def _check_training(self) -> None:
        if self.total_steps is not None:
            return
        options = {"--save": self.save, "--export-weights": self.export, "--eval-data": self.evaluation_data, "--wandb": self.wandb}
        for option, value in options.items():
            if value:
                argument = f"{option} {value}" if isinstance(value, str) else option
                raise InputError(argument, "is for a training", "say until which step: --steps N")

    @property
    def decay_steps(self) -> int:
        """Steps of a training in which the learning rate falls."""
        if self.learning_rate_schedule == "constant" or self.total_steps is None:
            return 0
        if self.learning_rate_schedule != "wsd":
            return self.total_steps - self.learning_rate_warmup_steps
        return self.learning_rate_decay_steps or max(1, round(WSD_DECAY_SHARE * self.total_steps))

    def document_tokens(self, workload: Workload) -> int:
        """Mean length of the documents in a sequence as it is run; 0 where a sequence is one document.

        For the user's own data it is the workload's; 1 stands for an unknown length.
        """
        sources = (*sources_of(self.data), *sources_of(self.evaluation_data))
        if self.document_end is not None or (self.packing and any(source.holds_examples for source in sources)):
            return workload.document_tokens or 1
        return 0 if self.data else self.mean_document_tokens or workload.document_tokens

    def course(self, first: int) -> "Course":
        """Steps of a session that starts with step ``first``."""
        if self.total_steps is None:
            begin, end = first + self.warmup_steps, first + self.warmup_steps + self.steps
            return Course(warmup=range(first, begin), measured=range(begin, end), profiled=end, counted=end + 1)
        last = self.total_steps - 1
        begin = min(first + self.warmup_steps, max(first, last - 1))
        return Course(warmup=range(first, begin), measured=range(begin, last), profiled=last)


_OPTIONS = {"evaluation_every": "--eval-every", "evaluation_batches": "--eval-batches", "total_steps": "--steps"}
"""Command-line options whose names differ from their setting."""


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@frozen
class Course:
    """Schedule of a session: numbers of its warm-up, measured, profiled and counted steps.

    In a training the profiled step also trains; a trial has one more step, ``counted``, whose collectives are counted.
    """

    warmup: range
    measured: range
    profiled: int
    counted: int | None = None
