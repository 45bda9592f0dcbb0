"""Catalogue entries on the wire."""

from __future__ import annotations

import dataclasses

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import Model
from inferplan.catalog.engine import Engine, EngineMemory, EngineRelease
from inferplan.catalog.loader import is_built_in
from inferplan.catalog.precision import Precision
from inferplan.rpc.convert.common import ACCELERATORS, ENGINES, MODELS
from inferplan.rpc.convert.mapping import to_message
from inferplan.sizing.parameters import count_parameters
from inferplan.v1 import accelerator_pb2, engine_pb2, model_pb2

_PRECISION_PREFIX = "PRECISION_"


def precision_to_wire(precision: Precision) -> model_pb2.Precision.ValueType:
    """The contract's value of a precision."""
    return model_pb2.Precision.Value(f"{_PRECISION_PREFIX}{precision.name}")


def model_to_wire(model: Model) -> model_pb2.Model:
    """A model with its parameters counted. A model that is not in the catalogue has no id and gets no name."""
    count = count_parameters(model.architecture)
    return model_pb2.Model(
        name=f"{MODELS}{model.id}" if model.id else "",
        display_name=model.display_name,
        aliases=model.aliases,
        architecture=to_message(model.architecture, model_pb2.ModelArchitecture),
        headline_parameters=model.headline_parameters,
        parameters=count.total,
        active_parameters=count.active,
        source=model.source,
        notes=model.notes,
        built_in=is_built_in(model),
    )


def accelerator_to_wire(accelerator: Accelerator) -> accelerator_pb2.Accelerator:
    """An accelerator with its peaks in a fixed order, so that equal entries have equal bytes."""
    return accelerator_pb2.Accelerator(
        name=f"{ACCELERATORS}{accelerator.id}",
        display_name=accelerator.display_name,
        aliases=accelerator.aliases,
        vendor=accelerator.vendor,
        architecture=accelerator.architecture,
        label_memory_bytes=accelerator.label_memory_bytes,
        visible_memory_bytes=accelerator.visible_memory_bytes,
        memory_bandwidth_bytes_per_second=accelerator.memory_bandwidth_bytes_per_second,
        dense_peaks=[
            accelerator_pb2.DensePeak(
                precision=precision_to_wire(precision),
                flops_per_second=accelerator.dense_flops_per_second[precision],
            )
            for precision in Precision
            if precision in accelerator.dense_flops_per_second
        ],
        interconnect=accelerator.interconnect,
        interconnect_bytes_per_second=accelerator.interconnect_bytes_per_second,
        gpus_per_node=accelerator.gpus_per_node,
        cost_usd_per_gpu_hour=accelerator.cost_usd_per_gpu_hour,
        sources=dict(accelerator.sources),
        built_in=is_built_in(accelerator),
    )


def engine_to_wire(engine: Engine) -> engine_pb2.Engine:
    """An engine with its releases."""
    return engine_pb2.Engine(
        name=f"{ENGINES}{engine.id}",
        display_name=engine.display_name,
        aliases=engine.aliases,
        releases=[_release_to_wire(release) for release in engine.releases],
    )


def _release_to_wire(release: EngineRelease) -> engine_pb2.EngineRelease:
    return engine_pb2.EngineRelease(
        since_version=release.since,
        gpu_memory_utilization=release.defaults.gpu_memory_utilization,
        max_num_seqs=release.defaults.maximum_sequences,
        max_num_batched_tokens=release.defaults.maximum_batched_tokens,
        kv_block_tokens=release.defaults.kv_block_tokens,
        chunked_prefill=release.defaults.chunked_prefill,
        prefix_caching=release.defaults.prefix_caching,
        memory_constants=_memory_constants(release.memory),
        cuda_graphs_inside_budget=release.memory.cuda_graphs_inside_budget,
        window_aware_kv_cache=release.memory.window_aware_kv_cache,
        metric_dialect=release.metric_dialect,
        source=release.source,
    )


def _memory_constants(memory: EngineMemory) -> dict[str, float]:
    """Every numeric constant by its own name, which carries the unit."""
    return {
        field.name: float(value)
        for field in dataclasses.fields(memory)
        if isinstance(value := getattr(memory, field.name), int | float) and not isinstance(value, bool)
    }
