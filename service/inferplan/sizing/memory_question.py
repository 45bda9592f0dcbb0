"""What is asked of the memory model, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import ModelArchitecture
from inferplan.catalog.engine import Engine, EngineRelease
from inferplan.errors import Violation
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.kv_cache import KV_PRECISIONS
from inferplan.sizing.parallelism import Parallelism, check_parallelism
from inferplan.sizing.weights import served_architecture


@dataclass(frozen=True, slots=True)
class MeasuredMemory:
    """Figures of an engine's start-up log, bytes a GPU, used instead of the model's own. None: not measured."""

    visible_bytes: float | None = None
    weights_bytes: float | None = None
    activation_bytes: float | None = None
    non_torch_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """One configuration of one replica.

    `settings.version` picks the engine release. `workload_context_tokens` is the mean context of the workload's
    sequences.
    """

    architecture: ModelArchitecture
    accelerator: Accelerator
    engine: Engine
    settings: EngineSettings = field(default_factory=EngineSettings)
    parallelism: Parallelism = field(default_factory=Parallelism)
    workload_context_tokens: int | None = None
    measured: MeasuredMemory = field(default_factory=MeasuredMemory)

    @property
    def release(self) -> EngineRelease:
        """The constants that hold. Raises InvalidInputError for a version that is not known."""
        return self.engine.release_for(self.settings.version)

    @property
    def served(self) -> ModelArchitecture:
        """The architecture with its weights in the precision that is served."""
        return served_architecture(self.architecture, self.settings.weight_precision)

    @property
    def visible_bytes(self) -> float:
        """Memory that the runtime sees on one GPU."""
        measured = self.measured.visible_bytes
        return self.accelerator.visible_memory_bytes if measured is None else measured

    @property
    def gpu_memory_utilization(self) -> float:
        """The fraction that the engine may claim, its default filled in."""
        asked = self.settings.gpu_memory_utilization
        return self.release.defaults.gpu_memory_utilization if asked is None else asked

    def batched_tokens(self, context_tokens: int) -> int:
        """The token budget of one step: as asked for, or the default, which covers the context of whole prompts."""
        asked = self.settings.max_num_batched_tokens
        if asked is not None:
            return asked
        defaults = self.release.defaults
        budget = defaults.batched_tokens_on(self.accelerator)
        whole_up_to = defaults.whole_prompts_up_to_tokens
        if whole_up_to is not None and context_tokens <= whole_up_to:
            budget = max(context_tokens, WHOLE_PROMPT_LEAST_BUDGET_TOKENS)
        return max(budget, self.settings.max_num_seqs or 0)

    def sequences(self, context_tokens: int) -> int:
        """Sequences that run at once: as asked for, or the default, which the token budget bounds."""
        asked = self.settings.max_num_seqs
        if asked is not None:
            return asked
        return min(self.release.defaults.sequences_on(self.accelerator), self.batched_tokens(context_tokens))


WHOLE_PROMPT_LEAST_BUDGET_TOKENS = 2048
"""vLLM V0 without chunked prefill: max_num_batched_tokens = max(max_model_len, 2048)."""


def memory_question_violations(question: MemoryQuestion) -> list[Violation]:
    """All that is wrong with a question, parallelism included. Raises InvalidInputError for an unknown version."""
    release = question.release
    violations = list(_settings_violations(question))
    violations += [
        violation.below("parallelism")
        for violation in check_parallelism(
            question.served,
            question.parallelism,
            question.accelerator.gpus_per_node,
            vocabulary_multiple_elements=release.memory.vocabulary_multiple_elements,
        )
    ]
    return violations


def _settings_violations(question: MemoryQuestion) -> Iterator[Violation]:
    settings = question.settings
    utilization = question.gpu_memory_utilization
    if not (math.isfinite(utilization) and 0 < utilization <= 1):
        yield Violation("settings.gpu_memory_utilization", f"is {utilization}; legal is above 0 and at most 1")
    counts = {
        "settings.max_num_seqs": settings.max_num_seqs,
        "settings.max_num_batched_tokens": settings.max_num_batched_tokens,
        "settings.max_model_len_tokens": settings.max_model_len_tokens,
        "workload_context_tokens": question.workload_context_tokens,
    }
    for path, value in counts.items():
        if value is not None and value < 1:
            yield Violation(path, f"is {value}; legal is 1 or more")
    sequences, tokens = settings.max_num_seqs, settings.max_num_batched_tokens
    if sequences is not None and tokens is not None and tokens < sequences:
        yield Violation(
            "settings.max_num_batched_tokens",
            f"is {tokens}; legal is at least max_num_seqs, {sequences}, since each running sequence takes a token of "
            "a step",
        )
    if settings.kv_precision is not None and settings.kv_precision not in KV_PRECISIONS:
        legal = ", ".join(KV_PRECISIONS)
        yield Violation("settings.kv_precision", f"is {settings.kv_precision}; legal are {legal}")
    yield from _measured_violations(question.measured)


def _measured_violations(measured: MeasuredMemory) -> Iterator[Violation]:
    for name in MeasuredMemory.__slots__:
        value = getattr(measured, name)
        if value is None:
            continue
        must_be_positive = name in ("visible_bytes", "weights_bytes")
        if not math.isfinite(value) or value < 0 or (must_be_positive and value == 0):
            legal = "a finite number above 0" if must_be_positive else "a finite number, 0 or more"
            yield Violation(f"measured.{name}", f"is {value}; legal is {legal}")
