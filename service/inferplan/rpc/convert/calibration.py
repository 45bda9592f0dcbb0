"""Calibrations on the wire."""

from __future__ import annotations

from typing import Any

from inferplan.planning.calibration_library import FitRequest
from inferplan.profiles.calibration import Calibration
from inferplan.resources.calibration import CALIBRATIONS
from inferplan.rpc.convert.common import ACCELERATORS, ENGINES, resource_name_codec
from inferplan.rpc.convert.mapping import FieldCodec, register_field, to_message
from inferplan.v1 import calibration_pb2, profile_service_pb2


def _write_accelerators(ids: tuple[str, ...], message: Any) -> None:
    message.accelerators.extend(f"{ACCELERATORS}{accelerator_id}" for accelerator_id in ids)


def _read_accelerators(message: Any) -> tuple[str, ...]:
    return tuple(name.removeprefix(ACCELERATORS) for name in message.accelerators)


register_field(Calibration, "name", resource_name_codec("name", CALIBRATIONS))
register_field(Calibration, "engine", resource_name_codec("engine", ENGINES))
register_field(Calibration, "accelerators", FieldCodec(_write_accelerators, _read_accelerators))


def calibration_to_wire(calibration: Calibration) -> calibration_pb2.Calibration:
    """A calibration as a message."""
    return to_message(calibration, calibration_pb2.Calibration)


def fit_request_from_wire(message: profile_service_pb2.FitCalibrationRequest, caller: str) -> FitRequest:
    """What is to be fitted; not yet validated."""
    return FitRequest(
        engine=message.engine,
        profiles=tuple(message.profiles),
        calibration_id=message.calibration_id,
        caller=caller,
        request_id=message.request_id.lower(),
        validate_only=message.validate_only,
    )
