"""What the textbook method leaves out, computed from the same request.

Each warning carries its numbers, so that a caller can check the arithmetic. None is canned: a model with grouped-query
attention gets a small KV correction, a long prompt a large one for sharing the GPU, an idle fleet none for overload.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.sizing.explanation import PlanWarning, Quantity
from inferplan.sizing.fleet import replicas_for
from inferplan.sizing.textbook import TextbookAnswer, TextbookQuestion
from inferplan.sizing.workload import Objective

REACHED_BANDWIDTH_RATIO = 0.8
"""Share of peak bandwidth that engines reach in decode: the lower end of what was measured on H100, 0.8 to 0.95."""

REACHED_FLOPS_RATIO = 0.6
"""Share of 16-bit peak FLOPS that prefill reaches in serving; GEMM alone reaches 0.80 to 0.85 from 1024 tokens on."""

BACKLOG_WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the textbook's question does not hold: the model's own attention.

    `attention_width` is query heads x head dim. `kv_bytes_per_token` and `kv_bytes_per_sequence` are of a whole
    replica, replicated KV heads counted as often as they are read; the latter at the mean context while decoding.
    """

    layers: int
    attention_width: int
    kv_bytes_per_token: float
    kv_bytes_per_sequence: float
    mean_context_tokens: float


def textbook_warnings(
    question: TextbookQuestion, answer: TextbookAnswer, left_out: LeftOut, objectives: tuple[Objective, ...]
) -> tuple[PlanWarning, ...]:
    """Every correction that applies to this request, in the order of the steps."""
    step_with_kv = _decode_step_with_kv_seconds(question, left_out, 1.0)
    capacity_at_peak = _capacity(question, left_out, 1.0, 1.0)
    capacity_reached = _capacity(question, left_out, REACHED_BANDWIDTH_RATIO, REACHED_FLOPS_RATIO)
    warnings = [
        _attention_scores(question, left_out),
        _prefill_bound(question),
        _kv_cache(question, answer, left_out, step_with_kv),
        _shared_gpu(question, answer, capacity_at_peak, capacity_reached),
    ]
    if question.requests_per_second / answer.active_replicas > capacity_reached:
        warnings.append(_overload(question, answer, capacity_at_peak, capacity_reached))
    if objectives:
        warnings.append(_mean_is_no_percentile(question, answer, objectives))
    return tuple(warnings)


def _decode_step_with_kv_seconds(question: TextbookQuestion, left_out: LeftOut, bandwidth_ratio: float) -> float:
    kv_bytes = question.assumptions.concurrent_sequences * left_out.kv_bytes_per_sequence
    return (question.weight_bytes + kv_bytes) / (question.memory_bandwidth_bytes_per_second * bandwidth_ratio)


def _prefill_seconds(question: TextbookQuestion, flops_ratio: float) -> float:
    return 2.0 * question.parameters * question.input_tokens / (question.peak_flops_per_second * flops_ratio)


def _capacity(question: TextbookQuestion, left_out: LeftOut, bandwidth_ratio: float, flops_ratio: float) -> float:
    """Requests a second of a replica whose prefills take turns with decode steps.

    Each request occupies the GPU for one prefill and for its share, 1 / concurrent sequences, of its decode steps.
    """
    step_seconds = _decode_step_with_kv_seconds(question, left_out, bandwidth_ratio)
    decode_share = question.output_tokens * step_seconds / question.assumptions.concurrent_sequences
    return 1.0 / (_prefill_seconds(question, flops_ratio) + decode_share)


def _attention_scores(question: TextbookQuestion, left_out: LeftOut) -> PlanWarning:
    one_layer = 2.0 * question.input_tokens**2 * left_out.attention_width
    all_layers = 2.0 * left_out.layers * one_layer
    whole = 2.0 * question.parameters * question.input_tokens
    return PlanWarning(
        "PREFILL_IS_NOT_ATTENTION_SCORES",
        f"S^2 x width x 2 = {one_layer / 1e9:.3g} GFLOP counts the attention scores of one layer only. All "
        f"{left_out.layers} layers, scores and weighted values, are {all_layers / 1e9:.4g} GFLOP, and the matrices 2 x "
        f"P x S = {whole / 1e12:.3g} TFLOP, {whole / all_layers:.3g} times as much: prefill is 2 x P x S.",
        (
            Quantity("scores_one_layer", one_layer, "FLOP", "attention scores of one layer"),
            Quantity("attention_all_layers", all_layers, "FLOP", "scores and weighted values of all layers"),
            Quantity("matrices", whole, "FLOP", "2 x P x S"),
            Quantity("ratio", whole / all_layers, "", "matrices over attention"),
        ),
    )


def _prefill_bound(question: TextbookQuestion) -> PlanWarning:
    compute = _prefill_seconds(question, 1.0)
    bandwidth = question.weight_bytes / question.memory_bandwidth_bytes_per_second
    misprint = question.weight_bytes / question.peak_flops_per_second
    bound = "compute" if compute > bandwidth else "memory bandwidth"
    return PlanWarning(
        "PREFILL_BOUND",
        f"A prompt of {question.input_tokens:g} tokens is bound by {bound}: {compute * 1e3:.2f} ms at peak FLOPS "
        f"against {bandwidth * 1e3:.2f} ms at peak bandwidth. Weight bytes over FLOPS, as printed in some texts, is "
        f"{misprint * 1e6:.3g} microseconds and means nothing.",
        (
            Quantity("prefill_at_peak_flops", compute, "s", "2 x P x S over peak FLOPS"),
            Quantity("weights_at_peak_bandwidth", bandwidth, "s", "weights over peak bandwidth"),
            Quantity("weight_bytes_over_flops", misprint, "s", "a misprint: bytes over FLOPS"),
        ),
    )


def _kv_cache(question: TextbookQuestion, answer: TextbookAnswer, left_out: LeftOut, step: float) -> PlanWarning:
    sequences = question.assumptions.concurrent_sequences
    kv_bytes = sequences * left_out.kv_bytes_per_sequence
    tokens_per_second = sequences / step
    return PlanWarning(
        "KV_CACHE_LEFT_OUT",
        f"Each step also reads the KV cache: {left_out.kv_bytes_per_token:,.0f} B a token, {sequences} sequences of "
        f"{left_out.mean_context_tokens:g} tokens on average are {kv_bytes / 1e9:.3g} GB beside "
        f"{question.weight_bytes / 1e9:.3g} GB of weights. At peak bandwidth the step is {step * 1e3:.2f} ms, not "
        f"{answer.decode_step_seconds * 1e3:.2f} ms, and the replica gives {tokens_per_second:,.0f} tokens/s, not "
        f"{answer.replica_output_tokens_per_second:,.0f}.",
        (
            Quantity("kv_bytes_per_token", left_out.kv_bytes_per_token, "B/token", "KV cache of one token"),
            Quantity("kv_bytes", kv_bytes, "B", "KV cache of all running sequences"),
            Quantity("t_step", step, "s", "decode step with the KV cache"),
            Quantity("X_tokens", tokens_per_second, "tokens/s", "tokens of one replica with the KV cache"),
        ),
    )


def _shared_gpu(question: TextbookQuestion, answer: TextbookAnswer, at_peak: float, reached: float) -> PlanWarning:
    prefill = _prefill_seconds(question, 1.0)
    return PlanWarning(
        "PREFILL_SHARES_THE_GPU",
        f"Prefill takes turns with decode on the same GPU, {prefill * 1e3:.2f} ms a request even at peak FLOPS. With "
        f"the KV cache counted, one replica carries {at_peak:.1f} requests/s at peak hardware rates and {reached:.1f} "
        f"at {REACHED_BANDWIDTH_RATIO:.0%} of bandwidth and {REACHED_FLOPS_RATIO:.0%} of FLOPS, not "
        f"{answer.replica_requests_per_second:.1f}.",
        (
            Quantity("t_prefill", prefill, "s", "prefill at peak FLOPS"),
            Quantity("X_requests_at_peak", at_peak, "requests/s", "one replica at peak hardware rates"),
            Quantity("X_requests_reached", reached, "requests/s", "one replica at reached hardware rates"),
        ),
    )


def _overload(question: TextbookQuestion, answer: TextbookAnswer, at_peak: float, reached: float) -> PlanWarning:
    share = question.requests_per_second / answer.active_replicas
    capacity, rates = (at_peak, "even at peak") if share > at_peak else (reached, "at the rates that engines reach")
    growth = question.requests_per_second - answer.active_replicas * capacity
    wait = growth * BACKLOG_WINDOW_SECONDS / (answer.active_replicas * capacity)
    fewest = replicas_for(question.requests_per_second, at_peak)
    likely = replicas_for(question.requests_per_second, reached)
    needed = f"{fewest}" if fewest == likely else f"{fewest} to {likely}"
    return PlanWarning(
        "FLEET_OVERLOADED",
        f"{answer.active_replicas} active replicas at {share:.3g} requests/s each are overloaded "
        f"{share / capacity:.2g} times {rates}: the queue grows by {growth:.3g} requests/s, and after "
        f"{BACKLOG_WINDOW_SECONDS:g} s a new request waits {wait:.3g} s for its first token. {needed} active replicas "
        "carry the mean load, before any headroom.",
        (
            Quantity("overload", share / capacity, "", "load over capacity of one replica"),
            Quantity("queue_growth", growth, "requests/s", "growth of the queue"),
            Quantity("wait_after_window", wait, "s", f"queue wait after {BACKLOG_WINDOW_SECONDS:g} s"),
            Quantity("replicas_at_peak", float(fewest), "replicas", "active replicas at peak hardware rates"),
            Quantity("replicas_reached", float(likely), "replicas", "active replicas at reached hardware rates"),
        ),
    )


def _mean_is_no_percentile(
    question: TextbookQuestion, answer: TextbookAnswer, objectives: tuple[Objective, ...]
) -> PlanWarning:
    load = question.requests_per_second / (answer.active_replicas * answer.replica_requests_per_second)
    names = ", ".join(objective.label for objective in objectives)
    return PlanWarning(
        "MEAN_IS_NOT_A_PERCENTILE",
        f"The latency check compares means, with the queue taken as empty, against {names}. By the textbook's own "
        f"figures the replicas are {load:.0%} busy, and a busy queue is not empty: the check proves nothing about a "
        "percentile.",
        (Quantity("utilization", load, "", "load over the textbook's own capacity"),),
    )
