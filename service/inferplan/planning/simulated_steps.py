"""How a simulated plan came to be, as steps: memory, the step's time by term, one replica, the fleet, its cost.

Every value repeats its inputs, so that a reader can follow the arithmetic. Percentiles and the number of replicas come
from simulation; their formula says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.sizing.bounds import RequestWork, least_service_seconds
from inferplan.sizing.capacity import MeasuredCapacity
from inferplan.sizing.explanation import CalculatedValue, CalculationStep, Quantity
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.operating_point import OperatingPoint
from inferplan.sizing.performance import Performance
from inferplan.sizing.search_result import RankedCandidate
from inferplan.sizing.step_terms import step_terms


@dataclass(frozen=True, slots=True)
class SimulatedFigures:
    """What the steps are written from. `requests_per_second` is the whole fleet's; `point` one replica's at peak."""

    chosen: RankedCandidate
    work: RequestWork
    measured: MeasuredCapacity | None
    requests_per_second: float
    point: OperatingPoint | None


def simulated_steps(figures: SimulatedFigures) -> tuple[CalculationStep, ...]:
    """The steps in order."""
    steps = [("Memory of one GPU", _memory_values(figures))]
    if figures.point is not None:
        steps.append(("One scheduler step at peak, by term", _step_values(figures, figures.point)))
    steps += [
        ("Load that one replica carries", _capacity_values(figures)),
        ("Number of replicas", _fleet_values(figures)),
        ("Latency at peak", _latency_values(figures.chosen.proven.holding.performance)),
        ("Cost", _cost_values(figures)),
    ]
    return tuple(
        CalculationStep(number, title, values) for number, (title, values) in enumerate(steps, start=1) if values
    )


def _memory_values(figures: SimulatedFigures) -> tuple[CalculatedValue, ...]:
    memory = figures.chosen.replica.memory
    visible = Quantity("M", memory.visible_bytes, "B", "memory that the runtime sees")
    share = Quantity("u", memory.configuration.gpu_memory_utilization, "", "gpu_memory_utilization")
    weights = Quantity("W", memory.weights_bytes, "B", "weights")
    others = [
        Quantity("A", memory.activation_bytes, "B", "activations"),
        Quantity("O", memory.non_torch_bytes, "B", "contexts and communication buffers"),
        Quantity("G", memory.cuda_graph_bytes, "B", "CUDA graphs"),
    ]
    budget = CalculatedValue("budget", "what the engine may claim", "u x M", (visible, share), memory.budget_bytes, "B")
    inside = _paid_out_of_budget(memory, others)
    kv_cache = CalculatedValue(
        "KV",
        "KV cache",
        " - ".join(["budget", "W", *(part.symbol for part in inside)]),
        (budget.as_input(), weights, *inside),
        memory.kv_cache_bytes,
        "B",
    )
    token = Quantity("k", memory.kv_bytes_per_token, "B/token", "KV cache of one token")
    tokens = CalculatedValue(
        "KV_tokens",
        f"tokens in the KV cache, in blocks of {memory.kv_block_tokens}",
        "floor(KV / k / block) x block",
        (kv_cache.as_input(), token),
        float(memory.kv_cache_tokens),
        "tokens",
    )
    return (budget, kv_cache, tokens)


def _paid_out_of_budget(memory: MemoryEstimate, parts: list[Quantity]) -> list[Quantity]:
    """Which parts the engine takes out of its share before the KV cache; the others it leaves to the rest."""
    spent = memory.budget_bytes - memory.weights_bytes - memory.kv_cache_bytes
    graphs_inside = [part for part in parts if part.symbol != "G" or memory.cuda_graphs_inside_budget]
    without_activations = [part for part in graphs_inside if part.symbol != "A"]
    left_over = abs(sum(part.value for part in without_activations) - spent)
    return without_activations if left_over < 1.0 else graphs_inside


def _step_values(figures: SimulatedFigures, point: OperatingPoint) -> tuple[CalculatedValue, ...]:
    coefficients = figures.chosen.replica.model.coefficients
    terms = step_terms(coefficients, point)
    rate = Quantity(
        "r", figures.requests_per_second / figures.chosen.fleet.active_replicas, "requests/s", "share of one replica"
    )
    step = Quantity("T", point.step_seconds, "s", "the step itself: mean values at which both sides agree")
    decoding = CalculatedValue(
        "D", "sequences decoding at once", "r x decode steps x T", (rate, step), point.decode_sequences, "sequences"
    )
    prefill = CalculatedValue(
        "n_prefill", "prompt tokens in a step", "r x prompt x T", (rate, step), point.prefill_tokens, "tokens"
    )
    context = Quantity("c", point.context_tokens, "tokens", "mean context while decoding")
    sharpness = Quantity("p", coefficients.roofline_sharpness, "", "how sharp the roofline's corner is")
    tokens = (decoding.as_input(), prefill.as_input())
    parts = [
        ("T_w", "streaming the weights", "weights / bandwidth", (), terms.weights),
        ("T_f", "multiplying", "2 x P x (D + n_prefill + n_tile) / FLOPS", tokens, terms.gemm_compute),
        ("T_gemm", "GEMMs", "(T_w^p + T_f^p)^(1/p)", (sharpness,), terms.gemm),
        ("T_kv", "decode attention", "D x c x k / bandwidth", (tokens[0], context), terms.decode_attention),
        ("T_prefill", "prefill attention", "pairs x FLOP a pair / FLOPS", (tokens[1],), terms.prefill_attention),
        ("T_comm", "all-reduces and hand-over", "latency + tokens x bytes / bus rate", tokens, terms.allreduce),
        ("T_el", "element-wise kernels", "tokens x passes x bytes / bandwidth", tokens, terms.elementwise),
        ("T_host", "host", "T0 + L x tau + D x sigma", (tokens[0],), terms.host),
    ]
    values = [
        CalculatedValue(symbol, description, formula, inputs, seconds, "s")
        for symbol, description, formula, inputs, seconds in parts
    ]
    total = CalculatedValue(
        "T",
        "the whole step",
        "T_gemm + T_kv + T_prefill + T_comm + T_el + T_host",
        tuple(value.as_input() for value in values[2:]),
        terms.total,
        "s",
    )
    return (decoding, prefill, *values, total)


def _capacity_values(figures: SimulatedFigures) -> tuple[CalculatedValue, ...]:
    model = figures.chosen.replica.model
    least = Quantity(
        "t_least",
        least_service_seconds(model.coefficients, model.engine, figures.work),
        "s",
        "least time of a replica that a request takes",
    )
    bound = CalculatedValue(
        "X_bound", "what no schedule can beat", "1 / t_least", (least,), 1.0 / least.value, "requests/s"
    )
    if figures.measured is None:
        return (bound,)
    capacity = figures.measured.capacity
    simulated = CalculatedValue(
        "X",
        f"largest load that one replica carries; {capacity.limiting_detail}",
        "simulation: largest rate at which every objective holds, by bisection to 2 %",
        (bound.as_input(),),
        capacity.requests_per_second,
        "requests/s",
    )
    return (bound, simulated)


def _fleet_values(figures: SimulatedFigures) -> tuple[CalculatedValue, ...]:
    chosen = figures.chosen
    rate = Quantity("R", figures.requests_per_second, "requests/s", "arrivals at peak")
    values: list[CalculatedValue] = []
    if figures.measured is not None:
        capacity = Quantity("X", figures.measured.capacity.requests_per_second, "requests/s", "load of one replica")
        values.append(
            CalculatedValue(
                "R/X", "replicas before simulation", "R / X", (rate, capacity), rate.value / capacity.value, "replicas"
            )
        )
    active = CalculatedValue(
        "N",
        "active replicas",
        "simulation: fewest replicas behind the router that hold every objective",
        (rate,),
        float(chosen.fleet.active_replicas),
        "replicas",
    )
    spare = Quantity("spare", float(chosen.fleet.spare_replicas), "replicas", "failures to survive")
    total = CalculatedValue(
        "N_total",
        "replicas with spares",
        "N + spare",
        (active.as_input(), spare),
        float(chosen.fleet.replicas),
        "replicas",
    )
    return (*values, active, total)


def _latency_values(performance: Performance) -> tuple[CalculatedValue, ...]:
    requests = Quantity("n", float(performance.simulated_requests), "requests", "simulated requests")
    return tuple(
        CalculatedValue(
            f"P{value.percentile:g}_{latency.metric.value}",
            f"P{value.percentile:g} of {latency.metric.value.replace('_', ' ')}",
            "simulation: percentile over requests, warm-up left out",
            (requests,),
            value.value_seconds,
            "s",
        )
        for latency in performance.latencies
        if not latency.traffic_class_id
        for value in latency.percentiles
        if value.percentile == 95.0
    )


def _cost_values(figures: SimulatedFigures) -> tuple[CalculatedValue, ...]:
    fleet, replica = figures.chosen.fleet, figures.chosen.replica
    replicas = Quantity("N_total", float(fleet.replicas), "replicas", "replicas with spares")
    gpus = Quantity("g", float(replica.gpus), "GPUs", "GPUs of one replica")
    price = Quantity("p", replica.accelerator.cost_usd_per_gpu_hour, "USD/h", "price of a GPU and hour")
    hourly = CalculatedValue(
        "cost", "cost an hour", "N_total x g x p", (replicas, gpus, price), fleet.cost_usd_per_hour, "USD/h"
    )
    per_million = CalculatedValue(
        "cost_tokens",
        "cost of a million output tokens at peak",
        "cost / output tokens an hour x 1e6",
        (hourly.as_input(),),
        fleet.cost_usd_per_million_output_tokens,
        "USD",
    )
    return (hourly, per_million)
