"""Workload files: what a person may write, and what is said of a slip."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferplan.cli.workload_file import fill_input, parse_duration_seconds, read_workload_file
from inferplan.errors import InvalidInputError
from inferplan.v1 import model_pb2, plan_pb2, workload_pb2

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "chatbot.yaml"


def read(tmp_path: Path, text: str) -> plan_pb2.PlanInput:
    path = tmp_path / "workload.yaml"
    path.write_text(text, encoding="utf-8")
    message = plan_pb2.PlanInput()
    fill_input(read_workload_file(path, plan_pb2.PlanInput.DESCRIPTOR), message)
    return message


def slips(tmp_path: Path, text: str) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        read(tmp_path, text)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_the_example_reads_as_it_is_meant() -> None:
    message = plan_pb2.PlanInput()
    workload_file = read_workload_file(EXAMPLE, plan_pb2.PlanInput.DESCRIPTOR)
    fill_input(workload_file, message)
    assert workload_file.deployment_id == "chatbot"
    assert '"LlamaForCausalLM"' in message.model.config_json
    assert message.model.headline_parameters == 7e9
    (traffic,) = message.workload.traffic_classes
    assert (traffic.requests_per_second, traffic.input_tokens.constant_tokens) == (100, 500)
    assert message.objectives[0].metric == workload_pb2.LATENCY_METRIC_TTFT
    assert message.objectives[0].maximum.ToTimedelta().total_seconds() == 0.5
    assert message.textbook.model_load.ToTimedelta().total_seconds() == 90


def test_short_and_long_spellings_of_an_enum(tmp_path: Path) -> None:
    for spelling in ("fp8", "FP8", "PRECISION_FP8"):
        assert (
            read(tmp_path, f"engine: {{weight_precision: {spelling}}}").engine.weight_precision
            == model_pb2.PRECISION_FP8
        )


def test_every_slip_is_told_at_once(tmp_path: Path) -> None:
    found = slips(
        tmp_path,
        """
        modle: {model: llama}
        engine: {weight_precision: fp9, max_num_seqs: -3, version: [1]}
        hardware: {accelerators: h100, parallelism: {tensor_paralel: 2}}
        workload:
          traffic_classes:
            - {requests_per_second: .nan, input_tokens: 5.5, output_tokens: {uniform: {minimum_tokens: x}}}
        objectives: [{metric: ttft, percentile: high, maximum: soon}]
        """,
    )
    assert set(found) == {
        "modle",
        "engine.weight_precision",
        "engine.max_num_seqs",
        "engine.version",
        "hardware.accelerators",
        "hardware.parallelism.tensor_paralel",
        "workload.traffic_classes[0].requests_per_second",
        "workload.traffic_classes[0].input_tokens",
        "workload.traffic_classes[0].output_tokens.uniform.minimum_tokens",
        "objectives[0].percentile",
        "objectives[0].maximum",
    }
    assert "did you mean 'model'?" in found["modle"]
    assert "did you mean 'tensor_parallel'?" in found["hardware.parallelism.tensor_paralel"]
    assert "did you mean 'fp8'?" in found["engine.weight_precision"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1, 2\nb: 3\n", "not YAML in line"),
        ("engine: {engine: vllm, engine: sglang}\n", "not YAML in line"),
        ("", "must be a mapping"),
        ("a: " + "[" * 5000, "not YAML"),
    ],
)
def test_what_is_no_workload_file(tmp_path: Path, text: str, part: str) -> None:
    (description,) = slips(tmp_path, text).values()
    assert part in description
    assert "workload.yaml" in description


def test_a_missing_config_file_is_named_with_its_key(tmp_path: Path) -> None:
    found = slips(tmp_path, "model: {config_file: nowhere/config.json}")
    assert list(found) == ["model.config_file"]
    assert "No such file" in found["model.config_file"]


def test_a_config_file_of_ten_megabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(" " * 10_000_000, encoding="utf-8")
    assert "10000000 bytes" in slips(tmp_path, "model: {config_file: config.json}")["model.config_file"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("90s", 90),
        ("5 min", 300),
        ("1.5h", 5400),
        ("2", 2),
        ("250us", 250e-6),
        ("soon", None),
        ("-5s", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration_seconds(text) == seconds
