"""Calibrations over a real channel: fitted from active profiles, idempotent, cancelled with the call."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, PreconditionFailure, ResourceInfo

from inferplan.errors import CancelledError
from inferplan.planning import calibration_library
from inferplan.profiles.calibration import Calibration, MeasuredCase
from inferplan.rpc.convert.profile import profile_to_wire
from inferplan.v1 import calibration_pb2, profile_service_pb2, profile_service_pb2_grpc
from support.profiles import profile, serving_point
from support.requests import detail, violations

Stub = profile_service_pb2_grpc.ProfileServiceStub
Fit = profile_service_pb2.FitCalibrationRequest

MEASURED = ((8, 0.0182208), (64, 0.0287686))
"""Clients and mean TPOT in seconds of Llama-3.1-70B FP8 on two H100s, ai-dynamo/aiconfigurator's silicon sample."""


@pytest.fixture(scope="module")
def service(channel: grpc.Channel) -> Stub:
    return Stub(channel)


def stored_profile(service: Stub, engine: str = "vllm") -> str:
    points = tuple(serving_point(clients, tpot) for clients, tpot in MEASURED)
    message = profile_to_wire(dataclasses.replace(profile(engine=engine), serving_points=points))
    return service.CreateProfile(profile_service_pb2.CreateProfileRequest(profile=message)).name


def withdraw(service: Stub, name: str) -> None:
    service.WithdrawProfile(profile_service_pb2.WithdrawProfileRequest(name=name, reason="node throttled"))


def get(service: Stub, name: str) -> calibration_pb2.Calibration:
    return service.GetCalibration(profile_service_pb2.GetCalibrationRequest(name=name))


def test_a_calibration_is_fitted_stored_and_read_back(service: Stub) -> None:
    name = stored_profile(service)
    fitted = service.FitCalibration(Fit(engine="engines/vllm", profiles=[name], calibration_id="llama-on-h100"))
    assert fitted.name == "calibrations/llama-on-h100"
    assert (fitted.engine, list(fitted.accelerators)) == ("engines/vllm", ["accelerators/h100-sxm-80gb"])
    assert (list(fitted.profiles), fitted.points, fitted.built_in) == ([name], 2, False)
    tpot = next(summary for summary in fitted.errors if summary.figure == "tpot")
    # The fit goes through both points: what published TPOTs repeat to.
    assert tpot.median_absolute_relative_error < 0.05
    assert get(service, fitted.name) == fitted


def test_only_active_profiles_of_the_engine_are_used(service: Stub) -> None:
    kept, gone, other = stored_profile(service), stored_profile(service), stored_profile(service, "sglang")
    withdraw(service, gone)
    fitted = service.FitCalibration(Fit(engine="vllm", validate_only=True))
    assert kept in fitted.profiles
    assert not {gone, other} & set(fitted.profiles)
    with pytest.raises(grpc.RpcError) as caught:
        service.FitCalibration(Fit(engine="vllm", profiles=[kept, gone, other, "profiles/nobody"]))
    found = violations(caught.value)
    assert set(found) == {"profiles[1]", "profiles[2]", "profiles[3]"}
    assert "node throttled" in found["profiles[1]"]


def test_validate_only_stores_nothing(service: Stub) -> None:
    name = stored_profile(service)
    fitted = service.FitCalibration(Fit(engine="vllm", profiles=[name], calibration_id="dry", validate_only=True))
    assert (fitted.name, fitted.points) == ("", 2)
    with pytest.raises(grpc.RpcError) as caught:
        get(service, "calibrations/dry")
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert detail(caught.value, ResourceInfo) is not None


def test_a_repeated_request_gives_the_stored_calibration_even_if_a_profile_was_withdrawn(service: Stub) -> None:
    name = stored_profile(service)
    request = Fit(engine="vllm", profiles=[name], request_id=str(uuid.uuid4()))
    first = service.FitCalibration(request)
    withdraw(service, name)
    request.request_id = request.request_id.upper()
    assert service.FitCalibration(request) == first
    for change in (Fit(engine="vllm", request_id=request.request_id), Fit(engine="vllm", calibration_id="llama-again")):
        if change.calibration_id:
            service.FitCalibration(Fit(engine="vllm", profiles=[stored_profile(service)], calibration_id="llama-again"))
        with pytest.raises(grpc.RpcError) as caught:
            service.FitCalibration(change)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS


def test_bad_requests(service: Stub) -> None:
    for request, fields in (
        (Fit(), {"engine"}),
        (Fit(engine="vlm", calibration_id="builtin-mine"), {"engine", "calibration_id"}),
        (Fit(engine="vllm", calibration_id="datasheet"), {"calibration_id"}),
        (Fit(engine="vllm", calibration_id="Mine!", request_id="x"), {"calibration_id", "request_id"}),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            service.FitCalibration(request)
        assert set(violations(caught.value)) == fields


def test_nothing_to_fit_says_why(service: Stub) -> None:
    rejected = dataclasses.replace(serving_point(), model="gpt-oss-20b")
    for engine, points in (("tensorrt-llm", ()), ("sglang", (rejected,))):
        names = []
        if points:
            message = profile_to_wire(dataclasses.replace(profile(engine=engine), serving_points=points))
            message.serving_points[0].parallelism.tensor_parallel = 3
            names = [service.CreateProfile(profile_service_pb2.CreateProfileRequest(profile=message)).name]
        with pytest.raises(grpc.RpcError) as caught:
            service.FitCalibration(Fit(engine=engine, profiles=names))
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION, caught.value.details()
        failure = detail(caught.value, PreconditionFailure)
        assert failure is not None
        assert failure.violations[0].type == "NOTHING_TO_FIT"
        assert "3" in failure.violations[0].description or engine == "tensorrt-llm"


def test_a_fit_stops_when_its_caller_goes(service: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    name = stored_profile(service)
    begun, stopped = threading.Event(), threading.Event()

    def endless(_cases: list[MeasuredCase], _name: str, *, check: Callable[[], None]) -> Calibration:
        begun.set()
        while True:
            try:
                check()
            except CancelledError:
                stopped.set()
                raise

    monkeypatch.setattr(calibration_library, "fit_calibration", endless)
    call = service.FitCalibration.future(Fit(engine="vllm", profiles=[name], calibration_id="stopped"))
    assert begun.wait(60)
    call.cancel()
    assert stopped.wait(60)
    with pytest.raises(grpc.RpcError):
        get(service, "calibrations/stopped")


def test_lists_hold_stored_calibrations_newest_first_and_then_those_built_in(service: Stub) -> None:
    name = stored_profile(service)
    stored = [service.FitCalibration(Fit(engine="vllm", profiles=[name])).name for _ in range(2)]
    listed: list[calibration_pb2.Calibration] = []
    token = ""
    while True:
        page = service.ListCalibrations(profile_service_pb2.ListCalibrationsRequest(page_size=1, page_token=token))
        listed += page.calibrations
        assert len(page.calibrations) == 1
        token = page.next_page_token
        if not token:
            break
    names = [each.name for each in listed]
    assert names[:2] == stored[::-1]
    assert names[-3:] == [
        "calibrations/builtin-sglang",
        "calibrations/builtin-tensorrt-llm",
        "calibrations/builtin-vllm",
    ]
    assert [each.built_in for each in listed] == [False] * (len(listed) - 3) + [True] * 3
    whole = service.ListCalibrations(profile_service_pb2.ListCalibrationsRequest(page_size=1000))
    assert [each.name for each in whole.calibrations] == names
    assert whole.next_page_token == ""
    assert get(service, "calibrations/builtin-vllm") == listed[-1]


def test_a_filter_applies_to_what_ships_too(service: Stub) -> None:
    listed = service.ListCalibrations(profile_service_pb2.ListCalibrationsRequest(filter="engine = engines/sglang"))
    assert [each.name for each in listed.calibrations if each.built_in] == ["calibrations/builtin-sglang"]
    assert {each.engine for each in listed.calibrations} == {"engines/sglang"}
    with pytest.raises(grpc.RpcError) as caught:
        service.ListCalibrations(profile_service_pb2.ListCalibrationsRequest(filter="motor = vllm"))
    assert list(violations(caught.value)) == ["filter"]
    info = detail(caught.value, ErrorInfo)
    assert info is not None
