"""The measuring loops, on the CPU: every test runs, and counts its work as the contract says."""

from __future__ import annotations

from typing import Any

import pytest

from inferplan.catalog import Precision
from inferplan.measurement.all_reduce import AllReduceTask, all_reduce_records, group_sizes, measure_all_reduce
from inferplan.measurement.device_tests import (
    MIB,
    Bench,
    DeviceGrid,
    measure_memory,
    measure_peer,
    measure_products,
    measure_transfers,
)
from inferplan.measurement.gpu_facts import GpuState
from inferplan.measurement.node import measure_devices
from inferplan.measurement.timing import Repeats, Timing
from inferplan.profiles.profile import DeviceMeasurement, DeviceMeasurementKind

SMALL = DeviceGrid(
    memory_bytes=MIB,
    transfer_bytes=MIB,
    precisions=(Precision.FLOAT16, Precision.BFLOAT16, Precision.FP8),
    shapes=((16, 32, 64),),
    all_reduce_bytes=(4096, 65536),
    repeats=Repeats(warm_up=1, measured=3),
)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip(
        "torch", reason="PyTorch, the extra `measure`, is not installed: too large for every run"
    )


def work(item: DeviceMeasurement) -> float:
    """Bytes or FLOP of one operation, from its rate and its time."""
    assert item.latency_seconds is not None
    return item.rate_per_second * item.latency_seconds


def test_memory_counts_bytes_read_and_written(torch: Any) -> None:
    read, copy = measure_memory(Bench(torch, "cpu", SMALL))
    assert (read.kind, copy.kind) == (DeviceMeasurementKind.MEMORY_READ, DeviceMeasurementKind.MEMORY_COPY)
    assert work(read) == pytest.approx(MIB)
    assert work(copy) == pytest.approx(2 * MIB)
    assert read.buffer_bytes == copy.buffer_bytes == MIB


def test_transfers_count_bytes_one_way(torch: Any) -> None:
    bench = Bench(torch, "cpu", SMALL)
    measured = [*measure_transfers(bench), measure_peer(bench, "cpu", 1)]
    assert [work(item) for item in measured] == pytest.approx([MIB] * 3)
    assert [item.peer_gpu_index for item in measured] == [None, None, 1]


def test_products_count_two_flop_for_each_term(torch: Any) -> None:
    notes: list[str] = []
    measured = measure_products(Bench(torch, "cpu", SMALL, gpu_index=5), notes)
    by_precision = {item.precision: item for item in measured}
    assert {Precision.FLOAT16, Precision.BFLOAT16} <= set(by_precision)
    assert len(notes) == 3 - len(measured), "what is left out is said"
    for item in measured:
        assert (item.shape, item.gpu_index) == ((16, 32, 64), 5)
        assert work(item) == pytest.approx(2 * 16 * 32 * 64)


def test_a_precision_that_cannot_be_multiplied_is_left_out_and_said(torch: Any) -> None:
    notes: list[str] = []
    grid = DeviceGrid(precisions=(Precision.NVFP4,), shapes=((16, 16, 16),), repeats=SMALL.repeats)
    assert measure_products(Bench(torch, "cpu", grid), notes) == []
    assert len(notes) == 1 and "nvfp4" in notes[0]


def test_a_node_of_two_is_measured_whole(torch: Any) -> None:
    notes: list[str] = []
    benches = [Bench(torch, "cpu", SMALL, index) for index in range(2)]
    measured = measure_devices(benches, notes)
    assert {item.kind for item in measured} == set(DeviceMeasurementKind)
    reduced = [item for item in measured if item.kind is DeviceMeasurementKind.ALL_REDUCE]
    assert [(item.gpu_index, item.buffer_bytes) for item in reduced] == [(0, 4096), (0, 65536), (1, 4096), (1, 65536)]


def test_all_reduce_that_cannot_run_is_said_and_the_rest_stays(torch: Any) -> None:
    notes: list[str] = []
    grid = DeviceGrid(
        memory_bytes=MIB, transfer_bytes=MIB, precisions=(), all_reduce_bytes=(-2,), repeats=SMALL.repeats
    )
    measured = measure_devices([Bench(torch, "cpu", grid, index) for index in range(2)], notes)
    assert not [item for item in measured if item.kind is DeviceMeasurementKind.ALL_REDUCE]
    assert len(measured) == 10
    assert notes[0].startswith("no all-reduce over 2 GPUs was measured")


def test_three_processes_reduce_together(torch: Any) -> None:
    assert torch.distributed.is_available()
    measured = measure_all_reduce(AllReduceTask("cpu", 3, (4096,), SMALL.repeats))
    assert [(item.gpu_index, item.gpus) for item in measured] == [(0, 3), (1, 3), (2, 3)]


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    # 8 GPUs, 1 GB in 4 ms: 250 GB/s of data, times 2 x 7/8 is 437.5 GB/s on the bus (nccl-tests, doc/PERFORMANCE.md).
    records = all_reduce_records(AllReduceTask("cuda", 8, (10**9,), Repeats()), [[0.004]] * 7 + [[0.005]])
    assert [record.rate_per_second for record in records] == pytest.approx([437.5e9] * 7 + [350e9])


def test_groups_double_and_end_with_all() -> None:
    assert [group_sizes(count) for count in (1, 2, 6, 8)] == [(), (2,), (2, 4, 6), (2, 4, 8)]


def test_a_slowed_gpu_s_figure_is_kept_and_rejected() -> None:
    bench = Bench(None, "cuda:0", SMALL, gpu_index=2)
    timing = Timing(0.5, GpuState(clock_ratio=0.6, slowed_by=("too hot (hardware thermal slowdown)",)))
    item = bench.record(DeviceMeasurementKind.MEMORY_READ, 10.0, timing)
    assert (item.rate_per_second, item.clock_ratio, item.gpu_index) == (20.0, 0.6, 2)
    assert "too hot" in item.rejected_reason
