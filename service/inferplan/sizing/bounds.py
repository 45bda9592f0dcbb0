"""Closed-form bounds of what a replica can do, from its step time: what no schedule can beat, whatever the load.

They rule configurations out before anything is simulated. All are taken over the very requests that would be simulated,
so that a bound is never tighter than the simulation that it stands for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.simulation.engine import EngineParameters
from inferplan.simulation.requests import Requests
from inferplan.simulation.step_time import StepTimeCoefficients, step_seconds
from inferplan.sizing.workload import LatencyMetric, Objective

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RequestWork:
    """What requests cost at least, one value a request.

    `computed_tokens` are the prompt tokens that the prefix cache does not serve. `prefill_pairs` are causal pairs
    (computed tokens x what each looks back on), `decode_steps` the outputs but for the first token, which prefill
    gives, and `context_token_steps` the context that all decode steps together read. The windowed figures are the same
    where no token looks back over more than the window.
    """

    prompt_tokens: Counts
    computed_tokens: Counts
    decode_steps: Counts
    prefill_pairs: Counts
    windowed_prefill_pairs: Counts
    context_token_steps: Counts
    windowed_context_token_steps: Counts
    class_index: npt.NDArray[np.int32]
    class_names: tuple[str, ...]


def work_of(requests: Requests, window_tokens: int = 0) -> RequestWork:
    """The least work of `requests`; `window_tokens` 0 means that no layer has a window."""
    prompt = requests.prompt_tokens.astype(np.float64)
    cached = np.minimum(requests.cached_tokens, requests.prompt_tokens - 1).astype(np.float64)
    computed = prompt - cached
    decode = requests.output_tokens.astype(np.float64) - 1.0
    window = float(window_tokens) if window_tokens else math.inf
    inside = np.clip(window - cached, 0.0, computed)
    beyond = computed - inside
    windowed_pairs = inside * (cached + 0.5 * inside)
    windowed_pairs[beyond > 0] += beyond[beyond > 0] * window
    return RequestWork(
        prompt_tokens=prompt,
        computed_tokens=computed,
        decode_steps=decode,
        prefill_pairs=computed * (cached + 0.5 * computed),
        windowed_prefill_pairs=windowed_pairs,
        context_token_steps=decode * (prompt + 0.5 * (decode + 1.0)),
        # Each step reads at least the prompt and one token more, as far as the window lets it.
        windowed_context_token_steps=decode * np.minimum(prompt + 1.0, window),
        class_index=requests.class_index,
        class_names=requests.class_names,
    )


def least_service_seconds(coefficients: StepTimeCoefficients, engine: EngineParameters, work: RequestWork) -> float:
    """The least time of a replica that a request takes on average; 1 over it bounds the requests a second.

    Per token and per pair every request pays its own. What a step pays once (streaming the weights, the host, the
    all-reduces' latency) it shares with at most as many others as there are slots, room in the KV cache, or token
    budget. GEMMs take at least the larger of streaming and computing (the soft corner only adds to it).
    """
    tokens = float(np.mean(work.computed_tokens + work.decode_steps))
    decode_steps = float(np.mean(work.decode_steps))
    steps = least_steps_per_request(engine, work)
    weights = coefficients.dense_weight_seconds
    if coefficients.expert_weight_seconds > 0:
        weights += coefficients.expert_weight_seconds * coefficients.experts_per_token / coefficients.expert_count
    gemm = max(steps * weights, tokens * coefficients.compute_seconds_per_token)
    per_step = coefficients.host_seconds_per_step + coefficients.allreduce_seconds_per_step
    per_token = coefficients.allreduce_seconds_per_token + coefficients.elementwise_seconds_per_token
    return (
        gemm
        + steps * per_step
        + tokens * per_token
        + decode_steps * coefficients.host_seconds_per_sequence
        + attention_seconds(coefficients, work)
    )


def attention_seconds(coefficients: StepTimeCoefficients, work: RequestWork) -> float:
    """Mean time a request for attention, prefill and decode together."""
    windowed = coefficients.windowed_fraction
    full_context, windowed_context = np.mean(work.context_token_steps), np.mean(work.windowed_context_token_steps)
    full_pairs, windowed_pairs = np.mean(work.prefill_pairs), np.mean(work.windowed_prefill_pairs)
    context = (1.0 - windowed) * full_context + windowed * windowed_context
    pairs = (1.0 - windowed) * full_pairs + windowed * windowed_pairs
    return float(
        context * coefficients.kv_seconds_per_context_token + pairs * coefficients.prefill_attention_seconds_per_pair
    )


def least_steps_per_request(engine: EngineParameters, work: RequestWork) -> float:
    """Steps over requests in the long run: a step carries no more sequences than slots, KV cache and budget allow."""
    held = work.context_token_steps
    if engine.shared_prefix:
        held = held - (work.prompt_tokens - work.computed_tokens) * work.decode_steps
    by_slots = float(np.mean(work.decode_steps)) / engine.maximum_sequences
    by_memory = float(np.mean(held)) / engine.kv_capacity_tokens
    by_budget = float(np.mean(work.computed_tokens + work.decode_steps)) / engine.maximum_batched_tokens
    return max(by_slots, by_memory, by_budget)


def least_decode_step_seconds(coefficients: StepTimeCoefficients, context_tokens: float) -> float:
    """One sequence decoding alone with `context_tokens` of context."""
    context = max(1, math.floor(context_tokens))
    windowed = min(context, coefficients.window_tokens) if coefficients.window_tokens else context
    return float(step_seconds(coefficients.as_array(), 1, 1, context, windowed, 0.0, 0.0))


def least_prefill_seconds(
    coefficients: StepTimeCoefficients, engine: EngineParameters, computed_tokens: float, pairs: float
) -> float:
    """A prompt prefilled alone, in as few steps as the token budget allows.

    Of dense models equal chunks take least, since a step's time bends upwards with its tokens; experts are streamed
    once they are touched, which bends downwards, so that full chunks and a short one may take less.
    """
    array = coefficients.as_array()

    def chunk_seconds(tokens: float) -> float:
        return float(step_seconds(array, max(1, math.floor(tokens)), 0, 0, 0, 0.0, 0.0))

    budget = engine.maximum_batched_tokens
    chunks = max(1, math.ceil(computed_tokens / budget)) if engine.chunked_prefill else 1
    equal = chunks * chunk_seconds(computed_tokens / chunks)
    full = (chunks - 1) * chunk_seconds(budget) + chunk_seconds(computed_tokens - (chunks - 1) * budget)
    attention = pairs * (1.0 - coefficients.windowed_fraction) * coefficients.prefill_attention_seconds_per_pair
    return min(equal, full) + attention


def least_latency_seconds(
    objective: Objective,
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    front_end_seconds: float,
    work: RequestWork,
) -> float:
    """What the objective's percentile is at least, on an idle replica; 0 where nothing better is known."""
    mine = share_of_class(work, objective.traffic_class_id)
    if not mine.any():
        return 0.0
    if objective.metric in (LatencyMetric.TPOT, LatencyMetric.INTER_TOKEN):
        several = mine & (work.decode_steps > 0)
        if not several.any():
            return 0.0
        return least_decode_step_seconds(coefficients, float(work.prompt_tokens[several].min()) + 1.0)
    if objective.metric is LatencyMetric.QUEUE_WAIT:
        return 0.0
    share = objective.percentile
    # So many prompts are this long or longer; each looks back at least on itself.
    long_prompt = value_at(work.computed_tokens[mine], share)
    to_first = least_prefill_seconds(coefficients, engine, long_prompt, 0.5 * long_prompt**2)
    if objective.metric is LatencyMetric.TTFT:
        return front_end_seconds + to_first
    step = least_decode_step_seconds(coefficients, float(work.prompt_tokens[mine].min()) + 1.0)
    shortest = least_prefill_seconds(
        coefficients, engine, float(work.computed_tokens[mine].min()), float(work.prefill_pairs[mine].min())
    )
    by_prompt = to_first + float(work.decode_steps[mine].min()) * step
    by_output = shortest + value_at(work.decode_steps[mine], share) * step
    return front_end_seconds + max(by_prompt, by_output)


def share_of_class(work: RequestWork, traffic_class_id: str) -> npt.NDArray[np.bool_]:
    """Which requests are of a class; all of them for an empty one."""
    if not traffic_class_id:
        return np.ones(work.class_index.size, dtype=np.bool_)
    return np.asarray(work.class_index == work.class_names.index(traffic_class_id))


def value_at(values: Counts, percentile: float) -> float:
    """The smallest value that at least `percentile` per cent of the values do not exceed, as simulations count it."""
    rank = max(0, math.ceil(round(percentile / 100 * values.size, 9)) - 1)
    return float(np.partition(values, rank)[rank])
