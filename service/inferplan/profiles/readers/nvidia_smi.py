"""`nvidia-smi --query-gpu=… --format=csv`: what a node's GPUs are; no rates.

Units stand in the header (`memory.total [MiB]`) and, without `nounits`, in each cell. What the driver does not tell
reads `[N/A]`, `[Not Supported]`, `[Unknown Error]` or `[Insufficient Permissions]`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferplan.profiles.profile import ImportHeader, Profile
from inferplan.profiles.readers.build import FileFacts, merged_provenance, require_accelerator
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems

_UNIT_BYTES = {"MiB": 2**20, "GiB": 2**30, "MB": 1e6, "GB": 1e9}
_KNOWN_COLUMNS = ("name", "uuid", "memory.total", "driver_version", "clocks.max.sm", "mig.mode.current", "serial")
_MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class NvidiaSmiReader:
    """Reads the CSV of an nvidia-smi query."""

    name: str = "nvidia-smi"

    def recognises(self, content: BenchmarkContent) -> bool:
        """A header with nvidia-smi's column names, behind comment lines at most."""
        columns = [column.partition(" [")[0] for column in _table(content.text)[0]]
        return len(set(columns) & set(_KNOWN_COLUMNS)) >= 1 and any("." in column for column in columns)

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """A profile of provenance alone: names, visible memory, driver. Refuses a query that says nothing of use."""
        problems = Problems()
        columns, rows = _table(content.text)
        gpus = [dict(zip(columns, row, strict=False)) for row in rows]
        names = sorted({_told(gpu.get("name", "")) for gpu in gpus} - {""})
        if len(names) > 1:
            problems.add(
                "name", f"names {len(names)} kinds of GPU ({', '.join(names)[:200]}); legal is one file for each"
            )
        memory = [value for gpu in gpus if (value := _memory_bytes(gpu)) is not None]
        if not names and not memory:
            problems.add(
                "file",
                "states neither a GPU's name nor its memory; query name,uuid,memory.total,driver_version",
                "NO_MEASUREMENTS",
            )
        drivers = sorted({_told(gpu.get("driver_version", "")) for gpu in gpus} - {""})
        provenance = merged_provenance(
            header,
            FileFacts(
                accelerator=names[0] if names else "", driver_version=drivers[0] if drivers else "", tool=self.name
            ),
        )
        uuids = tuple(_told(gpu.get("uuid", "")) for gpu in gpus)[:_MOST_GPUS]
        require_accelerator(provenance, problems)
        problems.raise_if_any()
        provenance = dataclasses.replace(
            provenance,
            # Tensor parallel runs at the smallest.
            visible_memory_bytes=min(memory) if memory else provenance.visible_memory_bytes,
            gpu_uuids=tuple(uuid for uuid in uuids if uuid) or provenance.gpu_uuids,
        )
        note = "nvidia-smi states what the GPUs are and no rates: the profile holds no measurement"
        return ReadResult(self.name, (Profile(provenance=provenance, labels=header.labels),), (note,))


def _table(text: str) -> tuple[list[str], Sequence[Sequence[str]]]:
    lines = [line for line in text.splitlines()[: _MOST_GPUS + 1] if line.strip() and not line.startswith("#")]
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(lines)))]
    except csv.Error:
        return [], []
    return (rows[0], rows[1:]) if rows else ([], [])


def _told(cell: str) -> str:
    """The cell, empty where the driver does not tell."""
    return "" if cell.startswith("[") or cell.lower() in ("n/a", "") else cell[:100]


def _memory_bytes(gpu: Mapping[str, str]) -> float | None:
    for column, cell in gpu.items():
        if column.partition(" [")[0] != "memory.total":
            continue
        header_unit = column.partition("[")[2].rstrip("]")
        match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*(MiB|GiB|MB|GB)?", _told(cell))
        if match:
            unit = match.group(2) or header_unit or "MiB"
            return float(match.group(1)) * _UNIT_BYTES.get(unit, 2**20)
    return None
