"""One replica, put together from what a request names and what the engine does by default."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from inferplan.catalog import Accelerator, GroupedAttention, Model, ModelArchitecture, Precision
from inferplan.errors import Violation
from inferplan.planning.resolve import ResolvedEngine
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.kv_cache import kv_bytes_for_sequence, kv_precision_or_default, nominal_kv_bytes_per_token
from inferplan.sizing.memory import (
    MeasuredMemory,
    MemoryEstimate,
    MemoryQuestion,
    estimate_memory,
    memory_question_violations,
)
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.weights import served_architecture

_NOTHING_MEASURED = MeasuredMemory()


@dataclass(frozen=True, slots=True)
class ReplicaSetup:
    """What one replica is made of. `settings` may leave anything open.

    `longest_context_tokens` is the longest prompt plus output of the workload, which the engine must accept;
    `mean_context_tokens` the mean context while decoding. None without a workload.
    """

    model: Model
    accelerator: Accelerator
    engine: ResolvedEngine
    settings: EngineSettings
    parallelism: Parallelism
    longest_context_tokens: int | None = None
    mean_context_tokens: float | None = None
    measured: MeasuredMemory = _NOTHING_MEASURED

    @property
    def label(self) -> str:
        """`h100-sxm-80gb, tensor parallel 2`."""
        parallelism = self.parallelism
        stages = f", pipeline parallel {parallelism.pipeline_parallel}" if parallelism.pipeline_parallel > 1 else ""
        experts = f", expert parallel {parallelism.expert_parallel}" if parallelism.expert_parallel > 1 else ""
        return f"{self.accelerator.id}, tensor parallel {parallelism.tensor_parallel}{stages}{experts}"

    @property
    def served(self) -> ModelArchitecture:
        """The architecture with its weights in the format that they are served in."""
        return served_architecture(self.model.architecture, self.settings.weight_precision)

    @property
    def kv_precision(self) -> Precision:
        """The format of the KV cache."""
        return kv_precision_or_default(self.model.architecture, self.settings.kv_precision)

    @property
    def attention_width(self) -> int:
        """Query heads x elements of one head, which attention scores are taken over."""
        attention = self.model.architecture.attention
        if isinstance(attention, GroupedAttention):
            return attention.query_heads * attention.head_dim
        return attention.query_heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)

    def kv_bytes_per_token(self) -> int:
        """KV cache of one token on one GPU while every layer still grows."""
        return nominal_kv_bytes_per_token(self.model.architecture, self.kv_precision, self.parallelism)

    def kv_bytes_for_sequence(self, tokens: float) -> int:
        """KV cache that a step reads of one sequence of `tokens` tokens, on one GPU."""
        return kv_bytes_for_sequence(self.model.architecture, self.kv_precision, self.parallelism, round(tokens))

    def memory_question(self) -> MemoryQuestion:
        """This replica as a question to the memory model."""
        mean = self.mean_context_tokens
        return MemoryQuestion(
            architecture=self.model.architecture,
            accelerator=self.accelerator,
            engine=self.engine.engine,
            settings=self.settings,
            parallelism=self.parallelism,
            workload_context_tokens=None if mean is None else max(1, round(mean)),
            measured=self.measured,
        )


def setup_violations(setup: ReplicaSetup, path: str) -> list[Violation]:
    """What does not go together: parallelism against the model and the node, settings, contexts.

    Paths are those of a request that holds `hardware` and `engine` below `path`.
    """
    violations = [_in_request(violation, path) for violation in memory_question_violations(setup.memory_question())]
    longest = setup.longest_context_tokens
    if longest is None:
        return violations
    own_maximum = setup.model.architecture.maximum_context_tokens
    asked = setup.settings.max_model_len_tokens
    if longest > (asked or own_maximum):
        limit = f"max_model_len_tokens is {asked}" if asked else f"the model takes at most {own_maximum}"
        violations.append(
            Violation(
                f"{path}.workload.traffic_classes",
                f"a prompt with its output has up to {longest} tokens, but {limit}; shorten the lengths"
                + (" or raise engine.max_model_len_tokens" if asked else ""),
                "CONTEXT_TOO_LONG",
            )
        )
    return violations


def replica_memory(setup: ReplicaSetup) -> MemoryEstimate:
    """The memory of one GPU. Where no context is asked for, the chosen one holds the workload's longest sequence."""
    estimate = estimate_memory(setup.memory_question())
    longest = setup.longest_context_tokens
    if longest is None or estimate.max_model_len_tokens >= longest:
        return estimate
    settings = dataclasses.replace(setup.settings, max_model_len_tokens=longest)
    return estimate_memory(dataclasses.replace(setup, settings=settings).memory_question())


def _in_request(violation: Violation, path: str) -> Violation:
    """The memory model's own paths as those of a plan's input."""
    for prefix, place in (("parallelism", "hardware.parallelism"), ("settings", "engine")):
        if violation.field == prefix or violation.field.startswith(f"{prefix}."):
            return dataclasses.replace(violation, field=f"{path}.{place}{violation.field.removeprefix(prefix)}")
    return violation.below(path)
