"""Benchmark files over a real channel: streamed in pieces, stored whole or not at all, known by their bytes."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from inferplan.errors import CancelledError
from inferplan.rpc import import_stream, profile_servicer
from inferplan.v1 import profile_pb2, profile_service_pb2, profile_service_pb2_grpc, workload_pb2
from support.requests import violations

Stub = profile_service_pb2_grpc.ProfileServiceStub
Request = profile_service_pb2.ImportProfileRequest
Header = profile_service_pb2.ImportProfileHeader

BENCHMARKS = Path(__file__).parents[1] / "data" / "benchmarks"

TABLE = """row_id,group,engine,engine_version,gpu,n_gpu,tp,pp,ep,model,precision,isl,osl,concurrency,ttft_ms,tpot_ms
e1,aic,vLLM,0.10.0,H100-SXM5-80GB,2,2,1,1,meta-llama/Llama-3.1-70B,fp8,1024,1024,8,150.2496,18.2208
e2,aic,vLLM,0.10.0,H100-SXM5-80GB,2,2,1,1,meta-llama/Llama-3.1-70B,fp8,1024,1024,64,415.1325,1.2
e3,aic,SGLang,0.5.0,H100-SXM5-80GB,2,2,1,1,meta-llama/Llama-3.1-70B,fp8,1024,1024,8,150.2496,18.2208
"""
"""Two engines; the TPOT of e2 is below what streaming the weights alone takes (70e9 bytes over two GPUs of 3.35e12
bytes/s: 10 ms)."""


@pytest.fixture(scope="module")
def profiles(channel: grpc.Channel) -> Stub:
    return Stub(channel)


def header(**fields: Any) -> Header:
    return Header(
        filename="result.json",
        provenance=profile_pb2.ProfileProvenance(accelerator="h100-sxm-80gb", engine="vllm", node="gpu-1"),
        model="llama-3.1-8b",
        parallelism=workload_pb2.Parallelism(tensor_parallel=1),
        **fields,
    )


def messages(content: bytes, first: Header | None = None, chunk_bytes: int = 1000) -> Iterator[Request]:
    yield Request(header=first or header())
    for start in range(0, len(content), chunk_bytes):
        yield Request(chunk=content[start : start + chunk_bytes])


def unique(name: str, text: str) -> bytes:
    """The file's content, told from others by a comment or space that means nothing."""
    return (BENCHMARKS / name).read_bytes() + b"\n" * (1 + sum(text.encode()) % 997)


def stored_names(profiles: Stub) -> set[str]:
    listed = profiles.ListProfiles(profile_service_pb2.ListProfilesRequest(page_size=1000))
    return {each.name for each in listed.profiles}


def test_a_file_is_stored_with_its_provenance(profiles: Stub) -> None:
    content = unique("inference-perf_stage_0_lifecycle_metrics.json", "provenance")
    response = profiles.ImportProfile(messages(content, header(labels={"team": "search"})))
    assert (response.tool, response.accepted_points, response.rejected_points) == ("inference-perf", 1, 0)
    assert not response.already_imported
    (profile,) = response.profiles
    assert profile == response.profile
    assert profile == profiles.GetProfile(profile_service_pb2.GetProfileRequest(name=profile.name))
    provenance = profile.provenance
    assert provenance.raw_sha256 == hashlib.sha256(content).hexdigest()
    assert (provenance.accelerator, provenance.engine) == ("accelerators/h100-sxm-80gb", "engines/vllm")
    assert (provenance.node, dict(profile.labels)) == ("gpu-1", {"team": "search"})
    assert profile.serving_points[0].model == "models/llama-3.1-8b"
    assert any("TPOT was recomputed" in note for note in response.notes)


def test_the_same_bytes_again_return_the_first_whatever_the_header_says(profiles: Stub) -> None:
    content = unique("inferencex_glm5.json", "again")
    first = profiles.ImportProfile(messages(content))
    again = profiles.ImportProfile(messages(content, header(labels={"a": "b"}), chunk_bytes=1))
    assert again.already_imported
    assert list(again.profiles) == list(first.profiles)
    assert (again.accepted_points, again.rejected_points) == (first.accepted_points, first.rejected_points)


def test_a_withdrawn_import_comes_back_only_with_another_header(profiles: Stub) -> None:
    content = unique("inferencex_glm5.json", "withdrawn import")
    first = profiles.ImportProfile(messages(content)).profile
    profiles.WithdrawProfile(profile_service_pb2.WithdrawProfileRequest(name=first.name, reason="wrong GPU"))
    same = header()
    same.filename = "copy.json"
    same.provenance.raw_sha256 = hashlib.sha256(content).hexdigest()
    assert profiles.ImportProfile(messages(content, same)).profile.status == profile_pb2.Profile.STATUS_WITHDRAWN
    same.provenance.accelerator = "h200-sxm-141gb"
    corrected = profiles.ImportProfile(messages(content, same))
    assert not corrected.already_imported
    assert corrected.profile.status == profile_pb2.Profile.STATUS_ACTIVE
    assert corrected.profile.name != first.name


def test_a_file_of_several_profiles_stores_all_and_names_what_was_rejected(profiles: Stub) -> None:
    response = profiles.ImportProfile(messages(TABLE.encode()))
    assert (response.tool, response.accepted_points, response.rejected_points) == ("inferplan-csv", 2, 1)
    assert [each.provenance.engine for each in response.profiles] == ["engines/vllm", "engines/sglang"]
    assert response.profile == response.profiles[0]
    assert {each.name for each in response.profiles} <= stored_names(profiles)
    _, rejected = response.profiles[0].serving_points
    (rule,) = rejected.broken_rules
    assert rule.rule == "FASTER_THAN_PHYSICS"
    assert "1.2 ms" in rule.description
    again = profiles.ImportProfile(messages(TABLE.encode()))
    assert (again.already_imported, list(again.profiles)) == (True, list(response.profiles))


def test_a_row_of_a_model_that_is_not_known_is_named_and_the_others_are_read(profiles: Stub) -> None:
    table = TABLE.replace("meta-llama/Llama-3.1-70B", "somebody/Own-7B", 1)
    response = profiles.ImportProfile(messages(table.encode()))
    assert any("e1" in note and "somebody/Own-7B" in note for note in response.notes)
    assert (response.accepted_points, response.rejected_points) == (1, 1)


def test_a_point_of_a_model_that_is_not_known_is_kept_and_not_used(profiles: Stub) -> None:
    content = (BENCHMARKS / "vllm_benchmark_serving_2025-05_4xL40S_inf.json").read_bytes()
    content = content.replace(b"meta-llama/Llama-3.2-3B-Instruct", b"somebody/Own-7B")
    response = profiles.ImportProfile(messages(content))
    (point,) = response.profile.serving_points
    assert (point.model, response.accepted_points, response.rejected_points) == ("models/somebody/Own-7B", 0, 1)
    assert "UNKNOWN_MODEL" in {rule.rule for rule in point.broken_rules}


@pytest.mark.parametrize(
    ("stream", "field"),
    [
        ([], "header"),
        ([Request()], "header|chunk"),
        ([Request(chunk=b"{}")], "header"),
        ([Request(header=Header())], "header.provenance"),
        ([Request(header=header()), Request(header=header())], "header"),
        ([Request(header=header()), Request(chunk=b"{}"), Request(header=header())], "header"),
        ([Request(header=header()), Request(chunk=b"x" * (1024 * 1024 + 1))], "chunk"),
        ([Request(header=header()), Request()], "header|chunk"),
        ([Request(header=header())], "chunk"),
        ([Request(header=header()), Request(chunk=b"")], "chunk"),
        ([Request(header=header()), Request(chunk=b"no benchmark")], "file"),
        ([Request(header=header(tool="abacus")), Request(chunk=b"{}")], "header.tool"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_and_stores_nothing(
    profiles: Stub, stream: list[Request], field: str
) -> None:
    before = stored_names(profiles)
    with pytest.raises(grpc.RpcError) as caught:
        profiles.ImportProfile(iter(stream))
    assert list(violations(caught.value)) == [field]
    assert stored_names(profiles) == before


def test_a_file_that_is_too_large_is_refused_before_it_is_whole(
    profiles: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert import_stream.MAXIMUM_FILE_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(import_stream, "MAXIMUM_FILE_BYTES", 2500)
    with pytest.raises(grpc.RpcError) as caught:
        profiles.ImportProfile(messages(b"x" * 10_000))
    assert "2500" in violations(caught.value)["chunk"]


def test_everything_wrong_with_a_header_is_told_at_once(profiles: Stub) -> None:
    content = unique("inferencex_glm5.json", "bad header")
    bad = header()
    bad.provenance.accelerator = "h100-smx-80gb"
    bad.provenance.engine = "vlm"
    bad.model = "lama-3.1-8b"
    bad.provenance.raw_sha256 = hashlib.sha256(b"another file").hexdigest()
    with pytest.raises(grpc.RpcError) as caught:
        profiles.ImportProfile(messages(content, bad))
    found = violations(caught.value)
    assert set(found) == {
        "header.provenance.accelerator",
        "header.provenance.engine",
        "header.provenance.raw_sha256",
        "header.model",
    }
    assert "h100-sxm-80gb" in found["header.provenance.accelerator"]
    assert hashlib.sha256(content).hexdigest() in found["header.provenance.raw_sha256"]


def test_profiles_that_could_not_be_sent_back_are_not_stored(profiles: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_servicer, "MAXIMUM_PROFILE_BYTES", 500)
    before = stored_names(profiles)
    with pytest.raises(grpc.RpcError) as caught:
        profiles.ImportProfile(messages(TABLE.replace("e1", "f1").encode()))
    assert "at most 500" in violations(caught.value)["file"]
    assert stored_names(profiles) == before


def test_a_file_that_is_read_for_long_passes_the_gate(profiles: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_servicer, "UNGATED_FILE_BYTES", 0)
    assert profiles.ImportProfile(messages(unique("inferencex_glm5.json", "gated"))).profile.name


def test_a_stream_that_its_client_breaks_off_stores_nothing(profiles: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    content = unique("inferencex_glm5.json", "broken off")
    begun, done = threading.Event(), threading.Event()
    outcomes: queue.Queue[object] = queue.Queue()

    def watched(requests: Iterator[Request], is_active: Callable[[], bool]) -> tuple[Header, bytes]:
        begun.set()
        try:
            outcome = import_stream.read_import_stream(requests, is_active)
        except BaseException as error:
            outcomes.put(error)
            raise
        outcomes.put(outcome)
        return outcome

    def broken_off() -> Iterator[Request]:
        yield from messages(content)
        done.wait(60)

    monkeypatch.setattr(profile_servicer, "read_import_stream", watched)
    call = profiles.ImportProfile.future(broken_off())
    assert begun.wait(60)
    call.cancel()
    assert isinstance(outcomes.get(timeout=60), CancelledError)
    done.set()
    assert not profiles.ImportProfile(messages(content)).already_imported
