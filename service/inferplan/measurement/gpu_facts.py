"""What NVIDIA's management library (NVML) says about GPUs, and what it means for the figures measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inferplan.errors import InvalidInputError

SLOWING_REASONS = (
    ("nvmlClocksThrottleReasonSwThermalSlowdown", "too hot (software thermal slowdown)"),
    ("nvmlClocksThrottleReasonHwSlowdown", "slowed down by the hardware"),
    ("nvmlClocksThrottleReasonHwThermalSlowdown", "too hot (hardware thermal slowdown)"),
    ("nvmlClocksThrottleReasonHwPowerBrakeSlowdown", "slowed down by the power supply (power brake)"),
)
"""Names of NVML's bit masks (NVML API reference, clocks event reasons) under which a figure is not that of a sound GPU.

The software power cap is not among them: large products reach it on a sound GPU, in production as here. The clock ratio
that is recorded beside each figure shows it.
"""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU before it is measured. None means that NVML does not say."""

    name: str
    uuid: str
    memory_bytes: float
    maximum_sm_clock_mhz: int | None = None
    ecc_enabled: bool | None = None
    uncorrected_ecc_errors: int | None = None
    mig_enabled: bool | None = None
    power_limit_watts: float | None = None
    default_power_limit_watts: float | None = None
    other_processes: int | None = None

    @property
    def rejected_reason(self) -> str:
        """Why nothing that is measured on this GPU may be used; empty if it may."""
        reasons = []
        if self.mig_enabled:
            reasons.append("MIG is enabled, so the figures are those of a slice and not of the GPU")
        if self.uncorrected_ecc_errors:
            reasons.append(f"{self.uncorrected_ecc_errors} uncorrected memory errors since the driver was loaded")
        if self.other_processes:
            reasons.append(f"{self.other_processes} other processes were using the GPU")
        return "; ".join(reasons)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The driver, the newest CUDA that it supports, and the GPUs."""

    driver_version: str
    cuda_version: str
    gpus: tuple[GpuFacts, ...]

    def of(self, uuids: tuple[str, ...]) -> NodeFacts:
        """The same with these GPUs only, in this order. Raises InvalidInputError for one that NVML does not list."""
        by_uuid = {gpu.uuid: gpu for gpu in self.gpus}
        strange = [uuid for uuid in uuids if uuid not in by_uuid]
        if strange:
            raise InvalidInputError.single(
                "",
                f"{', '.join(strange)} is no whole GPU for the driver; it is probably a MIG slice, whose figures are "
                "not the GPU's; turn MIG off, or choose other GPUs with CUDA_VISIBLE_DEVICES",
            )
        return replace(self, gpus=tuple(by_uuid[uuid] for uuid in uuids))


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU in the middle of a test. `clock_ratio` is the SM clock over its maximum, None where NVML does not say."""

    clock_ratio: float | None = None
    slowed_by: tuple[str, ...] = ()


def read_node_facts(nvml: Any) -> NodeFacts:
    """Facts of every GPU of the node. `nvml` is the initialised module pynvml.

    Must be called before this process uses a GPU, or it counts among the processes that do. Raises nvml.NVMLError if
    name, memory or driver cannot be read; all else that NVML does not support stays None.
    """
    cuda = int(nvml.nvmlSystemGetCudaDriverVersion())
    return NodeFacts(
        driver_version=_text(nvml.nvmlSystemGetDriverVersion()),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        gpus=tuple(_gpu_facts(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())),
    )


def read_gpu_state(nvml: Any, uuid: str) -> GpuState:
    """Clock and slow-down reasons of one GPU now."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    clock = _optional(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
    maximum = _optional(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)
    active = _optional(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    return GpuState(
        clock_ratio=min(clock / maximum, 1.0) if clock and maximum else None,
        slowed_by=tuple(text for mask, text in SLOWING_REASONS if active & getattr(nvml, mask)),
    )


def _gpu_facts(nvml: Any, handle: Any) -> GpuFacts:
    ecc = _optional(nvml, nvml.nvmlDeviceGetEccMode, handle)
    mig = _optional(nvml, nvml.nvmlDeviceGetMigMode, handle)
    processes = _optional(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    errors = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    return GpuFacts(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=float(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        maximum_sm_clock_mhz=_optional(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        ecc_enabled=None if ecc is None else bool(ecc[0]),
        uncorrected_ecc_errors=_optional(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, *errors),
        mig_enabled=None if mig is None else bool(mig[0]),
        power_limit_watts=_watts(_optional(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        default_power_limit_watts=_watts(_optional(nvml, nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)),
        other_processes=None if processes is None else len(processes),
    )


def _optional(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """What `call` returns, or None where the GPU, the driver or the caller's rights do not allow it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _text(value: str | bytes) -> str:
    """Old releases of the library answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
