"""The project's own table of measured points: one profile for each GPU, engine and harness."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError
from inferplan.profiles.measured_table import REQUIRED_COLUMNS, MeasuredRow, read_measured_table
from inferplan.profiles.profile import ImportHeader, Profile, ServingPoint
from inferplan.profiles.readers.build import FileFacts, merged_provenance
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult

MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class MeasuredCsvReader:
    """Reads the project's own CSV. Names are looked up in `catalog`."""

    catalog: Catalog
    name: str = "inferplan-csv"

    def recognises(self, content: BenchmarkContent) -> bool:
        """The columns that every row needs."""
        first = content.text.splitlines()[0] if content.text else ""
        columns = [column.strip().strip('"') for column in first.split(",")]
        return all(name in columns for name in REQUIRED_COLUMNS)

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """Rows that cannot be used are named in the notes; raises InvalidInputError if none can."""
        rows = read_measured_table(content.text, self.catalog)
        groups: dict[tuple[str, str, str, str], list[ServingPoint]] = {}
        for row in rows:
            if row.point is not None:
                key = (row.accelerator, row.engine, row.engine_version, row.group)
                groups.setdefault(key, []).append(dataclasses.replace(row.point, label=row.row_id))
        unusable = [row for row in rows if row.point is None]
        if not groups:
            raise InvalidInputError.single(
                "file", f"has no row that can be used: {_reason(unusable)}", "NO_MEASUREMENTS"
            )
        profiles = tuple(
            Profile(
                provenance=merged_provenance(
                    header, FileFacts(accelerator, engine, version, tool=self.name, source=group)
                ),
                serving_points=tuple(points),
                labels=header.labels,
            )
            for (accelerator, engine, version, group), points in groups.items()
        )
        notes = [f"row {row.row_id} was left out: {row.problem}" for row in unusable[:MOST_SHOWN]]
        if len(unusable) > MOST_SHOWN:
            notes.append(f"{len(unusable) - MOST_SHOWN} more rows were left out")
        return ReadResult(self.name, profiles, tuple(notes))


def _reason(rows: list[MeasuredRow]) -> str:
    return "; ".join(f"row {row.row_id}: {row.problem}" for row in rows[:3])
