"""ProfileService: measurements, whether they are in use, and the coefficients that are fitted from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import grpc

from inferplan.errors import CancelledError, InvalidInputError, Violation
from inferplan.planning.calibration_library import CalibrationLibrary
from inferplan.planning.list_request import ListRequest
from inferplan.planning.profile_library import ProfileLibrary
from inferplan.profiles.readers import ReadResult
from inferplan.resources.calibration import calibration_id_of
from inferplan.resources.profile import profile_id_of
from inferplan.rpc.cancellation import cancelled_with
from inferplan.rpc.convert.calibration import calibration_to_wire, fit_request_from_wire
from inferplan.rpc.convert.profile import import_header_from_wire, profile_from_wire, profile_to_wire
from inferplan.rpc.gate import WorkGate
from inferplan.rpc.import_stream import read_import_stream
from inferplan.rpc.plan_servicer import ANONYMOUS
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.storage.profiles import StoredProfiles
from inferplan.v1 import calibration_pb2, profile_pb2, profile_service_pb2, profile_service_pb2_grpc

PROFILE_PATH = "profile"
MEASURE_TIME_PATH = f"{PROFILE_PATH}.provenance.measure_time"

MAXIMUM_PROFILE_BYTES = 3 * 1024 * 1024
"""Of the profiles of one reply: what is stored must fit into 4 MiB again, with room for what stands beside it."""

UNGATED_FILE_BYTES = 1024 * 1024
"""Files up to this size are read in milliseconds; larger ones keep a core busy and pass the gate."""


class ProfileServicer(profile_service_pb2_grpc.ProfileServiceServicer):
    """Validates, converts, asks the libraries, converts back. What simulates passes the gate."""

    def __init__(self, library: ProfileLibrary, calibrations: CalibrationLibrary, gate: WorkGate) -> None:
        self._library = library
        self._calibrations = calibrations
        self._gate = gate

    def CreateProfile(
        self, request: profile_service_pb2.CreateProfileRequest, _context: grpc.ServicerContext
    ) -> profile_pb2.Profile:
        violations = message_violations(request)
        if any(violation.field == MEASURE_TIME_PATH for violation in violations):
            request.profile.provenance.ClearField("measure_time")  # it may be beyond what a datetime can hold
        profile = profile_from_wire(request.profile)
        broken_parts = _profile_parts(violations)
        raise_violations([*violations, *self._library.profile_violations(profile, PROFILE_PATH, broken_parts)])
        checked = self._library.checked(profile)
        refuse_unanswerable([profile_to_wire(checked)], PROFILE_PATH)
        stored = self._library.create_profile(checked, caller=ANONYMOUS, request_id=request.request_id.lower())
        return profile_to_wire(stored)

    def ImportProfile(
        self, request_iterator: Iterator[profile_service_pb2.ImportProfileRequest], context: grpc.ServicerContext
    ) -> profile_service_pb2.ImportProfileResponse:
        header_message, content = read_import_stream(request_iterator, context.is_active)
        header = import_header_from_wire(header_message)
        with self._gate.enter() if len(content) > UNGATED_FILE_BYTES else nullcontext():
            result = self._library.read_file(content, header)
        messages = [profile_to_wire(profile) for profile in result.profiles]
        refuse_unanswerable([messages[0], *messages], "file")  # the first comes twice in the reply
        if not context.is_active():
            raise CancelledError("the client went while its file was read; nothing was stored")
        stored = self._library.import_profiles(result.profiles, header, caller=ANONYMOUS)
        return _import_response(result, stored)

    def GetProfile(
        self, request: profile_service_pb2.GetProfileRequest, _context: grpc.ServicerContext
    ) -> profile_pb2.Profile:
        raise_violations(message_violations(request))
        return profile_to_wire(self._library.get_profile(profile_id_of(request.name)))

    def ListProfiles(
        self, request: profile_service_pb2.ListProfilesRequest, _context: grpc.ServicerContext
    ) -> profile_service_pb2.ListProfilesResponse:
        raise_violations(message_violations(request))
        profiles, token = self._library.list_profiles(
            ListRequest(request.page_size, request.page_token, filter=request.filter)
        )
        return profile_service_pb2.ListProfilesResponse(
            profiles=[profile_to_wire(profile) for profile in profiles], next_page_token=token
        )

    def WithdrawProfile(
        self, request: profile_service_pb2.WithdrawProfileRequest, _context: grpc.ServicerContext
    ) -> profile_pb2.Profile:
        raise_violations(message_violations(request))
        profile = self._library.withdraw_profile(
            profile_id_of(request.name), request.reason, profile_id_of(request.superseded_by)
        )
        return profile_to_wire(profile)

    def FitCalibration(
        self, request: profile_service_pb2.FitCalibrationRequest, context: grpc.ServicerContext
    ) -> calibration_pb2.Calibration:
        raise_violations(message_violations(request))
        fit = fit_request_from_wire(request, ANONYMOUS)
        calibration = self._calibrations.find_fit(fit)
        if calibration is None:
            raise_violations(self._calibrations.fit_violations(fit))
            with self._gate.enter():
                calibration = self._calibrations.fit_calibration(fit, cancelled_with(context))
        return calibration_to_wire(calibration)

    def GetCalibration(
        self, request: profile_service_pb2.GetCalibrationRequest, _context: grpc.ServicerContext
    ) -> calibration_pb2.Calibration:
        raise_violations(message_violations(request))
        return calibration_to_wire(self._calibrations.get_calibration(calibration_id_of(request.name)))

    def ListCalibrations(
        self, request: profile_service_pb2.ListCalibrationsRequest, _context: grpc.ServicerContext
    ) -> profile_service_pb2.ListCalibrationsResponse:
        raise_violations(message_violations(request))
        page = ListRequest(request.page_size, request.page_token, filter=request.filter)
        calibrations, token = self._calibrations.list_calibrations(page)
        return profile_service_pb2.ListCalibrationsResponse(
            calibrations=[calibration_to_wire(calibration) for calibration in calibrations], next_page_token=token
        )


def _import_response(result: ReadResult, stored: StoredProfiles) -> profile_service_pb2.ImportProfileResponse:
    """What was stored, or had been before, and how many of its measurements are used."""
    profiles = [profile_to_wire(profile) for profile in stored.profiles]
    rejected = sum(profile.rejected_measurements for profile in stored.profiles)
    return profile_service_pb2.ImportProfileResponse(
        profile=profiles[0],
        tool=result.tool,
        accepted_points=sum(profile.measurements for profile in stored.profiles) - rejected,
        rejected_points=rejected,
        already_imported=stored.stored_before,
        profiles=profiles,
        notes=result.notes,
    )


def refuse_unanswerable(messages: Iterable[profile_pb2.Profile], path: str) -> None:
    """Raise InvalidInputError for profiles that could be stored, but not be sent back in one reply."""
    size = sum(message.ByteSize() for message in messages)
    if size > MAXIMUM_PROFILE_BYTES:
        description = f"takes {size} bytes; legal: at most {MAXIMUM_PROFILE_BYTES}; store it in parts"
        raise InvalidInputError.single(path, description, "TOO_LONG")


def _profile_parts(violations: Iterable[Violation]) -> set[str]:
    """The fields of the profile that hold an illegal value; all of them if it is missing."""
    fields = {violation.field for violation in violations}
    if PROFILE_PATH in fields:
        return {descriptor.name for descriptor in profile_pb2.Profile.DESCRIPTOR.fields}
    prefix = f"{PROFILE_PATH}."
    below = [field.removeprefix(prefix) for field in fields if field.startswith(prefix)]
    return {path.split(".")[0].split("[")[0] for path in below}
