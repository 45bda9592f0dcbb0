from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, get_type_hints

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from inferplan.catalog.architecture import LatentAttention
from inferplan.catalog.precision import Precision
from inferplan.errors import InvalidInputError, StorageStateError
from inferplan.profiles.profile import ImportHeader, Profile, ProfileStatus
from inferplan.resources.plan import PlanContent
from inferplan.sizing.explanation import Quantity
from inferplan.sizing.workload import ConstantLength, LognormalLength, TrafficClass, UniformLength, Workload
from inferplan.storage.codec import (
    IMPORT_HEADER_CODEC,
    PAYLOAD_SCHEMA_VERSION,
    PROFILE_CODEC,
    PROFILE_COLUMNS,
    decode_plan_content,
    encode_plan_content,
    request_digest,
)
from support.plans import llama_2_7b, plan_content
from support.profiles import profile
from support.strategies import values_of

HINTS = get_type_hints(PlanContent)
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A whole plan takes many minutes to shrink; pytest shows where two plans differ without it."""


def round_trip(content: PlanContent) -> PlanContent:
    return decode_plan_content(encode_plan_content(content), PAYLOAD_SCHEMA_VERSION)


def document_of(content: PlanContent) -> dict[str, Any]:
    loaded = json.loads(encode_plan_content(content))
    assert isinstance(loaded, dict)
    return loaded


def with_key(document: dict[str, Any], schema_version: int = PAYLOAD_SCHEMA_VERSION) -> PlanContent:
    return decode_plan_content(json.dumps(document).encode(), schema_version)


@pytest.mark.parametrize("name", [each.name for each in fields(PlanContent)])
@given(data=st.data())
@settings(max_examples=20, phases=NO_SHRINKING)
def test_every_field_comes_back_exactly(name: str, data: st.DataObject) -> None:
    content = plan_content(**{name: data.draw(values_of(HINTS[name]))})
    read = round_trip(content)
    assert read == content
    # == takes -0.0 for 0.0, 1 for 1.0 and True for 1; repr does not, and shows a float with all the digits it has.
    assert repr(getattr(read, name)) == repr(getattr(content, name))
    assert encode_plan_content(read) == encode_plan_content(content)


@pytest.mark.parametrize(
    "length",
    [None, ConstantLength(500), UniformLength(1, 900), LognormalLength(500.0, 0.8), LognormalLength(500.0, 0.8, 4096)],
)
def test_a_length_distribution_keeps_its_kind(length: ConstantLength | UniformLength | LognormalLength | None) -> None:
    workload = Workload((TrafficClass(requests_per_second=1.0, input_tokens=length, output_tokens=ConstantLength(1)),))
    read = round_trip(plan_content(input=replace(plan_content().input, workload=workload)))
    assert read.input.workload == workload
    assert type(read.input.workload.traffic_classes[0].input_tokens) is type(length)


def test_latent_attention_is_not_taken_for_grouped_attention() -> None:
    architecture = replace(llama_2_7b().architecture, attention=LatentAttention(128, 512, 128, 64, 128, 1536))
    content = plan_content()
    resolved = replace(content.resolved, model=replace(llama_2_7b(), architecture=architecture))
    assert round_trip(replace(content, resolved=resolved)).resolved.model.architecture == architecture


def test_absent_stays_different_from_zero() -> None:
    hardware = plan_content().input.hardware
    for spares in (None, 0):
        asked = replace(plan_content().input, hardware=replace(hardware, failures_to_survive=spares))
        assert round_trip(plan_content(input=asked)).input.hardware.failures_to_survive is spares


def test_keys_of_a_mapping_come_back_as_precisions() -> None:
    peaks = round_trip(plan_content()).resolved.accelerators[0].dense_flops_per_second
    assert {type(key) for key in peaks} == {Precision}


def test_equal_contents_have_equal_bytes_however_they_were_built() -> None:
    whole = plan_content(warnings=replace_quantity(50))
    broken = plan_content(warnings=replace_quantity(50.0))
    accelerator = whole.resolved.accelerators[0]
    turned = dict(reversed(list(accelerator.dense_flops_per_second.items())))
    resolved = replace(
        whole.resolved, accelerators=(replace(accelerator, dense_flops_per_second=MappingProxyType(turned)),)
    )
    assert encode_plan_content(replace(whole, resolved=resolved)) == encode_plan_content(broken)


def replace_quantity(value: float) -> tuple[Any, ...]:
    return (replace(plan_content().warnings[0], quantities=(Quantity("c", value),)),)


def test_everything_that_cannot_be_stored_is_named_at_once() -> None:
    content = plan_content(warnings=replace_quantity(math.nan), calibration="cali\0bration", service_version="\ud800")
    with pytest.raises(InvalidInputError) as caught:
        encode_plan_content(replace(content, fleet=replace(content.fleet, cost_usd_per_hour=math.inf)))
    assert {violation.field for violation in caught.value.violations} == {
        "warnings[0].quantities[0].value",
        "calibration",
        "service_version",
        "fleet.cost_usd_per_hour",
    }


def test_a_nul_in_a_key_is_refused() -> None:
    hardware = replace(plan_content().input.hardware, cost_usd_per_gpu_hour={"h1\x0000": 1.0})
    with pytest.raises(InvalidInputError, match="NUL"):
        encode_plan_content(plan_content(input=replace(plan_content().input, hardware=hardware)))


def test_a_request_has_the_same_digest_however_it_was_built_and_another_for_every_change() -> None:
    asked = plan_content().input
    prices = {"h100-sxm-80gb": 3, "h200-sxm-141gb": 4.0}
    turned = dict(reversed(list({key: float(value) for key, value in prices.items()}.items())))
    same = [
        request_digest("chat", replace(asked, hardware=replace(asked.hardware, cost_usd_per_gpu_hour=each)))
        for each in (prices, turned)
    ]
    assert same[0] == same[1]
    others = [
        request_digest("search", asked),
        request_digest("chat", asked),
        request_digest("chat", replace(asked, calibration="calibrations/a")),
        request_digest("chat", replace(asked, hardware=replace(asked.hardware, failures_to_survive=0))),
    ]
    assert len({same[0], *others}) == 5


def test_a_payload_of_a_newer_schema_is_refused_although_it_could_be_read() -> None:
    payload = encode_plan_content(plan_content())
    with pytest.raises(StorageStateError, match="newer release"):
        decode_plan_content(payload, PAYLOAD_SCHEMA_VERSION + 1)


def test_unknown_keys_are_ignored() -> None:
    document = document_of(plan_content())
    document["colour"] = "green"
    document["fleet"]["colour"] = {"shade": 5}
    assert with_key(document) == plan_content()


def test_absent_keys_take_the_default() -> None:
    document = document_of(plan_content(profiles=("profiles/a",)))
    del document["profiles"], document["resolved"]["model"]["notes"]
    assert with_key(document) == plan_content()


@pytest.mark.parametrize("damage", ["no json", "missing key", "wrong type", "unknown enumeration", "unknown kind"])
def test_a_damaged_payload_says_where(damage: str) -> None:
    document = document_of(plan_content())
    where = "fleet"
    match damage:
        case "missing key":
            del document["fleet"]["gpus"]
        case "wrong type":
            document["fleet"]["gpus"] = "3"
        case "unknown enumeration":
            document["input"]["method"], where = "astrology", "method"
        case "unknown kind":
            document["resolved"]["model"]["architecture"]["attention"]["kind"], where = "linear", "attention"
    payload = json.dumps(document).encode()
    if damage == "no json":
        payload, where = payload[:-1], "not JSON"
    with pytest.raises(StorageStateError, match=where):
        decode_plan_content(payload, PAYLOAD_SCHEMA_VERSION)


@given(values_of(Profile))
@settings(max_examples=40, phases=NO_SHRINKING)
def test_a_profile_comes_back_exactly_but_for_what_has_columns(given_profile: Profile) -> None:
    payload = PROFILE_CODEC.encode(given_profile)
    read = PROFILE_CODEC.decode(payload, PROFILE_CODEC.schema_version)
    bare = replace(
        given_profile,
        name="",
        status=ProfileStatus.ACTIVE,
        status_reason="",
        superseded_by="",
        create_time=None,
        created_by="",
    )
    assert read == bare
    # == takes -0.0 for 0.0 and True for 1; repr does not.
    assert repr(read) == repr(bare)
    assert PROFILE_CODEC.encode(read) == payload
    assert not set(json.loads(payload)) & set(PROFILE_COLUMNS)


@given(values_of(ImportHeader), values_of(ImportHeader))
@settings(max_examples=20, phases=NO_SHRINKING)
def test_headers_have_equal_digests_exactly_if_they_are_equal(one: ImportHeader, other: ImportHeader) -> None:
    assert IMPORT_HEADER_CODEC.digest(one) == IMPORT_HEADER_CODEC.digest(replace(one))
    same_bytes = IMPORT_HEADER_CODEC.encode(one) == IMPORT_HEADER_CODEC.encode(other)
    assert (IMPORT_HEADER_CODEC.digest(one) == IMPORT_HEADER_CODEC.digest(other)) == same_bytes


def test_an_instant_without_a_zone_is_damage() -> None:
    document = json.loads(PROFILE_CODEC.encode(profile()))
    document["provenance"]["measure_time"] = "2026-02-03T04:05:06"
    with pytest.raises(StorageStateError, match=r"a stored profile is damaged: .*provenance.measure_time"):
        PROFILE_CODEC.decode(json.dumps(document).encode(), PROFILE_CODEC.schema_version)
