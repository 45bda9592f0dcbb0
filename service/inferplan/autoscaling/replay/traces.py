"""Loads over time: constant, step, diurnal and spike by formula, or recorded arrivals from a CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation import VaryingArrivals

INTERVAL_SECONDS = 60.0
"""Rates by formula are constant for a minute."""

SECONDS_PER_DAY = 86_400.0
MAXIMUM_SECONDS = 31 * SECONDS_PER_DAY
MAXIMUM_ARRIVALS = 10_000_000
"""Of one replay by formula: about a gigabyte while it is played."""
MAXIMUM_ROWS = 500_000
"""Of a recorded trace, which travels in one message of 4 MiB; reading stops there, whatever the file's size."""
MAXIMUM_RATE_PER_SECOND = 20_000.0
MAXIMUM_GAP_SECONDS = 6 * 3600.0
"""A recorded trace without arrivals for longer has a hole, and not a quiet night."""

KINDS = ("constant", "step", "diurnal", "spike")
_FIELDS: dict[str, dict[str, float | None]] = {
    "constant": {"rate": None, "hours": 1.0},
    "step": {"before": None, "after": None, "at": 600.0, "hours": 1.0},
    "diurnal": {"peak": None, "trough": None, "hours": 24.0, "peak_hour": 14.0},
    "spike": {"base": None, "peak": None, "at": 1200.0, "length": 300.0, "hours": 1.0},
}
"""Fields with their defaults; None must be given. Rates in requests a second, `at` and `length` in seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadTrace:
    """Arrivals from 0 on, in seconds. Lengths are None where the trace records none: the plan's own are drawn.

    `minute_rates_per_second` is what a formula expects in each minute, None for recorded arrivals.
    """

    name: str
    arrival_seconds: npt.NDArray[np.float64]
    duration_seconds: float
    input_tokens: npt.NDArray[np.int32] | None = None
    output_tokens: npt.NDArray[np.int32] | None = None
    minute_rates_per_second: npt.NDArray[np.float64] | None = None

    def course_per_second(self, smoothing_seconds: float) -> npt.NDArray[np.float64]:
        """How the rate moves: the formula's, by minute, or recorded arrivals averaged over `smoothing_seconds`."""
        if self.minute_rates_per_second is not None:
            return self.minute_rates_per_second
        return self.rates_per_second(smoothing_seconds)

    def rates_per_second(self, interval_seconds: float = INTERVAL_SECONDS) -> npt.NDArray[np.float64]:
        """Mean arrivals in each whole interval; of a trace that is shorter than one, its mean."""
        whole = int(self.duration_seconds / interval_seconds + 1e-9)
        if whole == 0:
            return np.array([self.arrival_seconds.size / self.duration_seconds])
        counts, _edges = np.histogram(self.arrival_seconds, np.arange(whole + 1) * interval_seconds)
        rates: npt.NDArray[np.float64] = counts / interval_seconds
        return rates

    def first(self, duration_seconds: float) -> LoadTrace:
        """The trace's beginning. Raises InvalidInputError if nothing arrives in it."""
        if duration_seconds >= self.duration_seconds:
            return self
        count = int(np.searchsorted(self.arrival_seconds, duration_seconds, side="left"))
        if count == 0:
            raise InvalidInputError.single("duration", f"ends before the first arrival; {self.name} is longer")
        rates = self.minute_rates_per_second
        return LoadTrace(
            self.name,
            self.arrival_seconds[:count],
            duration_seconds,
            None if self.input_tokens is None else self.input_tokens[:count],
            None if self.output_tokens is None else self.output_tokens[:count],
            None if rates is None else rates[: max(1, math.ceil(duration_seconds / INTERVAL_SECONDS))],
        )


def formula_trace(specification: str, seed: int) -> LoadTrace:
    """`diurnal:peak=100,trough=20`, `step:before=20,after=60,at=600` and so on, with Poisson arrivals.

    Raises InvalidInputError naming every field that is missing, unknown or out of bounds.
    """
    kind, fields = _parse(specification)
    hours = fields.pop("hours")
    count = max(1, math.ceil(hours * 3600 / INTERVAL_SECONDS))
    times = (np.arange(count) + 0.5) * INTERVAL_SECONDS
    rates = _rates(kind, fields, times)
    duration = count * INTERVAL_SECONDS
    expected = float(rates.sum()) * INTERVAL_SECONDS
    if expected > MAXIMUM_ARRIVALS:
        raise InvalidInputError.single(
            "trace",
            f"would bring about {expected:,.0f} requests; at most {MAXIMUM_ARRIVALS:,}: lower the rate or the hours",
            "TRACE_TOO_LONG",
        )
    arrivals = np.empty(0)
    if expected > 0:
        process = VaryingArrivals(INTERVAL_SECONDS, tuple(float(rate) for rate in rates))
        arrivals = process.until(duration, np.random.default_rng(seed))
    if arrivals.size == 0:
        raise InvalidInputError.single("trace", "brings no request at all; raise the rate or the hours")
    return LoadTrace(specification, arrivals, duration, minute_rates_per_second=rates)


def recorded_trace(
    name: str,
    arrival_seconds: npt.NDArray[np.float64],
    input_tokens: npt.NDArray[np.int64] | None = None,
    output_tokens: npt.NDArray[np.int64] | None = None,
) -> LoadTrace:
    """Arrivals that rise, set to begin at 0.

    Raises InvalidInputError for gaps of more than six hours, more than 31 days, lengths that are no lengths.
    """
    violations = []
    gaps = np.diff(arrival_seconds)
    if gaps.size and gaps.max() > MAXIMUM_GAP_SECONDS:
        violations.append(
            Violation(
                f"trace.arrivals[{int(gaps.argmax()) + 1}]",
                f"comes {gaps.max() / 3600:.1f} h after the one before: the trace has a hole; legal is at most "
                f"{MAXIMUM_GAP_SECONDS / 3600:g} h",
                "TRACE_HAS_A_HOLE",
            )
        )
    length = float(arrival_seconds[-1] - arrival_seconds[0])
    if length > MAXIMUM_SECONDS:
        violations.append(Violation("trace", f"lasts {length / SECONDS_PER_DAY:.0f} days; legal is at most 31"))
    for path, tokens in (("trace.input_tokens", input_tokens), ("trace.output_tokens", output_tokens)):
        violations += _token_violations(path, tokens, arrival_seconds.size)
    if (input_tokens is None) != (output_tokens is None):
        violations.append(Violation("trace.output_tokens", "and input_tokens must both be recorded, or neither"))
    if violations:
        raise InvalidInputError(violations)
    return LoadTrace(
        name or "recorded trace",
        arrival_seconds - arrival_seconds[0],
        length + 1.0,
        None if input_tokens is None else np.maximum(input_tokens, 1).astype(np.int32),
        None if output_tokens is None else np.maximum(output_tokens, 1).astype(np.int32),
    )


def _token_violations(path: str, tokens: npt.NDArray[np.int64] | None, arrivals: int) -> list[Violation]:
    if tokens is None:
        return []
    if tokens.size != arrivals:
        return [Violation(path, f"holds {tokens.size} values; must hold {arrivals}, one an arrival")]
    if tokens.min() < 0 or tokens.max() > _MOST_TOKENS:
        worst = int(tokens.argmin() if tokens.min() < 0 else tokens.argmax())
        return [Violation(f"{path}[{worst}]", f"is {tokens[worst]}; legal is 0 to {_MOST_TOKENS}")]
    return []


def _rates(kind: str, fields: dict[str, float], times: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    if kind == "constant":
        return np.full(times.size, fields["rate"], dtype=np.float64)
    if kind == "step":
        return np.where(times < fields["at"], fields["before"], fields["after"])
    if kind == "spike":
        inside = (times >= fields["at"]) & (times < fields["at"] + fields["length"])
        return np.where(inside, fields["peak"], fields["base"])
    middle, swing = (fields["peak"] + fields["trough"]) / 2, (fields["peak"] - fields["trough"]) / 2
    angle = 2 * np.pi * (times / 3600 - fields["peak_hour"]) / 24
    return np.asarray(middle + swing * np.cos(angle))


def _parse(specification: str) -> tuple[str, dict[str, float]]:
    kind, _colon, rest = specification.partition(":")
    if kind not in _FIELDS:
        raise InvalidInputError.single(
            "trace", f"{kind[:60]!r} is no kind of load; legal: {', '.join(KINDS)}, or a CSV file", "UNKNOWN_TRACE"
        )
    known = _FIELDS[kind]
    violations: list[Violation] = []
    fields = {name: default for name, default in known.items() if default is not None}
    for part in filter(None, rest.split(",")):
        name, _equals, text = part.partition("=")
        if name not in known:
            violations.append(Violation(f"trace.{name[:60]}", f"is not known; legal: {', '.join(known)}"))
            continue
        value = _number(text)
        if value is None or not _bounds(name)[0] <= value <= _bounds(name)[1]:
            low, high = _bounds(name)
            violations.append(Violation(f"trace.{name}", f"is {text[:40]!r}; legal is {low:g} to {high:g}"))
            continue
        fields[name] = value
    missing = [name for name in known if name not in fields and not any(v.field == f"trace.{name}" for v in violations)]
    violations += [Violation(f"trace.{name}", f"must be given: {kind}:{name}=…", "REQUIRED") for name in missing]
    if not violations and kind == "diurnal" and fields["trough"] > fields["peak"]:
        violations.append(Violation("trace.trough", f"is {fields['trough']:g}, above the peak {fields['peak']:g}"))
    if violations:
        raise InvalidInputError(violations)
    return kind, fields


def _bounds(name: str) -> tuple[float, float]:
    if name in ("at", "length"):
        return 0.0, MAXIMUM_SECONDS
    if name == "hours":
        return 0.02, MAXIMUM_SECONDS / 3600
    if name == "peak_hour":
        return 0.0, 24.0
    return 0.0, MAXIMUM_RATE_PER_SECOND


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_TIME_COLUMNS = ("TIMESTAMP", "timestamp", "arrival_seconds", "time_seconds", "time")
_INPUT_COLUMNS = ("ContextTokens", "input_tokens", "prompt_tokens")
_OUTPUT_COLUMNS = ("GeneratedTokens", "output_tokens", "completion_tokens")
_MOST_TOKENS = 10_000_000
_CHUNK_ROWS = 65_536


def csv_trace(lines: Iterable[str], name: str) -> LoadTrace:
    """Recorded arrivals: a time column (seconds, or a date with time) and, where recorded, two columns of lengths.

    The columns of the public Azure LLM inference trace (TIMESTAMP, ContextTokens, GeneratedTokens) are known. Lines are
    read one after the other, and no more than MAXIMUM_ROWS of them. Raises InvalidInputError for times that are no
    times, negative or out of order, lengths that are no lengths, and gaps of more than six hours.
    """
    reader = csv.reader(lines)
    try:
        header = [cell.strip().lstrip("\ufeff") for cell in next(reader, [])]
        time_at = _column(header, _TIME_COLUMNS)
        if time_at is None:
            raise InvalidInputError.single(
                "trace", f"has no time column; legal: {', '.join(_TIME_COLUMNS)}", "UNKNOWN_TRACE"
            )
        lengths_at = (_column(header, _INPUT_COLUMNS), _column(header, _OUTPUT_COLUMNS))
        rows = _rows(reader, time_at, lengths_at)
        times, inputs, outputs = _gathered(rows, with_lengths=None not in lengths_at)
    except csv.Error as error:
        raise InvalidInputError.single("trace", f"cannot be read as CSV: {error}") from None
    return recorded_trace(name, times, inputs, outputs)


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _rows(
    reader: Iterator[list[str]], time_at: int, lengths_at: tuple[int | None, int | None]
) -> Iterator[tuple[float, int, int]]:
    before = -math.inf
    for number, row in enumerate(reader, start=2):
        if not any(cell.strip() for cell in row):
            continue
        where = f"trace.row[{number}]"
        moment = _moment(row[time_at]) if time_at < len(row) else None
        if moment is None:
            raise InvalidInputError.single(where, "has no time that can be read; legal: seconds, or a date with time")
        if moment < 0:
            raise InvalidInputError.single(where, f"is at {moment:g} s; must not be negative")
        if moment < before:
            raise InvalidInputError.single(where, f"is {before - moment:g} s earlier than the one before; must rise")
        before = moment
        tokens = [_tokens(row[at] if at is not None and at < len(row) else "1", where) for at in lengths_at]
        yield moment, tokens[0], tokens[1]


def _moment(text: str) -> float | None:
    number = _number(text)
    if number is not None:
        return number
    cleaned = text.strip()
    if "." in cleaned:  # the Azure trace has seven decimals, one more than can be read
        head, _dot, fraction = cleaned.partition(".")
        digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
        cleaned = f"{head}.{digits[:6]}{fraction[len(digits) :]}" if digits else cleaned
    try:
        moment = datetime.fromisoformat(cleaned)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _tokens(text: str, where: str) -> int:
    value = _number(text)
    if value is None or not 0 <= value <= _MOST_TOKENS or value != int(value):
        raise InvalidInputError.single(where, f"has {text[:40]!r} tokens; legal is a whole number of 0 or more")
    return max(1, int(value))


def _gathered(
    rows: Iterator[tuple[float, int, int]], *, with_lengths: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]:
    """The rows as arrays, built a chunk at a time."""
    chunks: list[npt.NDArray[np.float64]] = []
    buffer: list[tuple[float, int, int]] = []
    for total, row in enumerate(rows, start=1):
        buffer.append(row)
        if total > MAXIMUM_ROWS:
            raise InvalidInputError.single(
                "trace", f"has more than {MAXIMUM_ROWS:,} rows; play a part of it", "TRACE_TOO_LONG"
            )
        if len(buffer) == _CHUNK_ROWS:
            chunks.append(np.array(buffer))
            buffer = []
    if buffer:
        chunks.append(np.array(buffer))
    if not chunks:
        raise InvalidInputError.single("trace", "has no row", "REQUIRED")
    table = np.concatenate(chunks)
    if not with_lengths:
        return table[:, 0].copy(), None, None
    return table[:, 0].copy(), table[:, 1].astype(np.int64), table[:, 2].astype(np.int64)
