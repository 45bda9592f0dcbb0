"""Questions for the fleet search and for plans, over the built-in catalogue."""

from __future__ import annotations

from functools import cache
from typing import Any

from inferplan.catalog import Accelerator, Catalog, load_catalog
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.workload import ConstantLength, LatencyMetric, Objective, TrafficClass, Workload

CHATBOT_OBJECTIVES = (
    Objective(LatencyMetric.TTFT, 95.0, 0.5),
    Objective(LatencyMetric.END_TO_END, 95.0, 5.0),
)


@cache
def catalog() -> Catalog:
    return load_catalog()


def accelerators(*names: str) -> tuple[Accelerator, ...]:
    return tuple(catalog().accelerator(name) for name in names)


def workload(requests_per_second: float = 100.0, input_tokens: int = 500, output_tokens: int = 200) -> Workload:
    traffic = TrafficClass(
        requests_per_second=requests_per_second,
        input_tokens=ConstantLength(input_tokens),
        output_tokens=ConstantLength(output_tokens),
    )
    return Workload((traffic,))


def question(model: str = "llama-2-7b", *names: str, **changes: Any) -> SearchQuestion:
    """The worked example's question for a model on H100 SXM or the accelerators named; `changes` replace its parts."""
    parts: dict[str, Any] = {
        "architecture": catalog().model(model).architecture,
        "accelerators": accelerators(*(names or ("h100-sxm-80gb",))),
        "engine": catalog().engine("vllm"),
        "workload": workload(),
        "objectives": CHATBOT_OBJECTIVES,
    }
    return SearchQuestion(**(parts | changes))
