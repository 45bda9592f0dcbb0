"""Numbers with units as a person reads them."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def duration_text(duration: Duration) -> str:
    """`18.3 ms`, `5 s`, `2.5 min`."""
    return seconds_text(duration.seconds + duration.nanos * 1e-9)


def seconds_text(seconds: float) -> str:
    """Seconds with four significant digits in the unit that suits them."""
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.4g} µs"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.4g} ms"
    return f"{seconds:.4g} s" if abs(seconds) < 600 else f"{seconds / 60:.4g} min"


def quantity_text(value: float, unit: str) -> str:
    """A value in its unit, scaled where that helps reading."""
    if unit == "s":
        return seconds_text(value)
    if unit in ("B", "B/s", "FLOP", "FLOP/s", "parameters"):
        for scale, prefix in _SCALES:
            if abs(value) >= scale:
                return f"{value / scale:.4g} {prefix}{unit}" if unit != "parameters" else f"{value / scale:.4g}{prefix}"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()
