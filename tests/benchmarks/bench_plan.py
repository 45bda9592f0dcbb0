"""CPU time of whole SIMULATED plans: `make bench`. Figures are printed, none is asserted.

Beside the seconds stands their ratio to a fixed piece of work on the same machine, played right before: the kernel on
the worked example's replica. The ratio is what to compare between commits.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable

from inferplan.planning.simulated_plan import plan_by_simulation
from inferplan.resources.plan import Hardware, ModelSource, PlanInput
from inferplan.simulation import Fleet, compile_kernels, simulate_fleet
from inferplan.sizing.candidates import enumerate_candidates
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.traffic_requests import open_loop_requests
from support.searches import CHATBOT_OBJECTIVES, catalog, question, workload

BASELINE_REQUESTS = 200_000
RUNS = 3

FOUR_KINDS = ("h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-80gb", "l40s-48gb")
WORKED_EXAMPLE = PlanInput(
    method=None,
    model=ModelSource(model="llama-2-7b", headline_parameters=7e9),
    hardware=Hardware(accelerators=FOUR_KINDS, failures_to_survive=1),
    workload=workload(),
    objectives=CHATBOT_OBJECTIVES,
)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def best_cpu_seconds(work: Callable[[], object]) -> float:
    work()
    taken = []
    for _ in range(RUNS):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return min(taken)


def test_whole_plans() -> None:
    compile_kernels()
    replica = enumerate_candidates(question()).fitting[0].model
    requests = open_loop_requests(workload(), 1, BASELINE_REQUESTS)
    baseline = best_cpu_seconds(lambda: simulate_fleet(replica.coefficients, replica.engine, requests, Fleet(6)))
    say(f"\nBaseline: {BASELINE_REQUESTS:,} requests on six replicas of the worked example: {baseline:.3f} s of CPU")
    hardware = WORKED_EXAMPLE.hardware
    cases = {
        "four kinds of accelerator": WORKED_EXAMPLE,
        "H100 alone, every parallelism": dataclasses.replace(
            WORKED_EXAMPLE, hardware=dataclasses.replace(hardware, accelerators=FOUR_KINDS[:1])
        ),
        "H100 alone, tensor parallel 1": dataclasses.replace(
            WORKED_EXAMPLE,
            hardware=dataclasses.replace(
                hardware, accelerators=FOUR_KINDS[:1], parallelism=ParallelismChoice(tensor_parallel=1)
            ),
        ),
    }
    for name, plan_input in cases.items():
        content = plan_by_simulation(catalog(), plan_input)
        seconds = best_cpu_seconds(lambda plan_input=plan_input: plan_by_simulation(catalog(), plan_input))  # type: ignore[misc]
        say(
            f"  plan of the worked example, {name}: {seconds:.3f} s of CPU, {seconds / baseline:.1f} baselines; "
            f"{content.fleet.active_replicas} + {content.fleet.spare_replicas} x {content.configuration.accelerator}, "
            f"{len(content.alternatives)} alternatives"
        )
