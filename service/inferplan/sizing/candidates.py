"""The configurations that a search may choose from: every one that is legal and fits, and why the others do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.precision import Precision
from inferplan.errors import BrokenRule
from inferplan.sizing.configuration import Configuration, EngineSettings
from inferplan.sizing.memory import MemoryEstimate, MemoryQuestion, estimate_memory, memory_question_violations
from inferplan.sizing.parallelism import Parallelism, legal_tensor_parallel_values
from inferplan.sizing.replica import ReplicaModel, replica_model
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.weights import served_architecture

MOST_STAGES = 16
"""Pipeline stages that are tried where one node is too small: sixteen nodes of eight GPUs hold 10 TB of weights."""


@dataclass(frozen=True, slots=True)
class CandidateReplica:
    """One configuration that is legal and fits the memory. `settings` are what was asked of the engine."""

    accelerator: Accelerator
    settings: EngineSettings
    memory: MemoryEstimate
    model: ReplicaModel

    @property
    def configuration(self) -> Configuration:
        """The configuration with nothing left open."""
        return self.memory.configuration

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.configuration.gpus_per_replica

    @property
    def cost_usd_per_hour(self) -> float:
        """Price of one replica."""
        return self.gpus * self.accelerator.cost_usd_per_gpu_hour

    @property
    def label(self) -> str:
        """`h100-sxm-80gb, tensor parallel 2, max_num_seqs 512`, naming what differs from the engine's defaults."""
        return _label(self.accelerator, self.configuration.parallelism, self.settings)


@dataclass(frozen=True, slots=True)
class Candidates:
    """`fitting` may be chosen; each of the others has left the rule that it broke."""

    fitting: tuple[CandidateReplica, ...]
    broken_rules: tuple[BrokenRule, ...]


def enumerate_candidates(question: SearchQuestion) -> Candidates:
    """Every configuration with the engine's own slots and token budget (or the ones asked for); see `variants_of`."""
    fitting: list[CandidateReplica] = []
    broken: list[BrokenRule] = []
    for accelerator in question.accelerators:
        for settings in _precision_choices(question, accelerator):
            found, rules = _on_accelerator(question, accelerator, settings)
            fitting += found
            broken += rules
    return Candidates(tuple(fitting), tuple(broken))


def variants_of(
    question: SearchQuestion, candidate: CandidateReplica, sequences: tuple[int, ...], budgets: tuple[int, ...]
) -> Candidates:
    """The same replica with other slots or another token budget, as far as the request leaves them open."""
    choices: list[EngineSettings] = []
    if question.settings.max_num_seqs is None:
        budget = candidate.configuration.max_num_batched_tokens
        choices += [
            # The budget is stated, since a default would follow the slots where these exceed it.
            dataclasses.replace(candidate.settings, max_num_seqs=count, max_num_batched_tokens=max(budget, count))
            for count in sequences
            if count <= budget or question.settings.max_num_batched_tokens is None
        ]
    if question.settings.max_num_batched_tokens is None:
        slots = candidate.configuration.max_num_seqs
        choices += [
            dataclasses.replace(candidate.settings, max_num_seqs=slots, max_num_batched_tokens=tokens)
            for tokens in budgets
            if tokens >= slots
        ]
    fitting: list[CandidateReplica] = []
    broken: list[BrokenRule] = []
    for settings in choices:
        found = build_replica(question, candidate.accelerator, settings, candidate.configuration.parallelism)
        if isinstance(found, CandidateReplica):
            fitting.append(found)
        else:
            broken += found
    return Candidates(tuple(fitting), tuple(broken))


def build_replica(
    question: SearchQuestion, accelerator: Accelerator, settings: EngineSettings, parallelism: Parallelism
) -> CandidateReplica | tuple[BrokenRule, ...]:
    """One configuration, or every rule that it breaks."""
    memory_question = MemoryQuestion(
        architecture=question.architecture,
        accelerator=accelerator,
        engine=question.engine,
        settings=settings,
        parallelism=parallelism,
        workload_context_tokens=question.mean_context_tokens,
    )
    label = _label(accelerator, parallelism, settings)
    violations = memory_question_violations(memory_question)
    if violations:
        return tuple(
            BrokenRule("CONFIGURATION_NOT_LEGAL", label, f"{violation.field} {violation.description}")
            for violation in violations
        )
    memory = estimate_memory(memory_question)
    longest = question.longest_context_tokens
    if memory.max_model_len_tokens < longest:
        whole = dataclasses.replace(settings, max_model_len_tokens=longest)
        memory = estimate_memory(dataclasses.replace(memory_question, settings=whole))
    if not memory.fits:
        return tuple(dataclasses.replace(rule, subject=label) for rule in memory.broken_rules)
    served = served_architecture(question.architecture, settings.weight_precision)
    release = question.engine.release_for(settings.version)
    model = replica_model(
        served, accelerator, release, memory, question.efficiency, float(question.mean_context_tokens)
    )
    return CandidateReplica(accelerator, settings, memory, model)


def _precision_choices(question: SearchQuestion, accelerator: Accelerator) -> Iterator[EngineSettings]:
    settings = question.settings
    weights, kv_cache = [settings.weight_precision], [settings.kv_precision]
    has_eight_bits = accelerator.has_matrix_unit_for(Precision.FP8)
    if question.search_precisions and has_eight_bits:
        own = served_architecture(question.architecture, None).weight_precision
        if settings.weight_precision is None and own.is_sixteen_bit:
            weights.append(Precision.FP8)
        if settings.kv_precision is None:
            kv_cache.append(Precision.FP8)
    for weight_precision in weights:
        for kv_precision in kv_cache:
            yield dataclasses.replace(settings, weight_precision=weight_precision, kv_precision=kv_precision)


def _on_accelerator(
    question: SearchQuestion, accelerator: Accelerator, settings: EngineSettings
) -> tuple[list[CandidateReplica], list[BrokenRule]]:
    """Every spread over one node; over several nodes only where one is too small."""
    fitting: list[CandidateReplica] = []
    broken: list[BrokenRule] = []
    asked = question.parallelism
    most_gpus = question.limits.maximum_gpus
    for stages in range(asked.pipeline_parallel or 1, (asked.pipeline_parallel or MOST_STAGES) + 1):
        for parallelism in _spreads(question, accelerator, settings, stages):
            if most_gpus is not None and parallelism.gpus > most_gpus:
                broken.append(
                    BrokenRule(
                        "GPU_QUOTA",
                        _label(accelerator, parallelism, settings),
                        f"one replica takes {parallelism.gpus} GPUs; maximum_gpus is {most_gpus}",
                    )
                )
                continue
            found = build_replica(question, accelerator, settings, parallelism)
            if isinstance(found, CandidateReplica):
                fitting.append(found)
            else:
                broken += found
        if fitting or (most_gpus is not None and (stages + 1) > most_gpus):
            break
    return fitting, broken


def _spreads(
    question: SearchQuestion, accelerator: Accelerator, settings: EngineSettings, stages: int
) -> Iterator[Parallelism]:
    """Tensor-parallel degrees of one stage, with experts split like any matrix and, of experts, kept whole."""
    asked = question.parallelism
    served = served_architecture(question.architecture, settings.weight_precision)
    release = question.engine.release_for(settings.version)
    vocabulary_multiple = release.memory.vocabulary_multiple_elements
    seen: set[int] = set()
    for whole_experts in (False, True) if served.experts is not None else (False,):
        if asked.expert_parallel is not None and whole_experts != (asked.expert_parallel > 1):
            continue
        degrees = legal_tensor_parallel_values(
            served,
            accelerator.gpus_per_node,
            whole_experts=whole_experts,
            vocabulary_multiple_elements=vocabulary_multiple,
        )
        if asked.tensor_parallel is not None:
            degrees = (asked.tensor_parallel,)
        elif stages > 1 and asked.pipeline_parallel is None:
            degrees = degrees[-1:]  # whole nodes: anything less leaves GPUs of a node to nobody
        for degree in degrees:
            # The model of a step sees no difference, so experts are kept whole only where they cannot be split.
            if degree in seen:
                continue
            seen.add(degree)
            experts = (asked.expert_parallel or degree) if whole_experts else 1
            yield Parallelism(degree, stages, experts)


def _label(accelerator: Accelerator, parallelism: Parallelism, settings: EngineSettings) -> str:
    parts = [accelerator.id, f"tensor parallel {parallelism.tensor_parallel}"]
    if parallelism.pipeline_parallel > 1:
        parts.append(f"pipeline parallel {parallelism.pipeline_parallel}")
    if parallelism.expert_parallel > 1:
        parts.append(f"expert parallel {parallelism.expert_parallel}")
    named = {
        "weights": settings.weight_precision,
        "KV cache": settings.kv_precision,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
    }
    parts += [f"{name} {value}" for name, value in named.items() if value is not None]
    return ", ".join(parts)
