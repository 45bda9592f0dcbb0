"""`inferplan predict`: percentiles of a given configuration under a given load."""

from __future__ import annotations

from pathlib import Path

import click

from inferplan.cli.configuration_options import COUNT, ReplicaOptions, replica_options
from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.curves import latency_curve
from inferplan.cli.failures import explained
from inferplan.cli.options import calibration_option, format_option, server_option, settings_or_exit
from inferplan.cli.output import console, print_json
from inferplan.cli.performance_text import print_performance
from inferplan.cli.plan_text import print_calibration_use, print_warnings
from inferplan.cli.plots import plot_latency_curve, plot_path_option
from inferplan.cli.traffic_options import TrafficOptions, traffic_options
from inferplan.v1 import plan_pb2, sizing_service_pb2, sizing_service_pb2_grpc


@click.command("predict")
@replica_options
@traffic_options
@click.option("--replicas", type=COUNT, default=1, show_default=True, help="Replicas behind the router.")
@click.option("--num-requests", type=COUNT, help="Requests to play; default: what the percentiles need.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of every random draw; default: from the input.")
@calibration_option
@plot_path_option("latency percentiles against rate, from a tenth to one and a half times the given rate")
@server_option
@format_option("text", "json")
def predict_command(
    replica: ReplicaOptions,
    traffic: TrafficOptions,
    replicas: int,
    num_requests: int | None,
    seed: int,
    calibration: str | None,
    plot: Path | None,
    server: str | None,
    output_format: str,
) -> None:
    """Play the engine's scheduler under a load and print every percentile."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = sizing_service_pb2.PredictPerformanceRequest(
            model=replica.model_source(),
            accelerator=replica.accelerator,
            parallelism=replica.parallelism(),
            engine=replica.engine_settings(),
            workload=traffic.workload(),
            replicas=replicas,
            simulation=plan_pb2.SimulationOptions(seed=seed),
            requests=num_requests,
            calibration=calibration or "",
        )
        stub = sizing_service_pb2_grpc.SizingServiceStub(channel)
        prediction = stub.PredictPerformance(request, timeout=CALL_SECONDS)
        if plot is not None:
            plot_latency_curve(latency_curve(channel, request), (), plot)
    if output_format == "json":
        print_json(prediction)
        return
    print_performance(prediction.performance, console())
    print_warnings(prediction.warnings, console())
    print_calibration_use(prediction.calibration_use, console())
    console().print(f"seed {prediction.seed}")
