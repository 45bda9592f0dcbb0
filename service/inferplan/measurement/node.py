"""Measuring a node: every test on every GPU, and the profile that comes of it."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from inferplan import __version__
from inferplan.catalog import Catalog
from inferplan.measurement.all_reduce import AllReduceTask, group_sizes, measure_all_reduce
from inferplan.measurement.device_tests import (
    Bench,
    DeviceGrid,
    measure_memory,
    measure_peer,
    measure_products,
    measure_transfers,
)
from inferplan.measurement.extras import require_gpus, require_nvml, require_torch
from inferplan.measurement.gpu_facts import GpuFacts, NodeFacts, read_gpu_state, read_node_facts
from inferplan.measurement.identify import identify_accelerator
from inferplan.profiles.profile import DeviceMeasurement, Profile, ProfileProvenance

RECORDED_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF")
RECORDED_PREFIX = "NCCL_"
"""Variables that change what is measured; no other variable is looked at."""


@dataclass(frozen=True, slots=True)
class NodeMeasurement:
    """The profile, and what could not be measured or deserves a look."""

    profile: Profile
    notes: tuple[str, ...] = ()


def measure_node(catalog: Catalog, accelerator: str = "", measured_by: str = "") -> NodeMeasurement:
    """Measure every GPU that PyTorch sees.

    Raises InvalidInputError if PyTorch, NVML or a GPU is missing, or the GPUs are not in the catalogue and
    `accelerator` is empty.
    """
    torch: Any = require_torch()
    nvml = require_nvml()
    try:
        untouched = read_node_facts(nvml)
        uuids = tuple(f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(require_gpus(torch)))
        facts = untouched.of(uuids)
        found = identify_accelerator(catalog, facts.gpus, accelerator)
        notes = fact_notes(facts)
        benches = [
            Bench(torch, f"cuda:{index}", DeviceGrid(), index, functools.partial(read_gpu_state, nvml, uuid))
            for index, uuid in enumerate(uuids)
        ]
        measurements = measure_devices(benches, notes)
        memory = float(min(torch.cuda.get_device_properties(index).total_memory for index in range(len(uuids))))
    finally:
        nvml.nvmlShutdown()
    provenance = ProfileProvenance(
        accelerator=found.id,
        visible_memory_bytes=memory,
        node=platform.node(),
        gpu_uuids=uuids,
        driver_version=facts.driver_version,
        runtime_version=f"CUDA {torch.version.cuda} (driver: up to {facts.cuda_version}), PyTorch {torch.__version__}",
        environment=recorded_environment(os.environ),
        tool="inferplan-measure-node",
        tool_version=__version__,
        measure_time=datetime.now(UTC),
        measured_by=measured_by,
    )
    judged = judge(measurements, facts)
    return NodeMeasurement(Profile(provenance, judged, labels=fact_labels(facts.gpus)), tuple(notes))


def measure_devices(benches: list[Bench], notes: list[str]) -> list[DeviceMeasurement]:
    """All tests, one GPU after the other, then the links between them; what cannot be measured goes to `notes`."""
    measurements = []
    for bench in benches:
        measurements += measure_memory(bench)
        measurements += measure_products(bench, notes)
        measurements += measure_transfers(bench)
        measurements += [
            measure_peer(bench, peer.device, peer.gpu_index) for peer in benches if peer.gpu_index != bench.gpu_index
        ]
    grid = benches[0].grid
    for gpus in group_sizes(len(benches)):
        task = AllReduceTask(benches[0].device.partition(":")[0], gpus, grid.all_reduce_bytes, grid.repeats)
        try:
            measurements += measure_all_reduce(task)
        except Exception as error:  # noqa: BLE001 - whatever a process of the group died of, the rest still counts
            lines = str(error).strip().splitlines() or [type(error).__name__]
            notes.append(f"no all-reduce over {gpus} GPUs was measured: {lines[-1]}")
    return measurements


def judge(measurements: list[DeviceMeasurement], facts: NodeFacts) -> tuple[DeviceMeasurement, ...]:
    """The measurements, rejected where the state of a GPU that took part forbids their use."""
    judged = []
    for item in measurements:
        involved = range(item.gpus) if item.gpus else [item.gpu_index]
        if item.peer_gpu_index is not None:
            involved = [item.gpu_index, item.peer_gpu_index]
        reasons = [item.rejected_reason] if item.rejected_reason else []
        reasons += [
            f"GPU {index}: {facts.gpus[index].rejected_reason}"
            for index in involved
            if facts.gpus[index].rejected_reason
        ]
        judged.append(replace(item, rejected_reason="; ".join(reasons)[:1000]))  # the contract's limit
    return tuple(judged)


def fact_notes(facts: NodeFacts) -> list[str]:
    """What does not forbid a figure's use, and yet explains it."""
    notes = []
    for index, gpu in enumerate(facts.gpus):
        if gpu.rejected_reason:
            notes.append(f"GPU {index}: its figures are kept and not used: {gpu.rejected_reason}")
        if gpu.ecc_enabled is False:
            notes.append(f"GPU {index}: ECC is off; some memory types are faster, and hold more, without it")
        limit, default = gpu.power_limit_watts, gpu.default_power_limit_watts
        if limit is not None and default is not None and limit < default:
            notes.append(f"GPU {index}: power is limited to {limit:g} W of {default:g} W; products will be slower")
    return notes


def fact_labels(gpus: tuple[GpuFacts, ...]) -> dict[str, str]:
    """The facts that provenance has no field for: one value, or one a GPU where they differ."""
    columns = {
        "gpu-name": [gpu.name for gpu in gpus],
        "gpu-ecc": [_switch(gpu.ecc_enabled) for gpu in gpus],
        "gpu-mig": [_switch(gpu.mig_enabled) for gpu in gpus],
        "gpu-power-limit-watts": ["" if g.power_limit_watts is None else f"{g.power_limit_watts:g}" for g in gpus],
        "gpu-maximum-sm-clock-mhz": [
            "" if g.maximum_sm_clock_mhz is None else str(g.maximum_sm_clock_mhz) for g in gpus
        ],
    }
    return {
        name: values[0] if len(set(values)) == 1 else ",".join(values)
        for name, values in columns.items()
        if any(values)
    }


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what is measured."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name in RECORDED_VARIABLES or name.startswith(RECORDED_PREFIX)
    }


def _switch(value: bool | None) -> str:
    return "" if value is None else ("on" if value else "off")
