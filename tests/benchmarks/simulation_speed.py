"""Speed of the simulator: `python tests/benchmarks/simulation_speed.py [--day]`, with the package importable.

Prints figures and asserts nothing: CPU seconds of one thread, best of some runs, kernel compiled before.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable

import numpy as np

from inferplan.simulation import (
    ConstantLength,
    EngineParameters,
    Fleet,
    IndependentLengths,
    LatencyReport,
    LognormalLength,
    Metric,
    Requests,
    Router,
    SimulationOutcome,
    StepTimeCoefficients,
    TrafficClass,
    VaryingArrivals,
    assess_saturation,
    compile_kernels,
    draw_requests,
    poisson_arrivals,
    simulate_closed_loop,
    simulate_fleet,
)
from inferplan.simulation.traffic import draw_closed_loop_requests

BANDWIDTH = 3.35e12 * 0.95  # bytes a second, H100 SXM, times the share that a trial of the model reached
FLOPS = 989e12 * 0.6
LLAMA_2_7B_ON_H100 = StepTimeCoefficients(
    dense_weight_seconds=13.48e9 / BANDWIDTH,
    compute_seconds_per_token=2 * 6.74e9 / FLOPS,
    kv_seconds_per_context_token=524_288 / BANDWIDTH,
    prefill_attention_seconds_per_pair=4 * 32 * 32 * 128 / (989e12 * 0.8),
    elementwise_seconds_per_token=32 * 4096 * 2 * 5.3 / 3.35e12,
    host_seconds_per_step=1.1e-3 + 32 * 41e-6,
    host_seconds_per_sequence=50e-6,
)
ENGINE = EngineParameters(maximum_sequences=256, maximum_batched_tokens=8192, kv_blocks=115_056 // 16)
LENGTHS = IndependentLengths(ConstantLength(500), ConstantLength(200))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def best_cpu_seconds(function: Callable[[], SimulationOutcome], runs: int = 3) -> tuple[float, SimulationOutcome]:
    best = math.inf
    for _ in range(runs):
        before = time.process_time()
        outcome = function()
        best = min(best, time.process_time() - before)
    return best, outcome


def play_fleet(requests: Requests, replicas: int, router: Router, runs: int = 2) -> tuple[float, SimulationOutcome]:
    fleet = Fleet(replicas, router)
    return best_cpu_seconds(lambda: simulate_fleet(LLAMA_2_7B_ON_H100, ENGINE, requests, fleet), runs)


def poisson(rate_per_second: float, count: int) -> Requests:
    return draw_requests([TrafficClass(LENGTHS, poisson_arrivals(rate_per_second))], 1, request_count=count)


def steps_and_requests() -> None:
    say("One million requests of 500/200 tokens at 100 a second, Llama-2-7B on H100s:")
    requests = poisson(100.0, 1_000_000)
    for replicas in (6, 8):
        for router in Router:
            seconds, outcome = play_fleet(requests, replicas, router, runs=3)
            ttft = LatencyReport(outcome).percentile(Metric.TTFT, 95)
            say(
                f"  {replicas} replicas, {router.value:17s}: {outcome.steps / seconds / 1e6:5.1f} million steps/s, "
                f"{requests.count / seconds / 1e6:4.1f} million requests/s, P95 TTFT {ttft * 1e3:.0f} ms"
            )
    closed = draw_closed_loop_requests([TrafficClass(LENGTHS)], 1, 1_000_000)
    seconds, outcome = best_cpu_seconds(lambda: simulate_closed_loop(LLAMA_2_7B_ON_H100, ENGINE, closed, 64))
    say(
        f"  closed loop, 64 clients     : {outcome.steps / seconds / 1e6:5.1f} million steps/s, "
        f"{closed.count / seconds / 1e6:4.1f} million requests/s"
    )
    short = poisson(15.0, 12_000)
    seconds, outcome = play_fleet(short, 1, Router.ROUND_ROBIN, runs=10)
    say(f"  a small run, 12,000 requests on one replica: {seconds * 1e3:.1f} ms, {outcome.steps} steps")


def fit(sizes: list[int], seconds: list[float]) -> float:
    """Exponent b of seconds = a size^b."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def growth() -> None:
    sizes = [125_000, 250_000, 500_000, 1_000_000, 2_000_000]
    seconds = [play_fleet(poisson(100.0, count), 8, Router.LEAST_OUTSTANDING)[0] for count in sizes]
    say(f"Cost against requests (8 replicas): exponent {fit(sizes, seconds):.2f}; 1.00 is linear")
    say("  " + ", ".join(f"{size:,}: {took:.3f} s" for size, took in zip(sizes, seconds, strict=True)))
    fleets = [8, 16, 32, 64, 128, 256]
    for router in Router:
        say(f"Cost of a request against replicas, at 14 requests/s for each, {router.value}:")
        costs = []
        for replicas in fleets:
            requests = poisson(14.0 * replicas, 25_000 * replicas)
            costs.append(play_fleet(requests, replicas, router)[0] / requests.count * 1e9)
        say("  " + ", ".join(f"{replicas}: {cost:.0f} ns" for replicas, cost in zip(fleets, costs, strict=True)))
    requests = poisson(100.0, 400_000)
    seconds = [play_fleet(requests, replicas, Router.LEAST_OUTSTANDING)[0] for replicas in fleets]
    say(f"Cost against replicas, 100 requests/s for all, least outstanding: exponent {fit(fleets, seconds):.2f}")
    say("  " + ", ".join(f"{size}: {took:.3f} s" for size, took in zip(fleets, seconds, strict=True)))


def day() -> None:
    say("A day at 100 requests/s in the mean (30 at night, 170 at noon), log-normal lengths, 12 replicas:")
    before = time.process_time()
    hours = np.arange(96) / 4
    rates = tuple(float(rate) for rate in 100 - 70 * np.cos((hours - 1) / 24 * 2 * math.pi))
    lengths = IndependentLengths(LognormalLength(500, 0.8, 4000), LognormalLength(200, 0.6, 2000))
    traffic = TrafficClass(lengths, VaryingArrivals(900.0, rates))
    requests = draw_requests([traffic], 1, duration_seconds=86_400.0)
    drawn = time.process_time()
    outcome = simulate_fleet(LLAMA_2_7B_ON_H100, ENGINE, requests, Fleet(12))
    played = time.process_time()
    report = LatencyReport(outcome)
    texts = [
        f"P95 {metric.value} {report.percentile(metric, 95) * 1e3:.0f} ms "
        f"(+- {(report.interval(metric, 95).upper - report.interval(metric, 95).lower) / 2 * 1e3:.1f})"
        for metric in Metric
    ]
    saturation = assess_saturation(outcome)
    ended = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(
        f"  {requests.count:,} requests, {outcome.steps:,} steps: drawn in {drawn - before:.1f} s, played in "
        f"{played - drawn:.1f} s, five percentiles with intervals in {ended - played:.1f} s; peak memory {peak:.2f} GiB"
    )
    say("  " + ", ".join(texts) + f"; saturated: {saturation.saturated if saturation else None}")


def main() -> None:
    before = time.process_time()
    compile_kernels()
    say(f"Kernel ready in {time.process_time() - before:.1f} s (compiled, or loaded from the cache)")
    if "--day" in sys.argv:
        day()
        return
    steps_and_requests()
    growth()
    say("Run again with --day for a day's trace in a process of its own (peak memory).")


if __name__ == "__main__":
    main()
