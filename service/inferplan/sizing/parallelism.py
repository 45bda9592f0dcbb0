"""How one replica is spread over GPUs, and the rules that a model's dimensions set for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inferplan.catalog.architecture import (
    GroupedAttention,
    ModelArchitecture,
    QuantizationMethod,
    WeightQuantization,
)
from inferplan.errors import Violation


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees of one replica. Expert parallelism shares the tensor-parallel GPUs and keeps experts whole on them."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def expert_tensor_parallel(self) -> int:
        """GPUs that share the matrices of one expert."""
        return max(1, self.tensor_parallel // self.expert_parallel)


def check_parallelism(
    architecture: ModelArchitecture,
    parallelism: Parallelism,
    gpus_per_node: int | None = None,
    *,
    vocabulary_multiple_elements: int = 64,
) -> tuple[Violation, ...]:
    """Every rule that `parallelism` breaks, each with the dimension, the values legal under that rule, and under all.

    `architecture` is the one served (sizing.weights.served_architecture), since its quantisation sets rules too.
    `gpus_per_node` None leaves the node out. Engines pad the vocabulary to `vocabulary_multiple_elements`, so that only
    degrees that do not divide the padded one are refused. Field paths are relative to the parallelism.
    """
    violations = list(_positive_violations(parallelism))
    if violations:
        return tuple(violations)
    violations = [
        *_tensor_violations(architecture, parallelism, vocabulary_multiple_elements),
        *_expert_violations(architecture, parallelism),
        *_node_violations(architecture, parallelism, gpus_per_node),
    ]
    if not any(violation.field == "tensor_parallel" for violation in violations):
        return tuple(violations)
    legal = legal_tensor_parallel_values(
        architecture,
        gpus_per_node,
        whole_experts=parallelism.expert_parallel > 1,
        vocabulary_multiple_elements=vocabulary_multiple_elements,
    )
    return tuple(_with_legal_values(violation, legal) for violation in violations)


def legal_tensor_parallel_values(
    architecture: ModelArchitecture,
    gpus_per_node: int | None = None,
    *,
    whole_experts: bool = False,
    vocabulary_multiple_elements: int = 64,
) -> tuple[int, ...]:
    """Tensor-parallel degrees that break no rule, in rising order; never empty, since 1 breaks none.

    `whole_experts`: experts are spread by expert parallelism of the same degree, so that none is split.
    """
    limit = min(architecture.attention.query_heads, gpus_per_node or architecture.attention.query_heads)
    legal = []
    for degree in range(1, limit + 1):
        trial = Parallelism(tensor_parallel=degree, expert_parallel=degree if whole_experts else 1)
        broken = [
            *_tensor_violations(architecture, trial, vocabulary_multiple_elements),
            *_expert_violations(architecture, trial),
        ]
        if not broken:
            legal.append(degree)
    return tuple(legal)


def _with_legal_values(violation: Violation, legal: tuple[int, ...]) -> Violation:
    if violation.field != "tensor_parallel":
        return violation
    return Violation(
        violation.field, f"{violation.description}; legal under every rule: {_listed(legal)}", violation.reason
    )


def _positive_violations(parallelism: Parallelism) -> Iterator[Violation]:
    for name in ("tensor_parallel", "pipeline_parallel", "expert_parallel"):
        value = getattr(parallelism, name)
        if value < 1:
            yield Violation(name, f"is {value}; legal is 1 or more", "NOT_POSITIVE")


def _tensor_violations(
    architecture: ModelArchitecture,
    parallelism: Parallelism,
    vocabulary_multiple_elements: int,
) -> Iterator[Violation]:
    degree = parallelism.tensor_parallel
    attention = architecture.attention
    yield from _divisible("query heads", attention.query_heads, degree, "QUERY_HEADS_NOT_DIVISIBLE")
    if isinstance(attention, GroupedAttention):
        yield from _kv_head_violations(attention.kv_heads, attention.query_heads, degree)
    if architecture.linear_attention is not None:
        linear = architecture.linear_attention
        yield from _divisible("linear-attention key heads", linear.key_heads, degree, "LINEAR_HEADS_NOT_DIVISIBLE")
        yield from _divisible("linear-attention value heads", linear.value_heads, degree, "LINEAR_HEADS_NOT_DIVISIBLE")
    padded = rounded_up(architecture.vocabulary_size, vocabulary_multiple_elements)
    kind = "vocabulary entries" if padded == architecture.vocabulary_size else "vocabulary entries (padded)"
    yield from _divisible(kind, padded, degree, "VOCABULARY_NOT_DIVISIBLE")
    for name, size, split in _split_sizes(architecture, parallelism):
        yield from _divisible(name, size, split, "INTERMEDIATE_NOT_DIVISIBLE")
    if architecture.quantization is not None:
        yield from _quantization_violations(architecture, parallelism, architecture.quantization)


def _kv_head_violations(kv_heads: int, query_heads: int, degree: int) -> Iterator[Violation]:
    """KV heads are divided up to their number and replicated beyond it, evenly in both cases."""

    def is_legal(candidate: int) -> bool:
        return kv_heads % candidate == 0 or candidate % kv_heads == 0

    if not is_legal(degree):
        legal = filter(is_legal, _divisors(query_heads))
        yield Violation(
            "tensor_parallel",
            f"{degree} neither divides the {kv_heads} KV heads nor is a multiple of them (replication); "
            f"legal under this rule: {_listed(legal)}",
            "KV_HEADS_NOT_DIVISIBLE",
        )


def _split_sizes(architecture: ModelArchitecture, parallelism: Parallelism) -> Iterator[tuple[str, int, int]]:
    """Feed-forward widths with the number of GPUs that share each."""
    if architecture.feed_forward is not None:
        yield "intermediate elements", architecture.feed_forward.intermediate_size, parallelism.tensor_parallel
    experts = architecture.experts
    if experts is not None:
        yield "expert intermediate elements", experts.expert_intermediate_size, parallelism.expert_tensor_parallel
        if experts.shared_intermediate_size:
            yield "shared-expert intermediate elements", experts.shared_intermediate_size, parallelism.tensor_parallel


def _quantization_violations(
    architecture: ModelArchitecture, parallelism: Parallelism, quantization: WeightQuantization
) -> Iterator[Violation]:
    """Shares of a GPU that cut through a group or block of weights with one scale."""
    unit = quantization.block_size_elements or quantization.group_size_elements
    # MXFP4 kernels pad the experts to whole groups (gpt-oss-120b runs at tensor parallel 4 with 720 elements a GPU).
    if unit is None or quantization.method is QuantizationMethod.MXFP4:
        return
    is_block = quantization.block_size_elements is not None
    kind = f"{quantization.method.upper()} {'block' if is_block else 'group'} of {unit}"
    reason = "QUANTIZATION_BLOCK_NOT_DIVISIBLE" if is_block else "QUANTIZATION_GROUP_NOT_DIVISIBLE"
    for name, size, split in _quantized_sizes(architecture, parallelism, quantization):
        if size % split == 0 and (size // split) % unit:
            legal = (candidate for candidate in _divisors(size) if (size // candidate) % unit == 0)
            remedy = "; expert parallelism leaves experts whole" if name.startswith("expert") else ""
            yield Violation(
                "tensor_parallel",
                f"{size} {name} / {split} = {size // split}, which is no multiple of the {kind}; "
                f"legal under this rule: {_listed(legal)}{remedy}",
                reason,
            )


def _quantized_sizes(
    architecture: ModelArchitecture, parallelism: Parallelism, quantization: WeightQuantization
) -> Iterator[tuple[str, int, int]]:
    for name, size, split in _split_sizes(architecture, parallelism):
        if name.startswith("expert") or not quantization.experts_only:
            yield name, size, split
    attention = architecture.attention
    if not quantization.experts_only:
        head_dim = attention.head_dim if isinstance(attention, GroupedAttention) else attention.value_head_dim
        yield "attention output elements", attention.query_heads * head_dim, parallelism.tensor_parallel


def _expert_violations(architecture: ModelArchitecture, parallelism: Parallelism) -> Iterator[Violation]:
    degree = parallelism.expert_parallel
    if degree == 1:
        return
    experts = architecture.experts
    if experts is None:
        yield Violation("expert_parallel", f"is {degree}, but the model has no experts; legal is 1", "NO_EXPERTS")
        return
    if experts.experts % degree:
        yield Violation(
            "expert_parallel",
            f"{experts.experts} experts are not divisible by {degree}; "
            f"legal under this rule: {_listed(_divisors(experts.experts))}",
            "EXPERTS_NOT_DIVISIBLE",
        )
    if parallelism.tensor_parallel % degree:
        yield Violation(
            "expert_parallel",
            f"{degree} does not divide the {parallelism.tensor_parallel} tensor-parallel GPUs that the experts are "
            f"spread over; legal under this rule: {_listed(_divisors(parallelism.tensor_parallel))}",
            "EXPERT_PARALLEL_NOT_DIVIDING_TENSOR_PARALLEL",
        )


def _node_violations(
    architecture: ModelArchitecture, parallelism: Parallelism, gpus_per_node: int | None
) -> Iterator[Violation]:
    if gpus_per_node is not None and parallelism.tensor_parallel > gpus_per_node:
        yield Violation(
            "tensor_parallel",
            f"is {parallelism.tensor_parallel}, more than the {gpus_per_node} GPUs of a node; use pipeline parallelism "
            "across nodes",
            "TENSOR_PARALLEL_ABOVE_NODE",
        )
    if parallelism.pipeline_parallel > architecture.layers:
        yield Violation(
            "pipeline_parallel",
            f"is {parallelism.pipeline_parallel}, but the model has {architecture.layers} layers; "
            f"legal is 1 to {architecture.layers}",
            "MORE_STAGES_THAN_LAYERS",
        )


def _divisible(name: str, size: int, degree: int, reason: str) -> Iterator[Violation]:
    if size % degree:
        yield Violation(
            "tensor_parallel",
            f"{size} {name} are not divisible by {degree}; legal under this rule: {_listed(_divisors(size))}",
            reason,
        )


def _divisors(size: int) -> list[int]:
    small = [candidate for candidate in range(1, int(size**0.5) + 1) if size % candidate == 0]
    return sorted({*small, *(size // candidate for candidate in small)})


_MAXIMUM_LISTED_VALUES = 12


def _listed(values: Iterable[int]) -> str:
    listed = list(values)
    shown = ", ".join(str(value) for value in listed[:_MAXIMUM_LISTED_VALUES])
    return f"{shown}, …" if len(listed) > _MAXIMUM_LISTED_VALUES else shown


def rounded_up(size: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `size`."""
    return -(-size // multiple) * multiple
