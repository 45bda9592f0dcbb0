"""A plan as a person reads it: the calculation, what it would buy, what the reader should know."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inferplan.cli.figures import duration_text, quantity_text
from inferplan.cli.performance_text import print_evidence, print_performance, print_verdicts
from inferplan.v1 import autoscaling_pb2, calibration_pb2, memory_pb2, plan_pb2

_GIB = 2**30


def print_plan(plan: plan_pb2.Plan, console: Console) -> None:
    """Everything of a plan that fits a terminal; the whole of it is in the JSON form."""
    _print_head(plan, console)
    for step in plan.steps:
        _print_step(step, console)
    if plan.performance.simulated_requests:
        print_performance(plan.performance, console)
    print_verdicts(plan.verdicts, console)
    print_calibration_use(plan.calibration_use, console)
    _print_fleet(plan, console)
    print_evidence(plan.evidence, console)
    _print_alternatives(plan, console)
    _print_policy(plan, console)
    print_warnings(plan.warnings, console)
    if plan.withdrawn_profiles:
        names = ", ".join(plan.withdrawn_profiles)
        console.print(f"[bold yellow]built on a withdrawn profile[/]: {names}; plan again without it")


def print_warnings(warnings: Iterable[memory_pb2.Warning], console: Console) -> None:
    """Each warning's code and sentence."""
    for warning in warnings:
        console.print(f"[bold yellow]{warning.code}[/] {escape(warning.message)}")


def print_calibration_use(use: calibration_pb2.CalibrationUse, console: Console) -> None:
    """Which coefficients an answer rests on, and its error bands; nothing for methods that use none."""
    if not use.calibration:
        return
    names = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end", "throughput": "throughput"}
    bands = ", ".join(f"{names.get(band.figure, band.figure)} ± {band.relative:.0%}" for band in use.error_bands)
    scope = f" ({escape(use.scope)})" if use.scope else ""
    console.print(f"coefficients: [bold]{escape(use.calibration)}[/]{scope}; 90 % error bands: {bands}")


def _print_head(plan: plan_pb2.Plan, console: Console) -> None:
    configuration = plan.configuration
    method = plan_pb2.PlanMethod.Name(plan.input.method).removeprefix("PLAN_METHOD_")
    model = plan.resolved.model.display_name
    console.print(
        f"[bold]{method} plan[/] for {escape(model)} on {configuration.accelerator.removeprefix('accelerators/')}"
    )
    engine = configuration.engine.removeprefix("engines/")
    console.print(
        f"{engine} {configuration.engine_version}, tensor parallel {configuration.parallelism.tensor_parallel}, "
        f"{_memory_sentence(plan.memory)}"
    )


def _memory_sentence(memory: memory_pb2.MemoryEstimate) -> str:
    return (
        f"weights {memory.weights_bytes / _GIB:.2f} GiB and KV cache {memory.kv_cache_bytes / _GIB:.2f} GiB a GPU, "
        f"{memory.kv_cache_tokens:,} tokens a replica"
    )


def _print_step(step: plan_pb2.CalculationStep, console: Console) -> None:
    table = Table(title=f"{step.number}. {step.title}", title_justify="left", title_style="bold", expand=False)
    table.add_column("symbol")
    table.add_column("what")
    table.add_column("formula")
    table.add_column("inputs", overflow="fold")
    table.add_column("value", justify="right")
    for value in step.values:
        inputs = ", ".join(f"{item.symbol} = {quantity_text(item.value, item.unit)}" for item in value.inputs)
        table.add_row(
            value.symbol, value.description, value.formula, inputs, f"[bold]{quantity_text(value.value, value.unit)}[/]"
        )
    console.print(table)


def _print_fleet(plan: plan_pb2.Plan, console: Console) -> None:
    fleet = plan.fleet
    capacity = plan.replica_capacity
    console.print(
        f"[bold]{fleet.active_replicas} active + {fleet.spare_replicas} spare replicas[/], {fleet.gpus} GPUs, "
        f"${fleet.cost_usd_per_hour:,.2f} an hour, ${fleet.cost_usd_per_million_output_tokens:,.3f} a million output "
        "tokens"
    )
    console.print(f"one replica: {capacity.requests_per_second:.1f} requests/s; {escape(capacity.limiting_detail)}")


def _print_alternatives(plan: plan_pb2.Plan, console: Console) -> None:
    if not plan.alternatives:
        return
    table = Table("accelerator", "tp", "seqs", "budget", "replicas", "$ an hour", "why not", title="Alternatives")
    table.title_justify = "left"
    for candidate in plan.alternatives:
        configuration, fleet = candidate.configuration, candidate.fleet
        table.add_row(
            configuration.accelerator.removeprefix("accelerators/"),
            str(configuration.parallelism.tensor_parallel),
            str(configuration.max_num_seqs),
            str(configuration.max_num_batched_tokens),
            f"{fleet.active_replicas} + {fleet.spare_replicas}" if candidate.feasible else "",
            f"{fleet.cost_usd_per_hour:,.2f}" if candidate.feasible else "",
            escape("; ".join(f"{rule.rule}: {rule.description}" for rule in candidate.broken_rules)),
        )
    console.print(table)


def _print_policy(plan: plan_pb2.Plan, console: Console) -> None:
    policy = plan.autoscaling_policy
    signals = ", ".join(f"{_signal_name(signal.kind)} {signal.target:.3g}" for signal in policy.signals)
    console.print(
        f"autoscaling: {policy.minimum_replicas} to {policy.maximum_replicas} replicas, {signals} a replica, up after "
        f"{duration_text(policy.scale_up.cooldown)}, down after {duration_text(policy.scale_down.cooldown)}, "
        f"{policy.warm_replicas} warm"
    )


def _signal_name(kind: autoscaling_pb2.AutoscalingSignal.Kind.ValueType) -> str:
    return autoscaling_pb2.AutoscalingSignal.Kind.Name(kind).removeprefix("KIND_").lower().replace("_", " ")
