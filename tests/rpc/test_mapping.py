"""Domain types and messages correspond field for field; what is written is read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.planning.memory import MemoryRequest
from inferplan.profiles.calibration import Calibration
from inferplan.profiles.profile import ImportHeader, Profile
from inferplan.resources.plan import Plan, PlanContent
from inferplan.rpc.convert.calibration import calibration_to_wire
from inferplan.rpc.convert.mapping import (
    datetime_from_timestamp,
    duration_from_seconds,
    from_message,
    seconds_from_duration,
    timestamp_from_datetime,
    to_message,
)
from inferplan.rpc.convert.plan import plan_input_from_wire, plan_to_wire
from inferplan.rpc.convert.profile import import_header_from_wire, profile_from_wire, profile_to_wire
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.explanation import Quantity
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LengthPair,
    LognormalLength,
    TrafficClass,
    UniformLength,
)
from inferplan.v1 import memory_pb2, plan_pb2, profile_service_pb2, sizing_service_pb2, workload_pb2
from support import strategies
from support.plans import plan_content

# Numbers that the contract's unsigned fields and durations can hold.
with patch.dict(strategies._LEAVES, {int: st.integers(1, 10_000), float: st.floats(1e-3, 1e6), str: st.just("text")}):
    CONTENTS = strategies.values_of(PlanContent, most_elements=1)
    CALIBRATIONS = strategies.values_of(Calibration, most_elements=2)
    PROFILES = strategies.values_of(Profile, most_elements=2)


@settings(max_examples=15)
@given(CONTENTS)
def test_a_plan_is_written_whole(content: PlanContent) -> None:
    """Every field of every part finds its counterpart, or the conversion raises; equal plans give equal bytes."""
    plan = Plan("chatbot", 3, content, "tester", datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC))
    message = plan_to_wire(plan)
    assert message.name == "deployments/chatbot/plans/3"
    assert message.fleet.gpus == content.fleet.gpus
    assert len(message.steps) == len(content.steps)
    assert len(message.warnings) == len(content.warnings)
    assert message.configuration.accelerator == f"accelerators/{content.configuration.accelerator}"
    assert plan_to_wire(plan).SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


@settings(max_examples=30)
@given(PROFILES)
def test_a_profile_is_written_whole(profile: Profile) -> None:
    """Every field of every part finds its counterpart, or the conversion raises; what is read is written alike."""
    message = profile_to_wire(profile)
    assert message.name == profile.name
    assert message.provenance.accelerator == f"accelerators/{profile.provenance.accelerator}"
    assert len(message.serving_points) == len(profile.serving_points)
    again = profile_to_wire(profile_from_wire(message))
    for field in ("name", "status", "status_reason", "superseded_by", "create_time", "created_by"):
        message.ClearField(field)  # the service's own, never taken from a caller
        again.ClearField(field)
    assert again.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


@settings(max_examples=20)
@given(CALIBRATIONS)
def test_a_calibration_is_written_whole(calibration: Calibration) -> None:
    message = calibration_to_wire(calibration)
    assert message.name == f"calibrations/{calibration.name}"
    assert len(message.accelerators) == len(calibration.accelerators)
    assert len(message.coefficients) == len(calibration.coefficients)
    assert message.measured.longest_input_tokens == calibration.measured.longest_input_tokens


def test_an_import_header_may_name_resources_in_full() -> None:
    message = profile_service_pb2.ImportProfileHeader(filename="a.json", model="models/llama-3.1-8b")
    message.provenance.accelerator = "accelerators/h100-sxm-80gb"
    message.engine.engine = "engines/vllm"
    header = import_header_from_wire(message)
    assert (header.model, header.provenance.accelerator) == ("llama-3.1-8b", "h100-sxm-80gb")
    assert (header.engine.engine, header.parallelism) == ("vllm", None)
    assert import_header_from_wire(profile_service_pb2.ImportProfileHeader()) == ImportHeader()


TOKENS = st.integers(1, 10**6)
# Durations hold whole nanoseconds, so only such seconds come back exactly.
SECONDS = st.integers(0, 10**12).map(lambda nanoseconds: nanoseconds / 10**9)
LENGTHS = st.one_of(
    st.builds(ConstantLength, TOKENS),
    st.builds(UniformLength, TOKENS, TOKENS),
    st.builds(LognormalLength, st.floats(1, 1e6), st.floats(0.01, 10), st.none() | TOKENS),
)
TRAFFIC = st.builds(
    TrafficClass,
    traffic_class_id=st.sampled_from(["", "chat", "code"]),
    requests_per_second=st.none() | st.floats(1e-3, 1e6),
    arrivals=st.builds(
        Arrivals,
        st.sampled_from(ArrivalProcess),
        st.none() | st.floats(0.1, 10),
        st.lists(SECONDS, max_size=3).map(tuple),
    ),
    input_tokens=st.none() | LENGTHS,
    output_tokens=st.none() | LENGTHS,
    length_pairs=st.lists(st.builds(LengthPair, TOKENS, TOKENS), max_size=3).map(tuple),
    prefix_cache_hit_ratio=st.none() | st.floats(0, 1),
)


@given(TRAFFIC)
def test_traffic_comes_back_as_it_was(traffic: TrafficClass) -> None:
    assert from_message(to_message(traffic, workload_pb2.TrafficClass), TrafficClass) == traffic


def test_a_plan_input_comes_back_as_it_was() -> None:
    plan_input = plan_content().input
    assert plan_input_from_wire(to_message(plan_input, plan_pb2.PlanInput)) == plan_input


def test_an_empty_memory_request_has_the_defaults() -> None:
    request = from_message(sizing_service_pb2.EstimateMemoryRequest(), MemoryRequest)
    assert request.parallelism.resolved().gpus == 1
    assert request.engine.max_num_seqs is None
    assert request.measured.weights_bytes is None


def test_a_part_that_must_be_there_and_is_not_reads_as_empty() -> None:
    plan_input = plan_input_from_wire(plan_pb2.PlanInput())
    assert plan_input.model.model is None
    assert plan_input.hardware.accelerators == ()
    assert plan_input.workload.traffic_classes == ()


def test_absent_differs_from_zero() -> None:
    message = workload_pb2.TrafficClass(prefix_cache_hit_ratio=0)
    assert from_message(message, TrafficClass).prefix_cache_hit_ratio == 0
    assert from_message(workload_pb2.TrafficClass(), TrafficClass).prefix_cache_hit_ratio is None


def test_a_value_of_an_enum_that_is_not_known_reads_as_absent() -> None:
    message = workload_pb2.EngineSettings.FromString(b"\x18\x63")  # field 3, weight_precision, is 99
    assert from_message(message, EngineSettings).weight_precision is None


def test_a_field_without_counterpart_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match=r"BrokenRule has no field for Quantity\.symbol"):
        to_message(Quantity("x", 1.0), memory_pb2.BrokenRule)


@given(st.floats(-1e9, 1e9))
def test_seconds_round_to_nanoseconds(seconds: float) -> None:
    assert abs(seconds_from_duration(duration_from_seconds(seconds)) - seconds) <= 5e-10 + 1e-15 * abs(seconds)


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.integers(-12, 14))
def test_moments_come_back_in_utc(moment: datetime, hours: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    back = datetime_from_timestamp(timestamp_from_datetime(aware))
    assert back == aware
    assert back.tzinfo is UTC
