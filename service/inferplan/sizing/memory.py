"""Where the memory of one GPU goes, how much context that leaves, and whether a configuration fits at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from inferplan.errors import BrokenRule, InvalidInputError
from inferplan.sizing.activations import activation_bytes, cuda_graph_bytes, non_torch_bytes
from inferplan.sizing.configuration import Configuration
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.kv_cache import (
    WindowAwareness,
    kv_bytes_for_sequence,
    kv_precision_or_default,
    nominal_kv_bytes_per_token,
    reserved_bytes_for_sequence,
    state_bytes_per_sequence,
)
from inferplan.sizing.memory_question import MeasuredMemory, MemoryQuestion, memory_question_violations
from inferplan.sizing.memory_warnings import memory_warnings
from inferplan.sizing.weights import weight_bytes_per_gpu

__all__ = ["MeasuredMemory", "MemoryEstimate", "MemoryQuestion", "estimate_memory", "memory_question_violations"]

LONGEST_CHOSEN_CONTEXT_TOKENS = 32_768
"""Where no context is asked for, the planner's choice ends here: a model's own maximum can be millions of tokens."""

_GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of one GPU by component, and the KV cache that it leaves to the replica.

    `budget_bytes` is what the engine may claim. `kv_cache_bytes` is what is left of it for the KV cache, negative if
    the rest alone is too much. `kv_bytes_per_token` is of one token while every layer still grows; `kv_cache_tokens`
    is in such tokens, as engines log it. `largest_context_tokens` is the longest single context that would fit, at
    most the model's own maximum or what was asked for. `concurrency_…` are sequences at once. `missing_bytes` is 0 if
    it fits.
    """

    fits: bool
    visible_bytes: float
    budget_bytes: float
    weights_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    cuda_graph_bytes: float
    cuda_graphs_inside_budget: bool
    kv_cache_bytes: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    kv_block_tokens: int
    kv_blocks: int
    kv_cache_tokens: int
    max_model_len_tokens: int
    largest_context_tokens: int
    concurrency_at_max_model_len: float
    concurrency_at_workload: float | None
    missing_bytes: float
    configuration: Configuration
    warnings: tuple[PlanWarning, ...] = ()
    broken_rules: tuple[BrokenRule, ...] = ()


def estimate_memory(question: MemoryQuestion) -> MemoryEstimate:
    """Estimate one configuration. That it does not fit is an answer; what is contradictory is an InvalidInputError."""
    violations = memory_question_violations(question)
    if violations:
        raise InvalidInputError(violations)
    question = _with_weights(question)
    largest = _largest_context_tokens(question)
    asked = question.settings.max_model_len_tokens
    context = asked if asked is not None else _chosen_context_tokens(question, largest)
    parts = _components(question, context)
    estimate = _estimate(question, parts, context, largest)
    return replace(estimate, warnings=memory_warnings(question, estimate))


def _with_weights(question: MemoryQuestion) -> MemoryQuestion:
    """The question with its weights counted, once for all the contexts that are tried."""
    if question.measured.weights_bytes is not None:
        return question
    weights = weight_bytes_per_gpu(question.served, question.parallelism, question.release.memory)
    return replace(question, measured=replace(question.measured, weights_bytes=weights))


@dataclass(frozen=True, slots=True)
class _Components:
    """Bytes of one GPU. `lasting_bytes` is what stays allocated inside and beside the budget: all but activations."""

    weights_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    cuda_graph_bytes: float
    budget_bytes: float
    kv_cache_bytes: float

    @property
    def lasting_bytes(self) -> float:
        return self.weights_bytes + self.non_torch_bytes + self.cuda_graph_bytes + self.kv_cache_bytes


def _components(question: MemoryQuestion, context_tokens: int) -> _Components:
    memory = question.release.memory
    served = question.served
    weights = question.measured.weights_bytes
    assert weights is not None
    activations = question.measured.activation_bytes
    if activations is None:
        tokens, sequences = question.batched_tokens(context_tokens), question.sequences(context_tokens)
        activations = activation_bytes(served, memory, question.parallelism, tokens, sequences)
    non_torch = question.measured.non_torch_bytes
    if non_torch is None:
        non_torch = non_torch_bytes(memory, question.parallelism)
    graphs = cuda_graph_bytes(served, memory, question.parallelism)
    inside = weights + non_torch
    inside += activations if memory.activations_inside_budget else 0.0
    inside += graphs if memory.cuda_graphs_inside_budget else 0.0
    if memory.utilization_of_free_memory:
        kv_cache = question.gpu_memory_utilization * (question.visible_bytes - inside)
        budget = inside + kv_cache
    else:
        budget = question.gpu_memory_utilization * question.visible_bytes
        kv_cache = budget - inside
    return _Components(weights, activations, non_torch, graphs, budget, kv_cache)


def _awareness(question: MemoryQuestion) -> WindowAwareness:
    memory = question.release.memory
    return WindowAwareness(memory.window_aware_kv_cache, memory.chunk_aware_kv_cache)


def _reserved_bytes(question: MemoryQuestion, context_tokens: int) -> int:
    """What a sequence that may grow to `context_tokens` must be able to get on one GPU."""
    return reserved_bytes_for_sequence(
        question.architecture,
        kv_precision_or_default(question.architecture, question.settings.kv_precision),
        question.parallelism,
        context_tokens,
        window_aware=_awareness(question),
        block_tokens=question.release.defaults.kv_block_tokens,
        batched_tokens=question.batched_tokens(context_tokens),
    )


def _context_fits(question: MemoryQuestion, context_tokens: int) -> bool:
    return _reserved_bytes(question, context_tokens) <= _components(question, context_tokens).kv_cache_bytes


def _largest_context_tokens(question: MemoryQuestion) -> int:
    """The longest context that fits.

    Where prompts are prefilled whole, a longer context costs activations too, up to the length from which they are
    chunked: so a long context can fit where a shorter one does not (20k and 35k start, 29k does not). The long range
    is tried first.
    """
    longest = max(question.architecture.maximum_context_tokens, question.settings.max_model_len_tokens or 0)
    whole_up_to = question.release.defaults.whole_prompts_up_to_tokens or 0
    found = _last_true(lambda tokens: _context_fits(question, tokens), whole_up_to + 1, longest)
    return found or _last_true(lambda tokens: _context_fits(question, tokens), 1, min(whole_up_to, longest)) or 0


def _last_true(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest number from `low` to `high` for which `holds`, which is true up to it and false beyond."""
    if low > high or not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _chosen_context_tokens(question: MemoryQuestion, largest: int) -> int:
    """A context where none is asked for: what fits, up to 32k or the workload's own, never silently the model's."""
    wanted = max(LONGEST_CHOSEN_CONTEXT_TOKENS, question.workload_context_tokens or 0)
    wanted = min(wanted, question.architecture.maximum_context_tokens)
    return min(wanted, largest) if largest else wanted


def _estimate(question: MemoryQuestion, parts: _Components, context: int, largest: int) -> MemoryEstimate:
    precision = kv_precision_or_default(question.architecture, question.settings.kv_precision)
    token_bytes = nominal_kv_bytes_per_token(question.architecture, precision, question.parallelism)
    block_tokens = question.release.defaults.kv_block_tokens
    kv_blocks = max(0, math.floor(parts.kv_cache_bytes / (token_bytes * block_tokens))) if token_bytes else 0
    reserved = _reserved_bytes(question, context)
    available = max(0.0, parts.kv_cache_bytes)
    missing = max(0.0, reserved - parts.kv_cache_bytes)
    # Without room for a KV cache the engine stops before that matters.
    over_visible = max(0.0, parts.lasting_bytes - question.visible_bytes) if parts.kv_cache_bytes > 0 else 0.0
    return MemoryEstimate(
        fits=missing == 0 and over_visible == 0,
        visible_bytes=question.visible_bytes,
        budget_bytes=parts.budget_bytes,
        weights_bytes=parts.weights_bytes,
        activation_bytes=parts.activation_bytes,
        non_torch_bytes=parts.non_torch_bytes,
        cuda_graph_bytes=parts.cuda_graph_bytes,
        cuda_graphs_inside_budget=question.release.memory.cuda_graphs_inside_budget,
        kv_cache_bytes=parts.kv_cache_bytes,
        kv_bytes_per_token=token_bytes,
        state_bytes_per_sequence=state_bytes_per_sequence(question.architecture, question.parallelism),
        kv_block_tokens=block_tokens,
        kv_blocks=kv_blocks,
        kv_cache_tokens=kv_blocks * block_tokens,
        max_model_len_tokens=context,
        largest_context_tokens=largest,
        concurrency_at_max_model_len=available / reserved,
        concurrency_at_workload=_concurrency_at_workload(question, available),
        missing_bytes=max(missing, over_visible),
        configuration=_configuration(question, context),
        broken_rules=_broken_rules(question, parts, context, largest, reserved, over_visible),
    )


def _concurrency_at_workload(question: MemoryQuestion, available_bytes: float) -> float | None:
    """Sequences at the workload's mean context: what they hold then, not what admission reserves."""
    tokens = question.workload_context_tokens
    if tokens is None:
        return None
    block_tokens = question.release.defaults.kv_block_tokens
    held = kv_bytes_for_sequence(
        question.architecture,
        kv_precision_or_default(question.architecture, question.settings.kv_precision),
        question.parallelism,
        math.ceil(tokens / block_tokens) * block_tokens,
        _awareness(question),
    )
    return available_bytes / held


def _configuration(question: MemoryQuestion, context: int) -> Configuration:
    settings, release = question.settings, question.release
    caching = settings.enable_prefix_caching
    return Configuration(
        accelerator=question.accelerator.id,
        gpus_per_replica=question.parallelism.gpus,
        engine=question.engine.id,
        engine_version=settings.version or release.since,
        engine_release=release.since,
        weight_precision=question.served.weight_precision,
        kv_precision=kv_precision_or_default(question.architecture, settings.kv_precision),
        gpu_memory_utilization=question.gpu_memory_utilization,
        max_num_seqs=question.sequences(context),
        max_num_batched_tokens=question.batched_tokens(context),
        max_model_len_tokens=context,
        enable_prefix_caching=release.defaults.prefix_caching if caching is None else caching,
        parallelism=question.parallelism,
    )


def _broken_rules(
    question: MemoryQuestion,
    parts: _Components,
    context: int,
    largest: int,
    reserved_bytes: int,
    over_visible_bytes: float,
) -> tuple[BrokenRule, ...]:
    subject = f"{question.accelerator.id} x {question.parallelism.gpus}"
    rules = []
    if parts.weights_bytes > parts.budget_bytes:
        rules.append(
            BrokenRule(
                "WEIGHTS_DO_NOT_FIT",
                subject,
                f"Weights take {_gib(parts.weights_bytes)} a GPU, more than the {_gib(parts.budget_bytes)} that the "
                "engine may claim. More GPUs, or weights of fewer bits, are needed.",
            )
        )
    elif parts.kv_cache_bytes <= 0:
        rules.append(
            BrokenRule(
                "NO_MEMORY_FOR_KV_CACHE",
                subject,
                f"Available KV cache memory is {_gib(parts.kv_cache_bytes)} a GPU: weights take "
                f"{_gib(parts.weights_bytes)}, activations {_gib(parts.activation_bytes)} of "
                f"{_gib(parts.budget_bytes)}. A higher gpu_memory_utilization, smaller max_num_seqs and "
                "max_num_batched_tokens, or more GPUs are needed.",
            )
        )
    elif reserved_bytes > parts.kv_cache_bytes:
        rules.append(
            BrokenRule(
                "CONTEXT_DOES_NOT_FIT",
                subject,
                f"One sequence of {context} tokens needs {_gib(reserved_bytes)} of KV cache a GPU, "
                f"{_gib(parts.kv_cache_bytes)} are left. The largest context that would fit is {largest} tokens.",
            )
        )
    if over_visible_bytes > 0:
        rules.append(
            BrokenRule(
                "MORE_THAN_VISIBLE_MEMORY",
                subject,
                f"Weights, KV cache, CUDA graphs and non-torch memory take {_gib(parts.lasting_bytes)} a GPU, "
                f"{_gib(over_visible_bytes)} more than it has. A lower gpu_memory_utilization is needed.",
            )
        )
    return tuple(rules)


def _gib(count_bytes: float) -> str:
    return f"{count_bytes / _GIBIBYTE:.2f} GiB"
