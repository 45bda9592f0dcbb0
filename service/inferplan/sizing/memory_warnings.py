"""What a reader of a memory estimate should know, with the numbers that it follows from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inferplan.catalog.architecture import GroupedAttention, LatentAttention
from inferplan.catalog.precision import Precision
from inferplan.sizing.activations import activation_bytes
from inferplan.sizing.explanation import PlanWarning, Quantity
from inferplan.sizing.memory_question import MemoryQuestion

if TYPE_CHECKING:
    from inferplan.sizing.memory import MemoryEstimate

_GIBIBYTE = 2**30

LITTLE_KV_CACHE_SHARE = 0.1
"""A replica whose KV cache is less than a tenth of the budget serves few sequences for the GPUs it takes (Llama-2-70B
in FP16 on two A100 80GB starts, and is reported as not worth deploying)."""

MEASURED_MEMORY_TOLERANCE = 0.02
"""Cards of one product differ by 0.1 % in what runtimes report; 2 % more or less is another product."""

LARGE_TOKEN_BUDGET_FACTOR = 4
"""Token budgets beyond this many times the default are told of."""


def memory_warnings(question: MemoryQuestion, estimate: MemoryEstimate) -> tuple[PlanWarning, ...]:
    """Every warning that applies, in a fixed order."""
    return (
        *_utilization_is_one(estimate),
        *_no_fp8_unit(question, estimate),
        *_weights_leave_little(estimate),
        *_replicated_kv(question, estimate),
        *_measured_memory_differs(question),
        *_label_is_not_visible(question, estimate),
        *_context(question, estimate),
        *_beside_the_budget(question, estimate),
        *_token_budget(question, estimate),
    )


def _utilization_is_one(estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    utilization = estimate.configuration.gpu_memory_utilization
    if utilization >= 1.0:
        yield PlanWarning(
            "UTILIZATION_IS_ONE",
            "gpu_memory_utilization 1.0 leaves nothing to CUDA graphs, fragmentation and other processes; engines "
            "run out of memory even where the arithmetic fits. 0.95 is as far as start-up logs support.",
            (Quantity("gpu_memory_utilization", utilization),),
        )


def _no_fp8_unit(question: MemoryQuestion, estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    accelerator = question.accelerator
    if estimate.configuration.weight_precision is Precision.FP8 and not accelerator.has_matrix_unit_for(Precision.FP8):
        yield PlanWarning(
            "NO_FP8_MATRIX_UNIT",
            f"{accelerator.display_name} has no FP8 matrix unit: FP8 weights save memory, but prefill runs at the "
            f"16-bit peak of {accelerator.sixteen_bit_flops_per_second / 1e12:.0f} TFLOPS.",
            (Quantity("sixteen_bit_flops", accelerator.sixteen_bit_flops_per_second, "FLOP/s"),),
        )


def _weights_leave_little(estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    share = estimate.kv_cache_bytes / estimate.budget_bytes
    if 0 < share < LITTLE_KV_CACHE_SHARE:
        yield PlanWarning(
            "WEIGHTS_LEAVE_LITTLE_MEMORY",
            f"The KV cache gets {share:.1%} of the budget, {estimate.kv_cache_tokens} tokens in all. More GPUs, or "
            "weights of fewer bits, carry more load for the money.",
            (
                Quantity("kv_cache", estimate.kv_cache_bytes, "B"),
                Quantity("kv_cache_tokens", estimate.kv_cache_tokens, "tokens"),
                Quantity("weights", estimate.weights_bytes, "B"),
            ),
        )


def _replicated_kv(question: MemoryQuestion, estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    attention = question.architecture.attention
    degree = question.parallelism.tensor_parallel
    quantities = (
        Quantity("tensor_parallel", degree),
        Quantity("kv_bytes_per_token", estimate.kv_bytes_per_token, "B"),
    )
    if isinstance(attention, GroupedAttention) and degree > attention.kv_heads:
        yield PlanWarning(
            "KV_HEADS_REPLICATED",
            f"{degree} GPUs share {attention.kv_heads} KV heads, so each head is held {degree // attention.kv_heads} "
            "times; beyond as many GPUs as KV heads, tensor parallelism saves no KV cache.",
            (*quantities, Quantity("kv_heads", attention.kv_heads)),
        )
    elif isinstance(attention, LatentAttention) and degree > 1:
        yield PlanWarning(
            "LATENT_KV_CACHE_REPLICATED",
            f"Latent attention keeps one vector a token and layer, which each of the {degree} GPUs holds whole; tensor "
            "parallelism saves no KV cache.",
            quantities,
        )


def _measured_memory_differs(question: MemoryQuestion) -> Iterator[PlanWarning]:
    measured = question.measured.visible_bytes
    stated = question.accelerator.visible_memory_bytes
    if measured is not None and abs(measured / stated - 1) > MEASURED_MEMORY_TOLERANCE:
        yield PlanWarning(
            "MEASURED_MEMORY_DIFFERS",
            f"The runtime reports {measured / _GIBIBYTE:.2f} GiB, {question.accelerator.display_name} has "
            f"{stated / _GIBIBYTE:.2f} GiB: it may be another GPU.",
            (Quantity("measured", measured, "B"), Quantity("catalogue", stated, "B")),
        )


def _label_is_not_visible(question: MemoryQuestion, estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    """Told where it decides: it does not fit, and would if the label's memory were there."""
    label = question.accelerator.label_memory_bytes
    gained = estimate.configuration.gpu_memory_utilization * (label - estimate.visible_bytes)
    if 0 < estimate.missing_bytes <= gained:
        yield PlanWarning(
            "LABEL_MEMORY_IS_NOT_VISIBLE",
            f"It would fit the label's {label / _GIBIBYTE:.2f} GiB, but runtimes see "
            f"{estimate.visible_bytes / _GIBIBYTE:.2f} GiB.",
            (Quantity("label", label, "B"), Quantity("visible", estimate.visible_bytes, "B")),
        )


def _context(question: MemoryQuestion, estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    chosen = estimate.max_model_len_tokens
    own_maximum = question.architecture.maximum_context_tokens
    quantities = (
        Quantity("max_model_len", chosen, "tokens"),
        Quantity("model_maximum", own_maximum, "tokens"),
        Quantity("largest_context", estimate.largest_context_tokens, "tokens"),
    )
    if question.settings.max_model_len_tokens is None:
        yield PlanWarning(
            "CONTEXT_CHOSEN",
            f"No max_model_len was given: {chosen} tokens were chosen. The model was made for {own_maximum}, "
            f"{estimate.largest_context_tokens} would fit. Set it explicitly: engines default to the model's maximum.",
            quantities,
        )
    elif chosen > own_maximum:
        yield PlanWarning(
            "CONTEXT_ABOVE_MODEL_MAXIMUM",
            f"max_model_len {chosen} is more than the {own_maximum} tokens that the model was made for; engines "
            "refuse it unless rotary scaling is set.",
            quantities,
        )


def _beside_the_budget(question: MemoryQuestion, estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    memory = question.release.memory
    beside = 0.0 if memory.cuda_graphs_inside_budget else estimate.cuda_graph_bytes
    beside += 0.0 if memory.activations_inside_budget else estimate.activation_bytes
    if beside <= 0:
        return
    used = (estimate.budget_bytes + beside) / estimate.visible_bytes
    what = "CUDA graphs" if memory.activations_inside_budget else "CUDA graphs and activations"
    yield PlanWarning(
        "MEMORY_BESIDE_THE_BUDGET",
        f"{what} take about {beside / _GIBIBYTE:.2f} GiB beside the budget in this engine release, so that "
        f"{used:.1%} of the GPU is used, not {estimate.configuration.gpu_memory_utilization:.1%}.",
        (
            Quantity("beside", beside, "B"),
            Quantity("used_share", used),
            Quantity("gpu_memory_utilization", estimate.configuration.gpu_memory_utilization),
        ),
    )


def _token_budget(question: MemoryQuestion, estimate: MemoryEstimate) -> Iterator[PlanWarning]:
    tokens = estimate.configuration.max_num_batched_tokens
    default = question.release.defaults.batched_tokens_on(question.accelerator)
    asked = question.settings.max_num_batched_tokens is not None
    if not asked or question.measured.activation_bytes is not None or tokens <= LARGE_TOKEN_BUDGET_FACTOR * default:
        return
    sequences = min(estimate.configuration.max_num_seqs, default)
    with_default = activation_bytes(question.served, question.release.memory, question.parallelism, default, sequences)
    if estimate.activation_bytes > with_default:
        yield PlanWarning(
            "LARGE_TOKEN_BUDGET",
            f"max_num_batched_tokens {tokens} makes activations {estimate.activation_bytes / _GIBIBYTE:.2f} GiB; "
            f"with the default of {default} they are {with_default / _GIBIBYTE:.2f} GiB, and the difference is KV "
            "cache.",
            (
                Quantity("max_num_batched_tokens", tokens, "tokens"),
                Quantity("default_max_num_batched_tokens", default, "tokens"),
                Quantity("activations", estimate.activation_bytes, "B"),
                Quantity("activations_with_default", with_default, "B"),
            ),
        )
