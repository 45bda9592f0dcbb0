"""Metric dialects by engine and version, and that every query parses and gives one element."""

from __future__ import annotations

import re

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.autoscaling.policy import SignalKind
from inferplan.autoscaling.rendering import render
from inferplan.autoscaling.rendering.metrics import (
    ENGINE_DIALECTS,
    GATEWAY_DIALECTS,
    MetricDialect,
    SeriesSelector,
    engine_dialect,
    fleet_query,
    gateway_dialect,
    objective_histograms,
    quoted,
)
from inferplan.catalog.loader import load_catalog
from inferplan.errors import InvalidInputError
from inferplan.sizing.workload import LatencyMetric
from support.rendering import KV_CACHE, QUEUE, RUNNING, TTFT, document, metrics_of, policy, request

SELECTOR = SeriesSelector((("namespace", "llm"), ("model_name", "m")))

NAMES = {
    "vllm-up-to-0.11": ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:gpu_cache_usage_perc"),
    "vllm": ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"),
    "sglang": ("sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:token_usage"),
    "trtllm": ("trtllm_num_requests_waiting", "trtllm_num_requests_running", "trtllm_kv_cache_utilization"),
}
"""Waiting, running and KV cache, from the engines' metric pages."""

_ALL = [engine_dialect(key) for key in ENGINE_DIALECTS] + [gateway_dialect(key) for key in GATEWAY_DIALECTS]


@pytest.mark.parametrize("key", NAMES)
def test_names_of_each_dialect(key: str) -> None:
    everything = policy(signals=(QUEUE, RUNNING, KV_CACHE))
    triggers = document("keda", policy=everything, metric_dialect=key)["spec"]["triggers"]
    assert tuple(metrics_of(trigger["metadata"]["query"]) for trigger in triggers) == tuple(
        {name} for name in NAMES[key]
    )


def test_every_release_of_the_catalogue_has_a_dialect() -> None:
    for engine in load_catalog().engines():
        for release in engine.releases:
            engine_dialect(release.metric_dialect)


def test_time_per_token_was_renamed_in_vllm() -> None:
    old = objective_histograms(engine_dialect("vllm-up-to-0.11"), LatencyMetric.TPOT)
    assert old == ("vllm:time_per_output_token_seconds",)
    new = objective_histograms(engine_dialect("vllm"), LatencyMetric.TPOT)
    assert new == ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")


@pytest.mark.parametrize("dialect", _ALL, ids=lambda dialect: dialect.key)
@pytest.mark.parametrize("kind", SignalKind)
def test_queries_parse_and_give_one_element_without_labels(dialect: MetricDialect, kind: SignalKind) -> None:
    query = fleet_query(dialect, kind, SELECTOR)
    if query is None:
        assert kind in (SignalKind.QUEUED_TOKENS, SignalKind.KV_CACHE_RATIO, SignalKind.TTFT_P95)
        return
    assert _has_no_labels(promql_parser.parse(query))


def _has_no_labels(expression: object) -> bool:
    """True if the value is a scalar or one series without labels: an aggregation without `by`, or made of such."""
    if isinstance(expression, promql_parser.NumberLiteral):
        return True
    if isinstance(expression, promql_parser.ParenExpr):
        return _has_no_labels(expression.expr)
    if isinstance(expression, promql_parser.BinaryExpr):
        return _has_no_labels(expression.lhs) and _has_no_labels(expression.rhs)
    if isinstance(expression, promql_parser.Call):  # histogram_quantile(0.95, sum by (le) (...)) drops `le`
        aggregation = expression.args[1]
        return expression.func.name == "histogram_quantile" and list(aggregation.modifier.labels) == ["le"]
    return isinstance(expression, promql_parser.AggregateExpr) and expression.modifier is None


def test_sglang_ranks_are_collapsed_and_vllm_engines_are_summed() -> None:
    sglang = fleet_query(engine_dialect("sglang"), SignalKind.QUEUE_DEPTH, SELECTOR)
    assert sglang == 'sum(max by (pod, dp_rank) (sglang:num_queue_reqs{namespace="llm",model_name="m"}))'
    vllm = fleet_query(engine_dialect("vllm"), SignalKind.QUEUE_DEPTH, SELECTOR)
    assert vllm == 'sum(vllm:num_requests_waiting{namespace="llm",model_name="m"})'


def test_gateway_names() -> None:
    assert metrics_of(fleet_query(gateway_dialect("llm-d"), SignalKind.RUNNING, SELECTOR) or "") == {
        "llm_d_epp_request_running",
        "llm_d_epp_ready_endpoints",
    }
    dynamo = gateway_dialect("dynamo")
    assert metrics_of(fleet_query(dynamo, SignalKind.QUEUE_DEPTH, SELECTOR) or "") == {
        "dynamo_frontend_queued_requests"
    }
    assert metrics_of(fleet_query(dynamo, SignalKind.ONGOING, SELECTOR) or "") == {"dynamo_frontend_inflight_requests"}


@pytest.mark.parametrize("query", ["sum(vllm:num_requests_waiting{)", "summ(x)", 'sum(x{a=~"("})'])
def test_parser_refuses_an_injected_typo(query: str) -> None:
    with pytest.raises(ValueError):
        metrics_of(query)


@given(st.text(max_size=40))
def test_label_values_come_back_as_they_were(value: str) -> None:
    escaped = quoted(value)
    selector = promql_parser.parse(f"x{{model={escaped}}}")
    assert isinstance(selector, promql_parser.VectorSelector)
    assert selector.matchers.matchers[0].value == value


def test_prefix_of_a_collector_is_put_before_engine_metrics() -> None:
    triggers = document("keda", {"metric_prefix": "kserve_"})["spec"]["triggers"]
    assert metrics_of(triggers[0]["metadata"]["query"]) == {"kserve_vllm:num_requests_waiting"}


def test_latency_is_zero_without_traffic_and_absent_without_engines() -> None:
    triggers = document("keda", policy=policy(signals=(QUEUE, RUNNING, TTFT)))["spec"]["triggers"]
    query = triggers[2]["metadata"]["query"]
    # NaN >= 0 is filtered, 0 * running stands in, and without running there is nothing: missing stays missing.
    assert re.fullmatch(
        r"\(histogram_quantile\(0\.95, .*\) >= 0\) or 0 \* sum\(vllm:num_requests_running\{.*\}\)", query
    )


def test_unknown_dialect_names_the_legal_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"vllm-up-to-0\.11"):
        render("keda", request(metric_dialect="vllm-0.5"))
