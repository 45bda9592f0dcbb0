"""Recorded arrivals on their way to the service."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from inferplan.autoscaling.replay.traces import LoadTrace, csv_trace
from inferplan.errors import InvalidInputError
from inferplan.v1 import plan_service_pb2

MICROSECONDS_PER_SECOND = 1e6


def fill_trace(text: str, request: plan_service_pb2.SimulatePlanRequest) -> None:
    """Set the request's trace: from a file if there is one of that name, else as a specification for the service.

    Raises InvalidInputError for a file that cannot be read, or that holds no trace.
    """
    path = Path(text)
    if ":" in text and not path.exists():
        request.trace = text
        return
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            trace = csv_trace(lines, path.name)
    except OSError as error:
        hint = "; a trace is a CSV file, or a specification such as diurnal:peak=100,trough=20"
        raise InvalidInputError.single("--trace", f"{text}: {error.strerror or error}{hint}") from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("--trace", f"{text}: not UTF-8 text") from None
    fill_recorded_trace(trace, request.recorded_trace)


def fill_recorded_trace(trace: LoadTrace, message: plan_service_pb2.RecordedTrace) -> None:
    """Write a trace as gaps, which are short numbers."""
    ticks = np.round(trace.arrival_seconds * MICROSECONDS_PER_SECOND).astype(np.int64)
    message.title = trace.name[:200]
    message.arrival_gap_microseconds.extend(np.diff(ticks, prepend=ticks[:1]).tolist())
    if trace.input_tokens is not None and trace.output_tokens is not None:
        message.input_tokens.extend(trace.input_tokens.tolist())
        message.output_tokens.extend(trace.output_tokens.tolist())
