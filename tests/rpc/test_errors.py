"""Domain errors as statuses: within the header's limit, with every detail that the contract promises."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, PreconditionFailure, ResourceInfo, RetryInfo

from inferplan import errors
from inferplan.rpc.errors import STATUS_CODES, status_for


def test_every_domain_error_has_a_status() -> None:
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.InferplanError) and kind is not errors.InferplanError
    }
    assert set(STATUS_CODES) == kinds
    assert grpc.StatusCode.INTERNAL not in STATUS_CODES.values()


@pytest.mark.parametrize(
    ("error", "code", "detail"),
    [
        (errors.NotFoundError("Plan", "deployments/a/plans/1"), grpc.StatusCode.NOT_FOUND, ResourceInfo),
        (errors.AlreadyExistsError("Deployment", "deployments/a"), grpc.StatusCode.ALREADY_EXISTS, ResourceInfo),
        (errors.OverloadedError("busy", 2.5), grpc.StatusCode.RESOURCE_EXHAUSTED, RetryInfo),
        (errors.StorageUnavailableError("away", 0.5), grpc.StatusCode.UNAVAILABLE, RetryInfo),
        (
            errors.NothingFitsError("no", [errors.BrokenRule("MEMORY", "h100", "too much")], "h200"),
            grpc.StatusCode.FAILED_PRECONDITION,
            PreconditionFailure,
        ),
        (
            errors.PreconditionError(errors.BrokenRule("ALREADY_WITHDRAWN", "profiles/a", "is withdrawn")),
            grpc.StatusCode.FAILED_PRECONDITION,
            PreconditionFailure,
        ),
        (errors.InvalidInputError.single("a.b", "is wrong"), grpc.StatusCode.INVALID_ARGUMENT, BadRequest),
    ],
)
def test_code_and_details(error: errors.InferplanError, code: grpc.StatusCode, detail: type[Message]) -> None:
    found_code, status = status_for(error)
    assert found_code is code
    assert status.code == code.value[0]
    assert [item.TypeName() for item in status.details].count("google.rpc.ErrorInfo") == 1
    assert [item.TypeName() for item in status.details].count(detail.DESCRIPTOR.full_name) == 1


@pytest.mark.parametrize("length", [1, 50, 500, 100_000])
@pytest.mark.parametrize("count", [1, 50, 1000])
def test_violations_stay_within_the_header(count: int, length: int) -> None:
    error = errors.InvalidInputError(errors.Violation(f"field[{n}]", "x" * length) for n in range(count))
    _code, status = status_for(error)
    # base64 makes it a third longer; HTTP/2 peers refuse headers beyond 8 KiB
    assert status.ByteSize() * 4 / 3 < 8000
    bad_request = BadRequest()
    status.details[1].Unpack(bad_request)
    assert 1 <= len(bad_request.field_violations) <= 50
    if count > len(bad_request.field_violations):
        assert (
            f"{count} violations, of which {count - len(bad_request.field_violations)} are not listed" in status.message
        )


def test_broken_rules_stay_within_the_header() -> None:
    rules = [errors.BrokenRule("RULE", f"candidate {n}", "y" * 400) for n in range(200)]
    _code, status = status_for(errors.NothingFitsError("nothing fits", rules, "z" * 5000))
    assert status.ByteSize() * 4 / 3 < 8192
