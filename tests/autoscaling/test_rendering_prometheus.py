"""Prometheus rules: parsed, checked and unit-tested by promtool where that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from inferplan.sizing.workload import LatencyMetric, Objective
from support.rendering import (
    QUEUE,
    RUNNING,
    SchemaError,
    check_schema,
    document,
    losses_of,
    metrics_of,
    policy,
    rendered,
)

REQUIRE_PROMTOOL = "REQUIRE_PROMTOOL"
"""Environment variable for continuous integration, where a missing promtool must not pass for a passed test."""

DIALECTS = ["vllm-up-to-0.11", "vllm", "sglang", "trtllm"]

EVERY_OBJECTIVE = tuple(Objective(metric, 99.0, 3.0) for metric in LatencyMetric)


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get(REQUIRE_PROMTOOL):
            pytest.fail("promtool is not installed; it is in Debian's package prometheus")
        pytest.skip("promtool is not installed; it is in Debian's package prometheus")
    return found


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def _write(folder: Path, name: str, value: Any) -> None:
    with (folder / name).open("w", encoding="utf-8") as stream:
        YAML().dump(value, stream)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_expression_parses(dialect: str) -> None:
    rules = document("prometheus", metric_dialect=dialect, objectives=EVERY_OBJECTIVE)
    found = [metrics_of(rule["expr"]) for group in rules["groups"] for rule in group["rules"]]
    assert all(found)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_promtool_takes_the_rules(promtool: str, tmp_path: Path, dialect: str) -> None:
    content = rendered("prometheus", metric_dialect=dialect, objectives=EVERY_OBJECTIVE).files[0].content
    (tmp_path / "rules.yaml").write_text(content, "utf-8")
    result = _run([promtool, "check", "rules", "rules.yaml"], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("right", "wrong"), [("  - record:", "  - recrd:"), ("histogram_quantile", "histogram_quantil")]
)
def test_promtool_refuses_an_injected_typo(promtool: str, tmp_path: Path, right: str, wrong: str) -> None:
    content = rendered("prometheus").files[0].content
    assert right in content
    (tmp_path / "rules.yaml").write_text(content.replace(right, wrong), "utf-8")
    assert _run([promtool, "check", "rules", "rules.yaml"], tmp_path).returncode != 0


LABELS = 'namespace="default",model_name="meta-llama/Llama-3.1-8B-Instruct"'

VLLM_SERIES = [
    # Pod a has two data-parallel engines, each with a queue of its own; pod b is idle: (30 + 10 + 0) / 2 = 20.
    ("vllm:num_requests_waiting", 'pod="a",engine="0"', "30x40"),
    ("vllm:num_requests_waiting", 'pod="a",engine="1"', "10x40"),
    ("vllm:num_requests_waiting", 'pod="b",engine="0"', "0x40"),
    ("vllm:num_requests_running", 'pod="a",engine="0"', "40x40"),
    ("vllm:num_requests_running", 'pod="a",engine="1"', "40x40"),
    ("vllm:num_requests_running", 'pod="b",engine="0"', "16x40"),
    ("vllm:kv_cache_usage_perc", 'pod="a",engine="0"', "0.9x40"),
    ("vllm:kv_cache_usage_perc", 'pod="a",engine="1"', "0.3x40"),
    ("vllm:kv_cache_usage_perc", 'pod="b",engine="0"', "0.1x40"),
    # All requests take 2.5 to 5 s: P95 = 2.5 + 0.95 x 2.5 = 4.875 s, above the objective's 2 s.
    ("vllm:time_to_first_token_seconds_bucket", 'pod="a",le="2.5"', "0x40"),
    ("vllm:time_to_first_token_seconds_bucket", 'pod="a",le="5"', "0+15x40"),
    ("vllm:time_to_first_token_seconds_bucket", 'pod="a",le="+Inf"', "0+15x40"),
]

SGLANG_SERIES = [
    # Two tensor-parallel ranks report the same queue; pod b has two data-parallel ranks that queue apart.
    ("sglang:num_queue_reqs", 'pod="a",tp_rank="0"', "8x40"),
    ("sglang:num_queue_reqs", 'pod="a",tp_rank="1"', "8x40"),
    ("sglang:num_queue_reqs", 'pod="b",tp_rank="0",dp_rank="0"', "5x40"),
    ("sglang:num_queue_reqs", 'pod="b",tp_rank="0",dp_rank="1"', "3x40"),
    ("sglang:num_running_reqs", 'pod="a",tp_rank="0"', "40x40"),
    ("sglang:num_running_reqs", 'pod="a",tp_rank="1"', "40x40"),
    ("sglang:num_running_reqs", 'pod="b",tp_rank="0",dp_rank="0"', "24x40"),
]


def _unit_test(
    series: list[tuple[str, str, str]], samples: dict[str, float], alerts: dict[str, bool]
) -> dict[str, Any]:
    return {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": f"{name}{{{LABELS},{labels}}}", "values": values} for name, labels, values in series
                ],
                "promql_expr_test": [
                    {
                        "expr": record,
                        "eval_time": "9m",
                        "exp_samples": [{"labels": f'{record}{{deployment="chat"}}', "value": value}],
                    }
                    for record, value in samples.items()
                ],
                "alert_rule_test": [
                    {"alertname": name, "eval_time": "9m", "exp_alerts": [_TTFT_ALERT] if fires else []}
                    for name, fires in alerts.items()
                ],
            }
        ],
    }


_TTFT_ALERT = {
    "exp_labels": {"severity": "warning", "percentile": "95"},
    "exp_annotations": {"summary": "P95 TTFT is 4.875s, above 2 s"},
}


def test_promtool_unit_tests_of_vllm(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rendered("prometheus").files[0].content, "utf-8")
    samples = {
        "inferplan:queue_requests:per_replica": 20.0,
        "inferplan:running_requests:per_replica": 48.0,
        "inferplan:kv_cache_ratio:per_replica": 0.5,  # the fullest cache of each pod: (0.9 + 0.1) / 2
        "inferplan:ttft_seconds:p95": 4.875,
    }
    alerts = {
        "InferplanTtftObjectiveMissed": True,
        "InferplanTpotObjectiveMissed": False,
        "InferplanMetricsMissing": False,
    }
    _write(tmp_path, "test.yaml", _unit_test(VLLM_SERIES, samples, alerts))
    result = _run([promtool, "test", "rules", "test.yaml"], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_unit_tests_of_sglang_ranks(promtool: str, tmp_path: Path) -> None:
    rendering = rendered("prometheus", metric_dialect="sglang", objectives=())
    (tmp_path / "rules.yaml").write_text(rendering.files[0].content, "utf-8")
    samples = {"inferplan:queue_requests:per_replica": 8.0, "inferplan:running_requests:per_replica": 32.0}
    _write(tmp_path, "test.yaml", _unit_test(SGLANG_SERIES, samples, {"InferplanMetricsMissing": False}))
    result = _run([promtool, "test", "rules", "test.yaml"], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_unit_test_fails_for_a_wrong_value(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rendered("prometheus").files[0].content, "utf-8")
    _write(tmp_path, "test.yaml", _unit_test(VLLM_SERIES, {"inferplan:queue_requests:per_replica": 13.3}, {}))
    assert _run([promtool, "test", "rules", "test.yaml"], tmp_path).returncode != 0


def test_each_objective_has_its_alert_at_its_percentile_and_bound() -> None:
    rules = document("prometheus")["groups"][1]["rules"]
    ttft, tpot = (rule["expr"] for rule in rules[:2])
    assert ttft.startswith("(histogram_quantile(0.95, ")
    assert ttft.endswith(") > 2")
    assert tpot.endswith(") > 0.05")


def test_objective_of_one_class_is_reported_as_judged_on_all_traffic() -> None:
    objectives = (Objective(LatencyMetric.TTFT, 95.0, 2.0, traffic_class_id="chat"),)
    assert "all traffic" in losses_of(rendered("prometheus", objectives=objectives), "objectives[0]")


def test_rules_as_an_object_match_the_strict_schema() -> None:
    rule = document("prometheus", {"format": "prometheus-rule"}, policy=policy(signals=(QUEUE, RUNNING)))
    check_schema(rule, "prometheusrule.json")
    rule["spec"]["groups"][0]["rules"][0]["exp"] = "x"
    with pytest.raises(SchemaError):
        check_schema(rule, "prometheusrule.json")
