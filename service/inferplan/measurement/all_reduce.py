"""All-reduce by size and number of GPUs, one process a GPU, as tensor parallelism runs it."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferplan.measurement.extras import require_torch
from inferplan.measurement.timing import Repeats, time_operation
from inferplan.profiles.profile import DeviceMeasurement, DeviceMeasurementKind


@dataclass(frozen=True, slots=True)
class AllReduceTask:
    """What the processes of one group do. `device_type` is `cuda` (over NCCL) or `cpu` (over Gloo)."""

    device_type: str
    gpus: int
    buffer_bytes: tuple[int, ...]
    repeats: Repeats


def group_sizes(gpus: int) -> tuple[int, ...]:
    """Two, four, eight … GPUs, as far as the node has them, and all of them."""
    sizes = {gpus} if gpus > 1 else set()
    size = 2
    while size <= gpus:
        sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))


def measure_all_reduce(task: AllReduceTask) -> list[DeviceMeasurement]:
    """Bus bandwidth that each GPU saw, one record a GPU and size.

    Bus bandwidth is buffer / time x 2 (n - 1) / n, as NVIDIA's nccl-tests count it (doc/PERFORMANCE.md there), so that
    it compares with the link's rate whatever the number of GPUs. Raises RuntimeError if the processes cannot be run.
    """
    torch = require_torch()
    spawn: Any = torch.multiprocessing.spawn
    with tempfile.TemporaryDirectory(prefix="inferplan-all-reduce-") as folder:
        spawn(_run_rank, args=(task, folder), nprocs=task.gpus, join=True)
        seconds = [json.loads(_result_file(folder, rank).read_text()) for rank in range(task.gpus)]
    return all_reduce_records(task, seconds)


def all_reduce_records(task: AllReduceTask, seconds: Sequence[Sequence[float]]) -> list[DeviceMeasurement]:
    """Records of the median `seconds` that each rank took, in the order of the task's buffer sizes."""
    factor = 2 * (task.gpus - 1) / task.gpus
    return [
        DeviceMeasurement(
            kind=DeviceMeasurementKind.ALL_REDUCE,
            rate_per_second=size / duration * factor,
            gpu_index=rank,
            gpus=task.gpus,
            buffer_bytes=float(size),
            latency_seconds=duration,
        )
        for rank, durations in enumerate(seconds)
        for size, duration in zip(task.buffer_bytes, durations, strict=True)
    ]


def _run_rank(rank: int, task: AllReduceTask, folder: str) -> None:
    """One process: join the group, time every size, leave the medians in a file."""
    torch: Any = require_torch()
    distributed = torch.distributed
    device = f"cuda:{rank}" if task.device_type == "cuda" else "cpu"
    if task.device_type == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        backend="nccl" if task.device_type == "cuda" else "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=task.gpus,
    )
    try:
        medians = []
        for size in task.buffer_bytes:
            buffer = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)
            distributed.barrier()
            timing = time_operation(torch, device, functools.partial(distributed.all_reduce, buffer), task.repeats)
            medians.append(timing.seconds)
        _result_file(folder, rank).write_text(json.dumps(medians))
    finally:
        distributed.destroy_process_group()


def _result_file(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank-{rank}.json"
