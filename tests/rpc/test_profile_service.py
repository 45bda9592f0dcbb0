"""Profiles over a real channel: stored, read back, listed, taken out of use, and every bad input at once."""

from __future__ import annotations

import math
import uuid
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import ErrorInfo, PreconditionFailure, ResourceInfo
from pydantic import SecretStr

from inferplan.rpc.convert.profile import profile_to_wire
from inferplan.rpc.server import PlanningServer, ServerOptions
from inferplan.rpc.startup import open_planner
from inferplan.settings import Settings
from inferplan.storage.database import Database
from inferplan.storage.plans import PlanStore
from inferplan.v1 import (
    plan_service_pb2,
    plan_service_pb2_grpc,
    profile_pb2,
    profile_service_pb2,
    profile_service_pb2_grpc,
)
from support.plans import plan_content
from support.profiles import profile, sha256_of
from support.requests import detail, violations

Stub = profile_service_pb2_grpc.ProfileServiceStub


@pytest.fixture(scope="module")
def profiles(channel: grpc.Channel) -> Stub:
    return Stub(channel)


def create_request(raw_sha256: str = "", request_id: str = "") -> profile_service_pb2.CreateProfileRequest:
    return profile_service_pb2.CreateProfileRequest(
        profile=profile_to_wire(profile(raw_sha256, labels={"team": "search"})), request_id=request_id
    )


def get(profiles: Stub, name: str) -> profile_pb2.Profile:
    return profiles.GetProfile(profile_service_pb2.GetProfileRequest(name=name))


def withdraw(profiles: Stub, name: str, reason: str, superseded_by: str = "") -> profile_pb2.Profile:
    return profiles.WithdrawProfile(
        profile_service_pb2.WithdrawProfileRequest(name=name, reason=reason, superseded_by=superseded_by)
    )


def failed(caught: pytest.ExceptionInfo[grpc.RpcError], code: grpc.StatusCode) -> grpc.RpcError:
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is code, caught.value.details()
    return caught.value


def test_a_profile_is_stored_and_read_back(profiles: Stub) -> None:
    request = create_request()
    created = profiles.CreateProfile(request)
    assert created.name.startswith("profiles/")
    assert (created.status, created.created_by) == (profile_pb2.Profile.STATUS_ACTIVE, "anonymous")
    assert created.provenance == request.profile.provenance
    assert created.serving_points[0].latencies == request.profile.serving_points[0].latencies
    assert created.labels == {"team": "search"}
    assert get(profiles, created.name) == created


def test_aliases_are_stored_as_ids(profiles: Stub) -> None:
    request = create_request()
    request.profile.provenance.accelerator = "H100-SXM-80GB"
    request.profile.provenance.engine = "engines/vllm"
    request.profile.serving_points[0].model = "LLAMA-3.1-70B"
    created = profiles.CreateProfile(request)
    assert created.provenance.accelerator == "accelerators/h100-sxm-80gb"
    assert created.provenance.engine == "engines/vllm"
    assert created.serving_points[0].model == "models/llama-3.1-70b"


def test_what_only_the_service_says_is_not_taken_from_the_caller(profiles: Stub) -> None:
    request = create_request()
    request.profile.name = "profiles/mine"
    request.profile.status = profile_pb2.Profile.STATUS_WITHDRAWN
    request.profile.created_by = "eve"
    request.profile.serving_points[0].broken_rules.add(rule="MADE_UP")
    created = profiles.CreateProfile(request)
    assert created.name != "profiles/mine"
    assert (created.status, created.created_by) == (profile_pb2.Profile.STATUS_ACTIVE, "anonymous")
    assert "MADE_UP" not in {rule.rule for rule in created.serving_points[0].broken_rules}


def test_a_repeated_request_and_a_repeated_file_give_the_first_profile(profiles: Stub) -> None:
    request = create_request(request_id=str(uuid.uuid4()))
    first = profiles.CreateProfile(request)
    request.request_id = request.request_id.upper()
    assert profiles.CreateProfile(request) == first
    request.profile.provenance.node = "another"
    with pytest.raises(grpc.RpcError) as caught:
        profiles.CreateProfile(request)
    assert detail(failed(caught, grpc.StatusCode.ALREADY_EXISTS), ResourceInfo) is not None
    of_file = profiles.CreateProfile(create_request(sha256_of("a file")))
    assert profiles.CreateProfile(create_request(sha256_of("a file"), str(uuid.uuid4()))) == of_file


def test_everything_wrong_is_told_at_once(profiles: Stub) -> None:
    request = create_request(request_id="no uuid")
    request.profile.provenance.accelerator = "h100-smx-80gb"
    request.profile.provenance.engine = ""
    point = request.profile.serving_points[0]
    point.model = "lama-3.1-70b"
    point.load.ClearField("output_tokens")
    with pytest.raises(grpc.RpcError) as caught:
        profiles.CreateProfile(request)
    found = violations(caught.value)
    assert set(found) == {
        "request_id",
        "profile.provenance.accelerator",
        "profile.provenance.engine",
        "profile.serving_points[0].model",
        "profile.serving_points[0].load.output_tokens",
    }
    assert "h100-sxm-80gb" in found["profile.provenance.accelerator"]
    assert "llama-3.1-70b" in found["profile.serving_points[0].model"]


def test_figures_that_no_measurement_can_have_are_refused(profiles: Stub) -> None:
    request = create_request()
    request.profile.provenance.measure_time.CopyFrom(Timestamp(seconds=2**60))
    request.profile.provenance.raw_sha256 = "ABC"
    point = request.profile.serving_points[0]
    point.requests_per_second = math.nan
    point.output_tokens_per_second = -1
    point.duration.CopyFrom(Duration(seconds=-5))
    point.latencies[0].percentile = 100
    request.profile.step_measurements.add(decoding_sequences=1)
    request.profile.device_measurements.add(rate_per_second=math.inf)
    with pytest.raises(grpc.RpcError) as caught:
        profiles.CreateProfile(request)
    assert set(violations(caught.value)) == {
        "profile.provenance.measure_time",
        "profile.provenance.raw_sha256",
        "profile.serving_points[0].requests_per_second",
        "profile.serving_points[0].output_tokens_per_second",
        "profile.serving_points[0].duration",
        "profile.serving_points[0].latencies[0].percentile",
        "profile.step_measurements[0].duration",
        "profile.device_measurements[0].kind",
        "profile.device_measurements[0].rate_per_second",
    }


@pytest.mark.parametrize("fill", ["nothing", "provenance only"])
def test_a_profile_that_measured_nothing_is_refused(profiles: Stub, fill: str) -> None:
    request = create_request()
    request.profile.ClearField("serving_points")
    if fill == "nothing":
        request.ClearField("profile")
    with pytest.raises(grpc.RpcError) as caught:
        profiles.CreateProfile(request)
    assert set(violations(caught.value)) == {"profile"}


def test_a_profile_that_could_not_be_sent_back_is_refused(profiles: Stub) -> None:
    request = create_request()
    point = request.profile.serving_points[0]
    request.profile.serving_points.extend([point] * (3 * 1024 * 1024 // point.ByteSize()))
    with pytest.raises(grpc.RpcError) as caught:
        profiles.CreateProfile(request)
    assert violations(caught.value).keys() <= {"profile", "profile.serving_points"}


def test_lists_page_newest_first_and_tokens_belong_to_their_list(profiles: Stub) -> None:
    created = [profiles.CreateProfile(create_request()).name for _ in range(3)]
    names: list[str] = []
    token = ""
    while len(names) < 3:
        page = profiles.ListProfiles(profile_service_pb2.ListProfilesRequest(page_size=1, page_token=token))
        names += [each.name for each in page.profiles]
        token = page.next_page_token
    assert names == created[::-1]
    for request, field in (
        (profile_service_pb2.ListProfilesRequest(page_token=token[:-3]), "page_token"),
        (profile_service_pb2.ListProfilesRequest(page_size=-1), "page_size"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            profiles.ListProfiles(request)
        assert list(violations(caught.value)) == [field]


def test_withdrawing_says_why_and_deletes_nothing(profiles: Stub) -> None:
    created = profiles.CreateProfile(create_request())
    withdrawn = withdraw(profiles, created.name, "node throttled")
    assert (withdrawn.status, withdrawn.status_reason) == (profile_pb2.Profile.STATUS_WITHDRAWN, "node throttled")
    assert get(profiles, created.name) == withdrawn == withdraw(profiles, created.name, "node throttled")
    with pytest.raises(grpc.RpcError) as caught:
        withdraw(profiles, created.name, "another reason")
    failure = detail(failed(caught, grpc.StatusCode.FAILED_PRECONDITION), PreconditionFailure)
    info = detail(caught.value, ErrorInfo)
    assert failure is not None
    assert info is not None
    assert (failure.violations[0].type, failure.violations[0].subject) == ("ALREADY_WITHDRAWN", created.name)
    assert "node throttled" in failure.violations[0].description
    assert info.reason == "PRECONDITION_FAILED"


def test_a_profile_is_superseded_by_another(profiles: Stub) -> None:
    old, new = (profiles.CreateProfile(create_request()).name for _ in range(2))
    for replacement in (old, "profiles/nobody"):
        with pytest.raises(grpc.RpcError) as caught:
            withdraw(profiles, old, "newer driver", replacement)
        assert list(violations(caught.value)) == ["superseded_by"]
    superseded = withdraw(profiles, old, "newer driver", new)
    assert (superseded.status, superseded.superseded_by) == (profile_pb2.Profile.STATUS_SUPERSEDED, new)


@pytest.mark.parametrize("act", ["get", "withdraw"])
def test_an_unknown_profile_is_not_found_and_an_illegal_name_is_told(profiles: Stub, act: str) -> None:
    def call(name: str) -> profile_pb2.Profile:
        return get(profiles, name) if act == "get" else withdraw(profiles, name, "why")

    with pytest.raises(grpc.RpcError) as caught:
        call("profiles/nobody")
    resource = detail(failed(caught, grpc.StatusCode.NOT_FOUND), ResourceInfo)
    assert resource is not None
    assert resource.resource_name == "profiles/nobody"
    with pytest.raises(grpc.RpcError) as caught:
        call("nobody's")
    assert list(violations(caught.value)) == ["name"]


def test_a_profile_is_not_withdrawn_without_a_reason(profiles: Stub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        withdraw(profiles, "profiles/a", "")
    assert list(violations(caught.value)) == ["reason"]


def test_plans_say_which_of_their_profiles_were_withdrawn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'inferplan.db'}"
    options = ServerOptions(listen="127.0.0.1:0", compile_first=False)
    with (
        open_planner(Settings(database_url=SecretStr(url))) as planner,
        PlanningServer(planner, options) as running,
        grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
        closing(Database.open(url)) as database,
    ):
        profiles = Stub(channel)
        kept, gone, replaced = (profiles.CreateProfile(create_request()).name for _ in range(3))
        for names in ((kept,), (replaced, kept, gone), ()):
            content = plan_content(profiles=names)
            PlanStore(database).create_plan("chat", content, allow_missing_deployment=True)
        plans = plan_service_pb2_grpc.PlanServiceStub(channel)
        listed = plan_service_pb2.ListPlansRequest(parent="deployments/chat")
        assert [list(plan.withdrawn_profiles) for plan in plans.ListPlans(listed).plans] == [[], [], []]
        withdraw(profiles, gone, "node throttled")
        withdraw(profiles, replaced, "newer driver", kept)
        assert [list(plan.withdrawn_profiles) for plan in plans.ListPlans(listed).plans] == [[], [replaced, gone], []]
        read = plans.GetPlan(plan_service_pb2.GetPlanRequest(name="deployments/chat/plans/2"))
        assert (list(read.withdrawn_profiles), list(read.profiles)) == ([replaced, gone], [replaced, kept, gone])
