"""The TEXTBOOK method: six steps of closed arithmetic.

It reproduces what published sizing exercises do, mean values and an empty queue included, so that a platform can see
what such an exercise would buy. What it leaves out is computed by `textbook_warnings`, from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.sizing.explanation import CalculatedValue, CalculationStep, Quantity
from inferplan.sizing.fleet import replicas_for
from inferplan.sizing.performance import ObjectiveVerdict, Outcome
from inferplan.sizing.workload import LatencyMetric, Objective


@dataclass(frozen=True, slots=True)
class TextbookAssumptions:
    """What the exercise takes for granted. The defaults are those of the worked example in docs/textbook.md."""

    concurrent_sequences: int = 50
    prefill_compute_efficiency: float = 0.5
    model_load_seconds: float = 90.0
    queue_threshold_ratio: float = 0.4
    scale_down_cooldown_seconds: float = 300.0
    maximum_replicas_factor: float = 4.0


@dataclass(frozen=True, slots=True)
class TextbookQuestion:
    """The numbers that the six steps need.

    Bandwidth and FLOPS are those of a whole replica: one GPU's peak times the GPUs that share the layers.
    """

    parameters: float
    bytes_per_parameter: float
    input_tokens: float
    output_tokens: float
    requests_per_second: float
    memory_bandwidth_bytes_per_second: float
    peak_flops_per_second: float
    assumptions: TextbookAssumptions
    spare_replicas: int = 1

    @property
    def weight_bytes(self) -> float:
        """Parameters times the bytes of one."""
        return self.parameters * self.bytes_per_parameter


@dataclass(frozen=True, slots=True)
class TextbookAnswer:
    """The steps as data, and the values that a plan is built from."""

    steps: tuple[CalculationStep, ...]
    decode_step_seconds: float
    decode_seconds: float
    prefill_seconds: float
    ttft_seconds: float
    total_seconds: float
    replica_output_tokens_per_second: float
    replica_requests_per_second: float
    active_replicas: int
    spare_replicas: int
    queue_threshold_requests: int
    maximum_replicas: int


def solve_textbook(question: TextbookQuestion) -> TextbookAnswer:
    """Walk the six steps. Every value is returned with its symbol, formula, inputs and unit."""
    decode = _decode_step(question)
    prefill = _prefill_step(question)
    throughput = _throughput_step(question, decode)
    instances = _instances_step(question, throughput)
    latency = _latency_step(decode, prefill)
    autoscaling = _autoscaling_step(question, instances)
    values = {
        value.symbol: value.value
        for step in (decode, prefill, throughput, instances, latency, autoscaling)
        for value in step.values
    }
    return TextbookAnswer(
        steps=(decode, prefill, throughput, instances, latency, autoscaling),
        decode_step_seconds=values["t_step"],
        decode_seconds=values["t_decode"],
        prefill_seconds=values["t_prefill"],
        ttft_seconds=values["TTFT"],
        total_seconds=values["t_total"],
        replica_output_tokens_per_second=values["X_tokens"],
        replica_requests_per_second=values["X_requests"],
        active_replicas=int(values["N"]),
        spare_replicas=question.spare_replicas,
        queue_threshold_requests=int(values["queue_threshold"]),
        maximum_replicas=int(values["N_max"]),
    )


def textbook_verdicts(answer: TextbookAnswer, objectives: tuple[Objective, ...]) -> tuple[ObjectiveVerdict, ...]:
    """How the textbook's means stand to the objectives; a mean never proves a percentile, and the outcome says so."""
    means = textbook_mean_seconds(answer)
    return tuple(
        ObjectiveVerdict(
            objective,
            means[objective.metric],
            Outcome.MEAN_ONLY_HOLDS if means[objective.metric] <= objective.maximum_seconds else Outcome.MEAN_FAILS,
        )
        for objective in objectives
    )


def textbook_mean_seconds(answer: TextbookAnswer) -> dict[LatencyMetric, float]:
    """The means that the method predicts, by latency. The queue is taken as empty."""
    return {
        LatencyMetric.TTFT: answer.ttft_seconds,
        LatencyMetric.TPOT: answer.decode_step_seconds,
        LatencyMetric.INTER_TOKEN: answer.decode_step_seconds,
        LatencyMetric.END_TO_END: answer.total_seconds,
        LatencyMetric.QUEUE_WAIT: 0.0,
    }


def _decode_step(question: TextbookQuestion) -> CalculationStep:
    parameters = Quantity("P", question.parameters, "parameters", "parameters of the model")
    width = Quantity("w", question.bytes_per_parameter, "B", "bytes of one weight")
    bandwidth = Quantity("B", question.memory_bandwidth_bytes_per_second, "B/s", "memory bandwidth of a replica")
    output = Quantity("O", question.output_tokens, "tokens", "output tokens of a request")
    weights = CalculatedValue("W", "weights", "P x w", (parameters, width), question.weight_bytes, "B")
    step_seconds = weights.value / bandwidth.value
    step = CalculatedValue("t_step", "one decode step", "W / B", (weights.as_input(), bandwidth), step_seconds, "s")
    decode = CalculatedValue(
        "t_decode", "decoding a whole output", "t_step x O", (step.as_input(), output), step_seconds * output.value, "s"
    )
    prompt = Quantity("S", question.input_tokens, "tokens", "prompt tokens of a request")
    growth = CalculatedValue(
        "K_end",
        "KV cache entries at the end, from S at the start",
        "S + O",
        (prompt, output),
        prompt.value + output.value,
        "tokens",
    )
    return CalculationStep(1, "Decode time of one request", (weights, step, decode, growth))


def _prefill_step(question: TextbookQuestion) -> CalculationStep:
    parameters = Quantity("P", question.parameters, "parameters", "parameters of the model")
    prompt = Quantity("S", question.input_tokens, "tokens", "prompt tokens of a request")
    peak = Quantity("F", question.peak_flops_per_second, "FLOP/s", "dense peak of a replica")
    efficiency = Quantity(
        "e", question.assumptions.prefill_compute_efficiency, "", "share of the peak that prefill reaches"
    )
    work = CalculatedValue(
        "C_prefill",
        "operations of a prompt",
        "2 x P x S",
        (parameters, prompt),
        2.0 * parameters.value * prompt.value,
        "FLOP",
    )
    seconds = work.value / (efficiency.value * peak.value)
    prefill = CalculatedValue(
        "t_prefill", "prefill", "C_prefill / (e x F)", (work.as_input(), efficiency, peak), seconds, "s"
    )
    return CalculationStep(2, "Prefill time of one request", (work, prefill))


def _throughput_step(question: TextbookQuestion, decode: CalculationStep) -> CalculationStep:
    step_seconds = decode.values[1]
    sequences = Quantity("c", question.assumptions.concurrent_sequences, "sequences", "sequences decoded at once")
    output = Quantity("O", question.output_tokens, "tokens", "output tokens of a request")
    tokens = CalculatedValue(
        "X_tokens",
        "tokens of one replica",
        "c / t_step",
        (sequences, step_seconds.as_input()),
        sequences.value / step_seconds.value,
        "tokens/s",
    )
    requests = CalculatedValue(
        "X_requests",
        "requests of one replica",
        "X_tokens / O",
        (tokens.as_input(), output),
        tokens.value / output.value,
        "requests/s",
    )
    return CalculationStep(3, "Throughput of one replica", (tokens, requests))


def _instances_step(question: TextbookQuestion, throughput: CalculationStep) -> CalculationStep:
    capacity = throughput.values[1]
    rate = Quantity("R", question.requests_per_second, "requests/s", "arrivals at peak")
    spare = Quantity("spare", question.spare_replicas, "replicas", "replicas beyond what the load needs")
    quotient = CalculatedValue(
        "R/X",
        "replicas before rounding",
        "R / X_requests",
        (rate, capacity.as_input()),
        rate.value / capacity.value,
        "replicas",
    )
    active = CalculatedValue(
        "N",
        "active replicas",
        "ceil(R / X_requests)",
        (quotient.as_input(),),
        replicas_for(rate.value, capacity.value),
        "replicas",
    )
    total = CalculatedValue(
        "N_total",
        "replicas with spares",
        "N + spare",
        (active.as_input(), spare),
        active.value + spare.value,
        "replicas",
    )
    return CalculationStep(4, "Number of replicas", (quotient, active, total))


def _latency_step(decode: CalculationStep, prefill: CalculationStep) -> CalculationStep:
    step_seconds, decode_seconds = decode.values[1], decode.values[2]
    prefill_seconds = prefill.values[1]
    queue = Quantity("t_queue", 0.0, "s", "queue wait, taken as 0")
    total = CalculatedValue(
        "t_total",
        "end-to-end latency",
        "t_queue + t_prefill + t_decode",
        (queue, prefill_seconds.as_input(), decode_seconds.as_input()),
        prefill_seconds.value + decode_seconds.value,
        "s",
    )
    first = CalculatedValue(
        "TTFT",
        "time to first token",
        "t_queue + t_prefill + t_step",
        (queue, prefill_seconds.as_input(), step_seconds.as_input()),
        prefill_seconds.value + step_seconds.value,
        "s",
    )
    return CalculationStep(5, "Latency check", (total, first))


def _autoscaling_step(question: TextbookQuestion, instances: CalculationStep) -> CalculationStep:
    assumptions = question.assumptions
    active = instances.values[1].as_input()
    sequences = Quantity("c", assumptions.concurrent_sequences, "sequences", "sequences decoded at once")
    ratio = Quantity("q", assumptions.queue_threshold_ratio, "", "queue threshold over concurrency")
    load = Quantity("t_load", assumptions.model_load_seconds, "s", "time to load the model")
    down = Quantity("t_down", assumptions.scale_down_cooldown_seconds, "s", "time of low load before a replica goes")
    factor = Quantity("m", assumptions.maximum_replicas_factor, "", "most replicas over active ones")
    spare = Quantity("spare", question.spare_replicas, "replicas", "replicas beyond what the load needs")
    threshold = max(1.0, float(int(ratio.value * sequences.value + 1e-9)))
    most = float(int(factor.value * active.value + 1e-9))
    return CalculationStep(
        6,
        "Autoscaling",
        (
            CalculatedValue(
                "queue_threshold",
                "waiting requests a replica that add one",
                "floor(q x c)",
                (ratio, sequences),
                threshold,
                "requests",
            ),
            CalculatedValue("t_up", "scale-up cooldown", "t_load", (load,), load.value, "s"),
            CalculatedValue("t_down", "scale-down cooldown", "t_down", (down,), down.value, "s"),
            CalculatedValue("warm", "warm replicas", "spare", (spare,), spare.value, "replicas"),
            CalculatedValue("N_min", "fewest replicas", "N", (active,), active.value, "replicas"),
            CalculatedValue("N_max", "most replicas", "floor(m x N)", (factor, active), most, "replicas"),
        ),
    )
