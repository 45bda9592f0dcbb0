"""`inferplan replay`: play a stored plan over time, with an autoscaler following the load."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from inferplan.cli.configuration_options import COUNT
from inferplan.cli.connection import connect
from inferplan.cli.failures import explained
from inferplan.cli.figures import duration_text
from inferplan.cli.options import format_option, server_option, settings_or_exit
from inferplan.cli.output import console, print_json
from inferplan.cli.performance_text import print_performance, print_verdicts
from inferplan.cli.plan_commands import full_plan_name
from inferplan.cli.plan_text import print_warnings
from inferplan.cli.plots import plot_path_option, plot_replay
from inferplan.cli.simulate_command import follow_simulation
from inferplan.cli.trace_file import fill_trace
from inferplan.cli.workload_file import parse_duration_seconds, read_message_file
from inferplan.errors import InvalidInputError
from inferplan.v1 import autoscaling_pb2, plan_service_pb2, plan_service_pb2_grpc

REPLAY_SECONDS = 1800.0
"""A search plays a day of traffic up to twenty times."""

SHOWN_EVENTS = 20
_SOURCES = {
    "plan": plan_service_pb2.POLICY_SOURCE_PLAN,
    "forecast": plan_service_pb2.POLICY_SOURCE_FORECAST,
    "constant": plan_service_pb2.POLICY_SOURCE_UNSPECIFIED,
}


@click.command("replay")
@click.argument("plan_name", metavar="PLAN")
@click.option(
    "--trace",
    default="",
    metavar="FILE|KIND:FIELD=VALUE,…",
    help="A CSV of arrivals, or constant:rate=50, step:before=20,after=60,at=600, diurnal:peak=100,trough=20, "
    "spike:base=20,peak=80,at=1200,length=300 (each with hours=…); default: an hour of the plan's own load.",
)
@click.option(
    "--policy",
    default="plan",
    show_default=True,
    metavar="plan|forecast|constant|FILE",
    help="The plan's policy; the same with floor, warm count and maximum from the trace; no scaling; or a YAML file.",
)
@click.option("--target", default="", metavar="NAME", help="Whose algorithm decides, such as hpa, keda, knative.")
@click.option("--replicas", type=COUNT, help="Replicas at the start; with --policy constant, all the time.")
@click.option("--duration", metavar="TIME", help="Play only so much of it, such as 6h.")
@click.option("--seed", type=click.IntRange(0), help="Seed of every random draw; default: the plan's.")
@click.option("--suggest", is_flag=True, help="Search for the policy with the least GPU-hours that holds.")
@plot_path_option("load, replicas and P95 TTFT over time")
@server_option
@format_option("text", "json")
def replay_command(
    plan_name: str,
    trace: str,
    policy: str,
    target: str,
    replicas: int | None,
    duration: str | None,
    seed: int | None,
    suggest: bool,
    plot: Path | None,
    server: str | None,
    output_format: str,
) -> None:
    """Play a stored plan over time, scaled as a target's autoscaler would: `chatbot/1`, or `chatbot` for its newest."""
    settings = settings_or_exit()
    with explained():
        request = plan_service_pb2.SimulatePlanRequest(
            name=full_plan_name(plan_name), target=target, replicas=replicas, seed=seed, suggest=suggest
        )
        if trace:
            fill_trace(trace, request)
        _fill_policy(policy, request)
        if duration is not None:
            request.duration.FromNanoseconds(round(_seconds(duration) * 1e9))
        elif not trace:
            request.duration.FromSeconds(3600)
        with connect(server, settings) as channel:
            stub = plan_service_pb2_grpc.PlanServiceStub(channel)
            report = follow_simulation(stub.SimulatePlan(request, timeout=REPLAY_SECONDS))
        if plot is not None:
            plot_replay(report, plot)
    if output_format == "json":
        print_json(report)
        return
    _print(report, console())


def _fill_policy(text: str, request: plan_service_pb2.SimulatePlanRequest) -> None:
    if text in _SOURCES:
        request.policy_source = _SOURCES[text]
        return
    policy = autoscaling_pb2.AutoscalingPolicy()
    read_message_file(Path(text), policy)
    request.policy.CopyFrom(policy)


def _seconds(text: str) -> float:
    seconds = parse_duration_seconds(text)
    if not seconds:
        raise InvalidInputError.single("--duration", f"{text!r} is no time; legal are 90s, 30 min, 6h and the like")
    return seconds


def _print(report: plan_service_pb2.SimulationReport, out: Console) -> None:
    print_performance(report.performance, out)
    print_verdicts(report.verdicts, out)
    if report.HasField("attainment"):
        out.print(f"{report.attainment:.2%} of {report.performance.simulated_requests:,} requests met every objective")
    if report.HasField("worst_interval"):
        worst = report.worst_interval
        out.print(
            f"worst minute: P95 TTFT {duration_text(worst.ttft_p95)} at {_clock(worst.start.ToSeconds())}, with "
            f"{worst.requests_per_second:.1f} requests/s on {worst.ready_replicas} replicas "
            f"({worst.starting_replicas} starting)"
        )
    _print_hours(report, out)
    for event in report.events[:SHOWN_EVENTS]:
        out.print(f"  {_clock(event.time.ToSeconds())}  {event.replicas_before} -> {event.replicas_after}")
    if len(report.events) > SHOWN_EVENTS:
        out.print(f"  ... {report.scale_events - SHOWN_EVENTS} more; --format json has them")
    if report.HasField("suggestion"):
        _print_suggestion(report.suggestion, out)
    print_warnings(report.warnings, out)


def _print_hours(report: plan_service_pb2.SimulationReport, out: Console) -> None:
    saved = 1.0 - report.gpu_hours / report.static_peak_gpu_hours
    out.print(
        f"[bold]{report.gpu_hours:.1f} GPU-hours[/], against {report.static_peak_gpu_hours:.1f} of "
        f"{report.static_peak_replicas} replicas all the time: {abs(saved):.1%} {'less' if saved >= 0 else 'more'}"
    )
    out.print(
        f"{report.scale_events} changes of the number of replicas, {report.flaps} of them undone within their own "
        f"cooldown; at most {report.most_replicas} replicas"
    )


def _print_suggestion(found: plan_service_pb2.PolicySuggestion, out: Console) -> None:
    policy = found.policy
    out.print(
        f"[bold]of {found.policies_played} policies that were played, the cheapest that holds[/] takes "
        f"{found.gpu_hours:.1f} GPU-hours:"
    )
    bounds = f"{policy.minimum_replicas} to {policy.maximum_replicas} replicas"
    out.print(f"  {bounds}, {policy.warm_replicas} warm beyond the floor")
    for signal in policy.signals:
        kind = autoscaling_pb2.AutoscalingSignal.Kind.Name(signal.kind).removeprefix("KIND_").lower()
        out.print(f"  {escape(kind)} at {signal.target:.1f}")


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"
