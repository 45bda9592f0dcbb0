"""A stand-in for the module pynvml: a node whose GPUs, and whose refusals, the test chooses.

Masks are those of NVML's header (nvml.h, nvmlClocksEventReasons).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace


class FakeNvmlError(Exception):
    """What the library raises for everything."""


@dataclass
class FakeGpu:
    """One GPU as the driver would describe it; None is "not supported"."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 81559 * 2**20
    clock_mhz: int | None = 1980
    maximum_clock_mhz: int | None = 1980
    reasons: int = 0
    ecc: int | None = 1
    uncorrected_errors: int | None = 0
    mig: int | None = 0
    power_limit_milliwatts: int | None = 700_000
    processes: list[int] | None = field(default_factory=list)


class FakeNvml:
    """The calls and constants that are used, over the given GPUs. A handle is the GPU itself."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlClocksThrottleReasonHwSlowdown = 0x08  # noqa: N815 - the library's own names
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80  # noqa: N815

    def __init__(self, *gpus: FakeGpu) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.86.15"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return list(self._gpus.values())[index]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        if uuid not in self._gpus:
            raise FakeNvmlError("Not Found")
        return self._gpus[uuid]

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(total=gpu.memory_bytes)

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, _clock: int) -> int:
        return _supported(gpu.clock_mhz)

    def nvmlDeviceGetMaxClockInfo(self, gpu: FakeGpu, _clock: int) -> int:
        return _supported(gpu.maximum_clock_mhz)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return gpu.reasons

    def nvmlDeviceGetEccMode(self, gpu: FakeGpu) -> list[int]:
        return [_supported(gpu.ecc)] * 2

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, _kind: int, _counter: int) -> int:
        return _supported(gpu.uncorrected_errors)

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        return [_supported(gpu.mig)] * 2

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:
        return _supported(gpu.power_limit_milliwatts)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, _gpu: FakeGpu) -> int:
        return 700_000

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[int]:
        if gpu.processes is None:
            raise FakeNvmlError("Not Supported")
        return gpu.processes


def _supported(value: int | None) -> int:
    if value is None:
        raise FakeNvmlError("Not Supported")
    return value
