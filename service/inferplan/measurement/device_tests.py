"""The tests of single GPUs and of the links from them: memory, matrix products, transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from inferplan.catalog.precision import Precision
from inferplan.measurement.timing import Repeats, StateReader, Timing, no_state, time_operation
from inferplan.profiles.profile import DeviceMeasurement, DeviceMeasurementKind

MIB = 2**20
LARGEST_SHARE_OF_FREE_MEMORY = 0.25
"""A copy holds two buffers; the rest leaves room for the libraries' workspaces."""


@dataclass(frozen=True, slots=True)
class DeviceGrid:
    """What is measured. Shapes are rows, columns and inner dimension of a product.

    The memory buffer is far larger than any GPU's cache (50 MiB on an H100). The shapes are those of a layer of 8192
    hidden units at 16 and 256 decoding sequences and at a prefill of 2048 tokens, and a square one that shows the
    largest rate. All-reduce sizes run from a decode step's activations to a long prefill's.
    """

    memory_bytes: int = 1024 * MIB
    transfer_bytes: int = 256 * MIB
    precisions: tuple[Precision, ...] = (Precision.FLOAT16, Precision.BFLOAT16, Precision.FP8)
    shapes: tuple[tuple[int, int, int], ...] = (
        (16, 8192, 8192),
        (256, 8192, 8192),
        (2048, 8192, 8192),
        (8192, 8192, 8192),
    )
    all_reduce_bytes: tuple[int, ...] = (MIB // 16, MIB, 16 * MIB, 256 * MIB)
    repeats: Repeats = field(default_factory=Repeats)


@dataclass(frozen=True, slots=True)
class Bench:
    """One device to measure. `torch` is the module, `gpu_index` the place in the node, `read_state` NVML's view."""

    torch: Any
    device: str
    grid: DeviceGrid
    gpu_index: int = 0
    read_state: StateReader = no_state

    def time(self, operation: Callable[[], object]) -> Timing:
        """Median time of `operation` on this device."""
        return time_operation(self.torch, self.device, operation, self.grid.repeats, self.read_state)

    def record(self, kind: DeviceMeasurementKind, work: float, timing: Timing, **more: Any) -> DeviceMeasurement:
        """The measurement of `work` bytes or FLOP done in `timing`; rejected if the GPU was slowed down."""
        slowed_by = timing.state.slowed_by
        return DeviceMeasurement(
            kind=kind,
            rate_per_second=work / timing.seconds,
            gpu_index=self.gpu_index,
            latency_seconds=timing.seconds,
            clock_ratio=timing.state.clock_ratio,
            rejected_reason=f"while measuring, the GPU was {' and '.join(slowed_by)}" if slowed_by else "",
            **more,
        )


def measure_memory(bench: Bench) -> list[DeviceMeasurement]:
    """Read and copy rates of device memory. A copy counts the bytes read and the bytes written."""
    torch, size = bench.torch, _fitting_bytes(bench, bench.grid.memory_bytes)
    source = torch.ones(size // 4, dtype=torch.float32, device=bench.device)
    target = torch.empty_like(source)
    read = bench.time(source.sum)
    copy = bench.time(lambda: target.copy_(source))
    return [
        bench.record(DeviceMeasurementKind.MEMORY_READ, size, read, buffer_bytes=float(size)),
        bench.record(DeviceMeasurementKind.MEMORY_COPY, 2 * size, copy, buffer_bytes=float(size)),
    ]


def measure_transfers(bench: Bench) -> list[DeviceMeasurement]:
    """Rates between page-locked host memory and the device, one way each."""
    torch, size = bench.torch, _fitting_bytes(bench, bench.grid.transfer_bytes)
    on_gpu = bench.device.startswith("cuda")
    host = torch.ones(size, dtype=torch.uint8, pin_memory=on_gpu)
    device = torch.empty(size, dtype=torch.uint8, device=bench.device)
    there = bench.time(lambda: device.copy_(host, non_blocking=True))
    back = bench.time(lambda: host.copy_(device, non_blocking=True))
    return [
        bench.record(DeviceMeasurementKind.HOST_TO_DEVICE, size, there, buffer_bytes=float(size)),
        bench.record(DeviceMeasurementKind.DEVICE_TO_HOST, size, back, buffer_bytes=float(size)),
    ]


def measure_peer(bench: Bench, peer_device: str, peer_gpu_index: int) -> DeviceMeasurement:
    """Rate of copies from this device to another."""
    torch, size = bench.torch, _fitting_bytes(bench, bench.grid.transfer_bytes)
    source = torch.ones(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty(size, dtype=torch.uint8, device=peer_device)
    timing = bench.time(lambda: target.copy_(source, non_blocking=True))
    kind = DeviceMeasurementKind.DEVICE_TO_DEVICE
    return bench.record(kind, size, timing, buffer_bytes=float(size), peer_gpu_index=peer_gpu_index)


def measure_products(bench: Bench, notes: list[str]) -> list[DeviceMeasurement]:
    """Rates of matrix products, each 2 x rows x columns x inner dimension FLOP.

    A precision that this GPU or this PyTorch cannot multiply is left out and said in `notes`.
    """
    measurements = []
    for precision in bench.grid.precisions:
        try:
            measurements += list(_products(bench, precision))
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0]
            notes.append(f"GPU {bench.gpu_index}: no products in {precision} were measured: {reason}")
    return measurements


def _products(bench: Bench, precision: Precision) -> Iterator[DeviceMeasurement]:
    for shape in bench.grid.shapes:
        rows, columns, inner = shape
        timing = bench.time(_product(bench.torch, bench.device, precision, shape))
        work = 2.0 * rows * columns * inner
        yield bench.record(DeviceMeasurementKind.MATMUL, work, timing, precision=precision, shape=shape)


def _product(torch: Any, device: str, precision: Precision, shape: tuple[int, int, int]) -> Callable[[], object]:
    """The product as an operation. The right operand is laid out by columns, as engines keep their weights."""
    rows, columns, inner = shape
    left = torch.randn(rows, inner, device=device)
    right = torch.randn(columns, inner, device=device)
    if precision is Precision.FP8:
        functional = torch.nn.functional
        left8, right8 = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()
        one, whole = torch.ones((), device=device), functional.ScalingType.TensorWise
        scaled = functional.scaled_mm  # public since PyTorch 2.10
        return lambda: scaled(left8, right8, one, whole, one, whole, output_dtype=torch.bfloat16)
    left16, right16 = left.to(getattr(torch, precision)), right.to(getattr(torch, precision)).t()
    return lambda: torch.matmul(left16, right16)


def _fitting_bytes(bench: Bench, wanted: int) -> int:
    """`wanted`, or what the free memory allows if that is less; whole MiB where it is cut."""
    if not bench.device.startswith("cuda"):
        return wanted
    free, _total = bench.torch.cuda.mem_get_info(bench.device)
    return min(wanted, max(int(free * LARGEST_SHARE_OF_FREE_MEMORY) // MIB * MIB, MIB))
