"""What every reader of a benchmark format offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inferplan.profiles.profile import ImportHeader, Profile
from inferplan.profiles.readers.content import BenchmarkContent


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a file holds, in the domain's units: one profile for each accelerator and engine that it speaks of.

    `notes` say what was changed or left out while reading: a recomputed TPOT, a percentile without meaning.
    """

    tool: str
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """One format. `name` is what `--tool` takes."""

    @property
    def name(self) -> str:
        """Stable name of the format."""
        ...

    def recognises(self, content: BenchmarkContent) -> bool:
        """Whether the content is of this format; never raises."""
        ...

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """The measurements. Raises InvalidInputError with all that is wrong or missing."""
        ...
