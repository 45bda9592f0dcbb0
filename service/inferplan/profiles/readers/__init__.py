"""Readers of benchmark tools' own files, one module a format. The format is told from the content, or by name."""

from __future__ import annotations

import dataclasses
import hashlib
import re

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError
from inferplan.profiles.profile import ImportHeader
from inferplan.profiles.readers.aiperf import AiPerfReader
from inferplan.profiles.readers.content import BenchmarkContent, parse_content
from inferplan.profiles.readers.guidellm import GuideLlmReader
from inferplan.profiles.readers.inference_perf import InferencePerfReader
from inferplan.profiles.readers.inferencex import InferenceXReader
from inferplan.profiles.readers.llmperf import LlmperfReader
from inferplan.profiles.readers.measured_csv import MeasuredCsvReader
from inferplan.profiles.readers.nvbandwidth import NvBandwidthReader
from inferplan.profiles.readers.nvidia_smi import NvidiaSmiReader
from inferplan.profiles.readers.reader import Reader, ReadResult
from inferplan.profiles.readers.sglang_bench import SglangBenchReader
from inferplan.profiles.readers.vllm_bench import VllmBenchReader
from inferplan.profiles.sanity import checked_profile

__all__ = ["READER_NAMES", "ReadResult", "read_benchmark"]

READER_NAMES = (
    "vllm-bench",
    "sglang-bench",
    "guidellm",
    "aiperf",
    "inference-perf",
    "llmperf",
    "inferencex",
    "nvbandwidth",
    "nvidia-smi",
    "inferplan-csv",
)

_CATALOGUE_VALUES = re.compile(r"mem_bw|TFlopsPeak|memBW|mem_bw_empirical_scaling_factor")


def read_benchmark(content: bytes, header: ImportHeader, catalog: Catalog) -> ReadResult:
    """The measurements of a file, each point checked by the sanity rules.

    Raises InvalidInputError with all that is wrong or missing: a format that is not known, or not the one that
    `header.tool` names, a file that cannot be right, what neither the file nor the header says.
    """
    parsed = parse_content(content)
    reader = _reader_for(parsed, header, catalog)
    result = reader.read(parsed, header)
    digest = hashlib.sha256(content).hexdigest()
    profiles = tuple(
        checked_profile(
            dataclasses.replace(profile, provenance=dataclasses.replace(profile.provenance, raw_sha256=digest)), catalog
        )
        for profile in result.profiles
    )
    return dataclasses.replace(result, profiles=profiles)


def _readers(catalog: Catalog) -> tuple[Reader, ...]:
    return (
        GuideLlmReader(),
        NvBandwidthReader(),
        AiPerfReader(),
        LlmperfReader(),
        InferencePerfReader(),
        VllmBenchReader(),
        InferenceXReader(),
        SglangBenchReader(),
        MeasuredCsvReader(catalog),
        NvidiaSmiReader(),
    )


def _reader_for(content: BenchmarkContent, header: ImportHeader, catalog: Catalog) -> Reader:
    readers = {reader.name: reader for reader in _readers(catalog)}
    legal = ", ".join(READER_NAMES)
    if header.tool:
        if header.tool not in readers:
            raise InvalidInputError.single(
                "header.tool", f"{header.tool!r} is not known; legal: {legal}", "UNKNOWN_TOOL"
            )
        reader = readers[header.tool]
        if not reader.recognises(content):
            raise InvalidInputError.single("file", f"is no file of {header.tool}", "NOT_THIS_FORMAT")
        return reader
    for reader in readers.values():
        if reader.recognises(content):
            return reader
    if _CATALOGUE_VALUES.search(content.text):
        raise InvalidInputError.single(
            "file",
            "holds catalogue values of GPUs (datasheet figures, prices, assumed efficiencies) and no measurement",
            "NOT_A_MEASUREMENT",
        )
    raise InvalidInputError.single("file", f"is in no format that is known; known are: {legal}", "UNKNOWN_FORMAT")
