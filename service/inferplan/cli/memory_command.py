"""`inferplan memory`: where a GPU's memory goes, and how much context fits."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inferplan.cli.configuration_options import ReplicaOptions, replica_options
from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import EXIT_NOTHING_FITS, explained
from inferplan.cli.options import format_option, server_option, settings_or_exit
from inferplan.cli.output import console, print_json
from inferplan.cli.plan_text import print_warnings
from inferplan.v1 import memory_pb2, sizing_service_pb2, sizing_service_pb2_grpc

_GIB = 2**30


@click.command("memory")
@replica_options
@server_option
@format_option("text", "json")
def memory_command(replica: ReplicaOptions, server: str | None, output_format: str) -> None:
    """Say where a GPU's memory goes and how much context fits.

    Exits with 3 if the configuration does not fit; the answer says by how much and what would.
    """
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = sizing_service_pb2.EstimateMemoryRequest(
            model=replica.model_source(),
            accelerator=replica.accelerator,
            parallelism=replica.parallelism(),
            engine=replica.engine_settings(),
        )
        estimate = sizing_service_pb2_grpc.SizingServiceStub(channel).EstimateMemory(request, timeout=CALL_SECONDS)
    if output_format == "json":
        print_json(estimate)
    else:
        print_memory(estimate, console())
    if not estimate.fits:
        sys.exit(EXIT_NOTHING_FITS)


def print_memory(estimate: memory_pb2.MemoryEstimate, console: Console) -> None:
    """The estimate as a table, then what was chosen, what is missing and what the reader should know."""
    configuration = estimate.configuration
    console.print(
        f"[bold]{configuration.accelerator.removeprefix('accelerators/')}[/], "
        f"{configuration.engine.removeprefix('engines/')} {configuration.engine_version}, "
        f"{configuration.gpus_per_replica} GPUs a replica, utilization {configuration.gpu_memory_utilization:g}"
    )
    table = Table("a GPU", "GiB", title_justify="left")
    table.columns[1].justify = "right"
    for name, value in _components(estimate):
        table.add_row(name, f"{value / _GIB:.2f}")
    console.print(table)
    console.print(
        f"{estimate.kv_cache_tokens:,} KV tokens a replica in {estimate.kv_blocks:,} blocks of "
        f"{estimate.kv_block_tokens}; {estimate.kv_bytes_per_token:,.0f} B a token and GPU"
    )
    console.print(
        f"context {estimate.max_model_len_tokens:,} tokens: {estimate.concurrency_at_max_model_len:.2f} sequences at "
        f"once; the longest that fits has {estimate.largest_context_tokens:,} tokens"
    )
    console.print("[bold green]fits[/]" if estimate.fits else "[bold red]does not fit[/]")
    for rule in estimate.broken_rules:
        console.print(f"  {rule.rule} ({escape(rule.subject)}): {escape(rule.description)}")
    print_warnings(estimate.warnings, console)


def _components(estimate: memory_pb2.MemoryEstimate) -> list[tuple[str, float]]:
    graphs = "inside the budget" if estimate.cuda_graphs_inside_budget else "outside the budget"
    return [
        ("visible", estimate.visible_bytes),
        ("budget", estimate.budget_bytes),
        ("weights", estimate.weights_bytes),
        ("activations", estimate.activation_bytes),
        ("CUDA context and communication", estimate.non_torch_bytes),
        (f"CUDA graphs ({graphs})", estimate.cuda_graph_bytes),
        ("left for the KV cache", estimate.kv_cache_bytes),
    ]
