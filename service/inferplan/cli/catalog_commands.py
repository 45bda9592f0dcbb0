"""`inferplan models` and `inferplan accelerators`: what the catalogue knows."""

from __future__ import annotations

import click
from rich.markup import escape
from rich.table import Table

from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import format_option, server_option, settings_or_exit
from inferplan.cli.output import FORMATS, console, print_json, print_json_list, print_yaml
from inferplan.v1 import accelerator_pb2, catalog_service_pb2, catalog_service_pb2_grpc, model_pb2

_PAGE = 1000
_GIB = 2**30


@click.group("models")
def models_group() -> None:
    """Models that the catalogue knows."""


@models_group.command("list")
@server_option
@format_option("text", "json")
def models_list(server: str | None, output_format: str) -> None:
    """List models by name."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = catalog_service_pb2.ListModelsRequest(page_size=_PAGE)
        models = catalog_service_pb2_grpc.CatalogServiceStub(channel).ListModels(request, timeout=CALL_SECONDS).models
    if output_format == "json":
        print_json_list(list(models))
        return
    table = Table("id", "name", "parameters", "active", "layers", "weights", "context")
    for model in models:
        architecture = model.architecture
        table.add_row(
            model.name.removeprefix("models/"),
            model.display_name,
            f"{model.parameters / 1e9:.2f}B",
            f"{model.active_parameters / 1e9:.2f}B",
            str(architecture.layers),
            _weights(architecture),
            f"{architecture.maximum_context_tokens:,}",
        )
    console().print(table)


@models_group.command("show")
@click.argument("name")
@server_option
@format_option(*FORMATS)
def models_show(name: str, server: str | None, output_format: str) -> None:
    """Show one model, by id or alias."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = catalog_service_pb2.GetModelRequest(name=f"models/{name.removeprefix('models/')}")
        model = catalog_service_pb2_grpc.CatalogServiceStub(channel).GetModel(request, timeout=CALL_SECONDS)
    _print_entry(model, output_format)


@click.group("accelerators")
def accelerators_group() -> None:
    """Accelerators that the catalogue knows."""


@accelerators_group.command("list")
@server_option
@format_option("text", "json")
def accelerators_list(server: str | None, output_format: str) -> None:
    """List accelerators by name."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = catalog_service_pb2.ListAcceleratorsRequest(page_size=_PAGE)
        stub = catalog_service_pb2_grpc.CatalogServiceStub(channel)
        accelerators = stub.ListAccelerators(request, timeout=CALL_SECONDS).accelerators
    if output_format == "json":
        print_json_list(list(accelerators))
        return
    table = Table("id", "name", "visible GiB", "TB/s", "16-bit TFLOPS", "GPUs a node", "$ an hour")
    for accelerator in accelerators:
        table.add_row(
            accelerator.name.removeprefix("accelerators/"),
            accelerator.display_name,
            f"{accelerator.visible_memory_bytes / _GIB:.2f}",
            f"{accelerator.memory_bandwidth_bytes_per_second / 1e12:.3g}",
            f"{_sixteen_bit_peak(accelerator) / 1e12:.4g}",
            str(accelerator.gpus_per_node),
            f"{accelerator.cost_usd_per_gpu_hour:.2f}",
        )
    console().print(table)


@accelerators_group.command("show")
@click.argument("name")
@server_option
@format_option(*FORMATS)
def accelerators_show(name: str, server: str | None, output_format: str) -> None:
    """Show one accelerator, by id or alias, with the source of every figure."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = catalog_service_pb2.GetAcceleratorRequest(name=f"accelerators/{name.removeprefix('accelerators/')}")
        stub = catalog_service_pb2_grpc.CatalogServiceStub(channel)
        accelerator = stub.GetAccelerator(request, timeout=CALL_SECONDS)
    _print_entry(accelerator, output_format)


def _print_entry(entry: model_pb2.Model | accelerator_pb2.Accelerator, output_format: str) -> None:
    if output_format == "json":
        print_json(entry)
    else:
        if output_format == "text":
            console().print(f"[bold]{escape(entry.display_name)}[/]")
        print_yaml(entry)


def _weights(architecture: model_pb2.ModelArchitecture) -> str:
    if not architecture.HasField("quantization"):
        return model_pb2.Precision.Name(architecture.checkpoint_precision).removeprefix("PRECISION_").lower()
    quantization = architecture.quantization
    return model_pb2.WeightQuantization.Method.Name(quantization.method).removeprefix("METHOD_").lower()


def _sixteen_bit_peak(accelerator: accelerator_pb2.Accelerator) -> float:
    peaks = {peak.precision: peak.flops_per_second for peak in accelerator.dense_peaks}
    return peaks.get(model_pb2.PRECISION_FLOAT16, 0.0)
