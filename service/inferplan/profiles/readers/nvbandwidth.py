"""NVIDIA nvbandwidth with `--json`: bandwidth matrices of copy tests, numbers as text, `N/A` where there is no link.

Rates are decimal gigabytes a second. Which side of a matrix is the sender is in each test's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inferplan.profiles.profile import DeviceMeasurement, DeviceMeasurementKind, ImportHeader, Profile
from inferplan.profiles.readers.build import FileFacts, merged_provenance, require_accelerator
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record

_GIGABYTE = 1e9
_FIRST_CUDA_VERSION = 1000
_KINDS = {
    "host_to_device_memcpy_ce": DeviceMeasurementKind.HOST_TO_DEVICE,
    "device_to_host_memcpy_ce": DeviceMeasurementKind.DEVICE_TO_HOST,
    "device_to_device_memcpy_read_ce": DeviceMeasurementKind.DEVICE_TO_DEVICE,
    "device_to_device_memcpy_write_ce": DeviceMeasurementKind.DEVICE_TO_DEVICE,
}
"""Tests of one direction with the copy engine; others load several links at once or use other engines."""


@dataclass(frozen=True, slots=True)
class NvBandwidthReader:
    """Reads nvbandwidth's JSON."""

    name: str = "nvbandwidth"

    def recognises(self, content: BenchmarkContent) -> bool:
        """The one top-level key."""
        return isinstance(content.document.get("nvbandwidth"), Mapping)

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """One measurement for each GPU, or pair of GPUs, of each test that passed."""
        problems = Problems()
        report = Record(content.document, "", problems).record("nvbandwidth")
        notes: list[str] = []
        measurements = tuple(found for test in report.records("testcases") for found in _measurements(test, notes))
        if not measurements:
            problems.add("nvbandwidth.testcases", "hold no rate of a test that is used", "NO_MEASUREMENTS")
        provenance = merged_provenance(
            header,
            FileFacts(
                accelerator=_gpu_name(report),
                driver_version=report.text("Driver Version", maximum=100),
                runtime_version=_cuda_version(report),
                tool=self.name,
                tool_version=report.text("version", maximum=100),
            ),
        )
        require_accelerator(provenance, problems)
        problems.raise_if_any()
        profile = Profile(provenance=provenance, device_measurements=measurements, labels=header.labels)
        return ReadResult(self.name, (profile,), tuple(dict.fromkeys(notes)))


def _measurements(test: Record, notes: list[str]) -> Iterator[DeviceMeasurement]:
    name = test.text("name")
    kind = _KINDS.get(name)
    if kind is None or test.text("status") != "Passed":
        notes.append(f"{name} was left out: {'it is not used' if kind is None else test.text('status') or 'no status'}")
        return
    rows = test.values.get("bandwidth_matrix")
    if not isinstance(rows, list):
        test.problems.add(test.at("bandwidth_matrix"), "is missing; legal is a list of rows", "REQUIRED")
        return
    for row_index, row in enumerate(rows):
        cells = row if isinstance(row, list) else []
        for column_index, cell in enumerate(cells):
            where = Record({"rate": cell}, test.at(f"bandwidth_matrix[{row_index}][{column_index}]"), test.problems)
            rate = where.positive("rate")
            if rate is not None:
                yield _measurement(kind, rate * _GIGABYTE, row_index, column_index, reads="_read_" in name)


def _measurement(kind: DeviceMeasurementKind, rate: float, row: int, column: int, *, reads: bool) -> DeviceMeasurement:
    """Host tests have a column a GPU. A read is started by the receiver, which is the row; a write by the sender."""
    if kind is not DeviceMeasurementKind.DEVICE_TO_DEVICE:
        return DeviceMeasurement(kind, rate, gpu_index=column)
    sender, receiver = (column, row) if reads else (row, column)
    return DeviceMeasurement(kind, rate, gpu_index=sender, peer_gpu_index=receiver)


def _gpu_name(report: Record) -> str:
    """`NVIDIA H100 80GB HBM3` of `0: NVIDIA H100 80GB HBM3 (PCI:…): (hostname)`."""
    devices = report.values.get("GPU Device list")
    if not isinstance(devices, list) or not devices:
        return ""
    return str(devices[0]).partition(":")[2].partition("(")[0].strip()[:100]


def _cuda_version(report: Record) -> str:
    """12.4 of 12040."""
    number = report.count("CUDA Runtime Version")
    if number is None or number < _FIRST_CUDA_VERSION:
        return ""
    return f"{number // 1000}.{number % 1000 // 10}"
