"""The project's own table of measured serving points: one CSV row a point, as documented in docs/calibration.md.

A row that cannot be used is kept with the reason: one strange GPU must not hide what the others say.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from inferplan.catalog import Catalog, Precision
from inferplan.errors import InvalidInputError, NotFoundError
from inferplan.profiles.profile import MeasuredLatency, ServingPoint
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LatencyMetric,
    LengthDistribution,
    TrafficClass,
    UniformLength,
)

REQUIRED_COLUMNS = ("engine", "gpu", "model", "isl", "osl")
NUMBER_COLUMNS = (
    "n_gpu", "tp", "pp", "ep", "isl", "osl", "concurrency", "batch", "rate_rps", "ttft_ms", "tpot_ms", "e2e_ms",
    "output_tok_s", "total_tok_s", "req_s", "max_num_seqs", "max_num_batched_tokens",
)  # fmt: skip
MAXIMUM_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Harness:
    """How a published set of measurements was made, where its rows do not say so.

    `shortest_share`: lengths are uniform from this share of the nominal ones up. `batched_tokens`: the token budget
    that the engine ran with, by engine. `source` says how it is known.
    """

    group_prefix: str
    shortest_share: float = 1.0
    batched_tokens: Mapping[str, int] | None = None
    source: str = ""


HARNESSES = (
    Harness("aic-dump", shortest_share=0.8, source="InferenceX sends lengths of 80 to 100 % of the nominal ones"),
    Harness(
        "aic-gap-analysis",
        batched_tokens={"vllm": 2048},
        source="constant lengths; the budget follows from TTFT of 8 to 128 clients with prompts of 1024 tokens, which "
        "8192 would put 8 at a time into one step",
    ),
)
_NO_HARNESS = Harness("")


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One row. `point` is None where `problem` says why it cannot be used; names are as the row has them."""

    row_id: str
    group: str
    accelerator: str
    engine: str
    engine_version: str
    model: str
    point: ServingPoint | None
    problem: str = ""


def read_measured_table(text: str, catalog: Catalog) -> tuple[MeasuredRow, ...]:
    """The rows of a CSV. Raises InvalidInputError if it is no such table; rows that are wrong become problems."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        columns = reader.fieldnames or []
    except csv.Error as error:
        raise InvalidInputError.single("rows", f"cannot be read as CSV: {error}") from None
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        raise InvalidInputError.single(
            "columns",
            f"lack {', '.join(missing)}; needed are {', '.join(REQUIRED_COLUMNS)}, one of concurrency, batch and "
            "rate_rps, and one of ttft_ms, tpot_ms, e2e_ms, output_tok_s and req_s",
            "NOT_A_MEASURED_TABLE",
        )
    rows = []
    try:
        for number, record in enumerate(reader, start=2):
            if number > MAXIMUM_ROWS:
                raise InvalidInputError.single("rows", f"are more than {MAXIMUM_ROWS:,}; divide the file")
            rows.append(_row(number, record, catalog))
    except csv.Error as error:
        raise InvalidInputError.single("rows", f"cannot be read as CSV: {error}") from None
    if not rows:
        raise InvalidInputError.single("rows", "are missing: the table has a header and nothing else")
    return tuple(rows)


def _row(number: int, record: Mapping[str, str | None], catalog: Catalog) -> MeasuredRow:
    texts = {name: (value or "").strip() for name, value in record.items()}
    row_id = texts.get("row_id") or f"line {number}"
    group = texts.get("group", "")
    problems: list[str] = []
    accelerator = _resolved("accelerator", texts["gpu"], catalog, problems)
    engine = _resolved("engine", texts["engine"], catalog, problems)
    model = _resolved("model", texts["model"], catalog, problems)
    numbers = _numbers(texts, problems)
    point = None if problems else _point(texts, numbers, model, engine, catalog, problems)
    return MeasuredRow(
        row_id,
        group,
        accelerator or texts["gpu"],
        engine or texts["engine"],
        texts.get("engine_version", ""),
        model or texts["model"],
        point if not problems else None,
        "; ".join(problems),
    )


def _numbers(texts: Mapping[str, str], problems: list[str]) -> dict[str, float]:
    numbers = {}
    for name in NUMBER_COLUMNS:
        text = texts.get(name, "")
        if not text or text.lower() in ("nan", "n/a", "na", "none", "null"):
            continue
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < 0:
            problems.append(f"{name} is {text[:40]!r}; legal is a number of 0 or more, or nothing")
        elif number > 0:  # harnesses write 0 for what they did not measure
            numbers[name] = number
    return numbers


def _point(
    texts: Mapping[str, str],
    numbers: Mapping[str, float],
    model: str,
    engine: str,
    catalog: Catalog,
    problems: list[str],
) -> ServingPoint | None:
    harness = next((item for item in HARNESSES if texts.get("group", "").startswith(item.group_prefix)), _NO_HARNESS)
    if not {"isl", "osl"} <= numbers.keys():
        problems.append("isl and osl must both be above 0")
        return None
    load = _load(numbers, harness, problems)
    if load is None:
        return None
    latencies = tuple(
        MeasuredLatency(metric, numbers[name] / 1e3, 50.0 if "median" in texts.get("stat", "").lower() else None)
        for name, metric in (
            ("ttft_ms", LatencyMetric.TTFT),
            ("tpot_ms", LatencyMetric.TPOT),
            ("e2e_ms", LatencyMetric.END_TO_END),
        )
        if name in numbers
    )
    budget = numbers.get("max_num_batched_tokens") or (harness.batched_tokens or {}).get(engine)
    return ServingPoint(
        model=model,
        load=load,
        parallelism=ParallelismChoice(
            tensor_parallel=round(numbers["tp"]) if "tp" in numbers else None,
            pipeline_parallel=round(numbers["pp"]) if "pp" in numbers else None,
            expert_parallel=round(numbers["ep"]) if numbers.get("ep", 1) > 1 else None,
        ),
        weight_precision=_weight_precision(texts.get("precision", ""), model, catalog),
        kv_precision=_precision_of(texts.get("kv_dtype", "")) if "fp8" in texts.get("kv_dtype", "").lower() else None,
        static_batch_sequences=round(numbers["batch"]) if _is_static_batch(numbers) else None,
        max_num_seqs=round(numbers["max_num_seqs"]) if "max_num_seqs" in numbers else None,
        max_num_batched_tokens=round(budget) if budget else None,
        latencies=latencies,
        requests_per_second=numbers.get("req_s"),
        output_tokens_per_second=numbers.get("output_tok_s"),
    )


def _is_static_batch(numbers: Mapping[str, float]) -> bool:
    return "batch" in numbers and "concurrency" not in numbers and "rate_rps" not in numbers


def _load(numbers: Mapping[str, float], harness: Harness, problems: list[str]) -> TrafficClass | None:
    """What was offered: a rate if one is stated, else clients (a stated concurrency beside a rate is an outcome)."""
    inputs, outputs = _length(numbers["isl"], harness), _length(numbers["osl"], harness)
    if "rate_rps" in numbers:
        arrivals = Arrivals(ArrivalProcess.POISSON)
        return TrafficClass(
            requests_per_second=numbers["rate_rps"], arrivals=arrivals, input_tokens=inputs, output_tokens=outputs
        )
    clients = numbers.get("concurrency") or numbers.get("batch")
    if clients is None:
        problems.append("states no load: one of concurrency, batch and rate_rps must be above 0")
        return None
    return TrafficClass(concurrency=max(1, round(clients)), input_tokens=inputs, output_tokens=outputs)


def _length(nominal_tokens: float, harness: Harness) -> LengthDistribution:
    tokens = max(1, round(nominal_tokens))
    if harness.shortest_share >= 1.0:
        return ConstantLength(tokens)
    return UniformLength(max(1, math.ceil(harness.shortest_share * tokens)), tokens)


_PRECISION_WORDS = (
    ("fp8", Precision.FP8),
    ("float8", Precision.FP8),
    ("mxfp4", Precision.MXFP4),
    ("nvfp4", Precision.NVFP4),
    ("fp4", Precision.NVFP4),
    ("w8a8", Precision.INT8),
    ("int8", Precision.INT8),
    ("awq", Precision.INT4),
    ("gptq", Precision.INT4),
    ("w4a16", Precision.INT4),
    ("int4", Precision.INT4),
)


def _precision_of(text: str) -> Precision | None:
    lowered = text.lower()
    return next((precision for word, precision in _PRECISION_WORDS if word in lowered), None)


def _weight_precision(text: str, model: str, catalog: Catalog) -> Precision | None:
    """What the weights were quantised to, None where the checkpoint itself is quantised or nothing is said."""
    stated = _precision_of(text)
    if stated is None or catalog.model(model).architecture.quantization is not None:
        return None
    return stated


_NOISE = re.compile(r"\((?:[^()]*)\)|\b(?:nvidia|amd|instinct|tesla|gpu|tensor core)\b")
_MODEL_SUFFIXES = ("-instruct", "-chat", "-hf", "-it", "-fp8", "-dynamic", "-bf16", "-v0.1", "-v0.3", "-base")


def _engine_spellings(name: str) -> Iterable[str]:
    lowered = name.lower()
    yield lowered
    yield re.sub(r"[\s_]+", "-", lowered)
    for known in ("tensorrt-llm", "trtllm", "sglang", "vllm"):
        if known in lowered.replace("_", "-"):
            yield known


def _gpu_spellings(name: str) -> Iterable[str]:
    """`H100-SXM5-80GB`, `NVIDIA A100-SXM4-80GB`, `a100 80gb`, `H100 (variant not stated)` and the like."""
    yield name
    cleaned = " ".join(_NOISE.sub(" ", name.lower()).replace("_", " ").replace("-", " ").replace("/", " ").split())
    words = cleaned.split()
    yield "-".join(words)
    words = [re.sub(r"^sxm\d$", "sxm", word) for word in words]
    yield "-".join(words)
    without_memory = [word for word in words if not re.fullmatch(r"\d+(?:\.\d+)?(?:gb|gib|g)", word)]
    yield "-".join(without_memory)
    if len(words) > 1 and words[0] == "a100":
        memory = "40gb" if any("40" in word for word in words[1:]) else "80gb"
        form = "pcie" if "pcie" in words else "sxm"
        yield f"a100-{form}-{memory}"
    if words and words[0] == "a100":
        yield "a100-sxm-80gb"
    if words and words[0] == "h100" and "pcie" not in words and "nvl" not in words:
        yield "h100"
    if words:
        yield words[0]
    named = re.search(r"\b(h100|h200|h20|a100|b200|gb200|l40s|l4|mi300x)\b", name.lower())
    if named:  # "not stated (H100-class: ...)"
        yield named.group(1)


def _model_spellings(name: str) -> Iterable[str]:
    yield name
    bare = name.rsplit("/", 1)[-1].lower().replace("_", "-")
    yield bare
    trimmed = bare
    changed = True
    while changed:
        changed = False
        for suffix in _MODEL_SUFFIXES:
            if trimmed.endswith(suffix):
                trimmed, changed = trimmed.removesuffix(suffix), True
                yield trimmed
    yield trimmed.replace("meta-llama-", "llama-")
    yield trimmed.removeprefix("meta-")


_FINDERS: Mapping[str, tuple[Callable[[str], Iterable[str]], Callable[[Catalog, str], str]]] = {
    "accelerator": (_gpu_spellings, lambda catalog, name: catalog.accelerator(name).id),
    "engine": (_engine_spellings, lambda catalog, name: catalog.engine(name).id),
    "model": (_model_spellings, lambda catalog, name: catalog.model(name).id),
}


def _resolved(kind: str, name: str, catalog: Catalog, problems: list[str]) -> str:
    spellings, find = _FINDERS[kind]
    for spelling in spellings(name):
        try:
            return find(catalog, spelling)
        except NotFoundError:
            continue
    problems.append(f"{kind} {name[:100]!r} is not in the catalogue")
    return ""
