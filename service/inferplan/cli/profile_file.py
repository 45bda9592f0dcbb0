"""A benchmark file on its way to the service: the header from the options, then the content in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inferplan.cli.options import labels_of, precision_value
from inferplan.errors import InvalidInputError
from inferplan.v1 import profile_pb2, profile_service_pb2, workload_pb2

MAXIMUM_FILE_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
"""The contract's limits of a file and of one piece."""


def read_benchmark_file(path: Path) -> bytes:
    """The file's content. Raises InvalidInputError if it cannot be read, is empty, or is too large."""
    try:
        size = path.stat().st_size
        if size > MAXIMUM_FILE_BYTES:
            text = f"{path}: {size} bytes; a benchmark file has at most {MAXIMUM_FILE_BYTES}"
            raise InvalidInputError.single("", text)
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError.single("", f"{path}: {error.strerror or error}") from None
    if not content:
        raise InvalidInputError.single("", f"{path}: is empty")
    return content


def import_header(
    filename: str, content: bytes, labels: tuple[str, ...], said: Mapping[str, Any]
) -> profile_service_pb2.ImportProfileHeader:
    """What the options say beside the file. With its SHA-256, a file that is cut off on its way is refused."""
    return profile_service_pb2.ImportProfileHeader(
        filename=filename,
        tool=said["tool"],
        provenance=profile_pb2.ProfileProvenance(
            accelerator=said["accelerator"],
            node=said["node"],
            driver_version=said["driver"],
            engine=said["engine"],
            engine_version=said["engine_version"],
            raw_sha256=hashlib.sha256(content).hexdigest(),
            source=said["source"],
        ),
        model=said["model"],
        parallelism=workload_pb2.Parallelism(
            tensor_parallel=said["tensor_parallel"],
            pipeline_parallel=said["pipeline_parallel"],
            expert_parallel=said["expert_parallel"],
        ),
        engine=workload_pb2.EngineSettings(
            weight_precision=precision_value(said["precision"]), kv_precision=precision_value(said["kv_dtype"])
        ),
        labels=labels_of(labels),
    )


def import_messages(
    header: profile_service_pb2.ImportProfileHeader, content: bytes
) -> Iterator[profile_service_pb2.ImportProfileRequest]:
    """The stream of ImportProfile."""
    yield profile_service_pb2.ImportProfileRequest(header=header)
    for start in range(0, len(content), CHUNK_BYTES):
        yield profile_service_pb2.ImportProfileRequest(chunk=content[start : start + CHUNK_BYTES])
