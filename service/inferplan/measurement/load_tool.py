"""Running AIPerf, the load tool, as a process: one run a grid point, each with a report of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from inferplan.errors import InferplanError, InvalidInputError
from inferplan.measurement.extras import INSTALL_ENDPOINT

REPORT_NAME = "profile_export_aiperf.json"
"""AIPerf's name for the summary of a run."""

ROUNDS = 5
"""Requests a client sends in turn where nothing is said: the first start together, the rest should outweigh them."""

FEWEST_REQUESTS = 20
SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One closed-loop load: `concurrency` clients that each keep one request in flight, lengths all the same."""

    concurrency: int
    input_tokens: int
    output_tokens: int
    requests: int

    @property
    def label(self) -> str:
        """A short name, fit for a folder."""
        return f"concurrency-{self.concurrency}-input-{self.input_tokens}-output-{self.output_tokens}"


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """What is loaded. `served_model` is the name that the endpoint knows, `tokenizer` a folder on this machine."""

    url: str
    served_model: str
    tokenizer: Path


def grid_points(
    concurrency: tuple[int, ...],
    input_tokens: tuple[int, ...],
    output_tokens: tuple[int, ...],
    requests_per_point: int | None = None,
) -> list[GridPoint]:
    """Every combination, the lightest load first. Never fewer requests than clients."""
    return [
        GridPoint(clients, prompt, output, max(requests_per_point or max(ROUNDS * clients, FEWEST_REQUESTS), clients))
        for prompt in input_tokens
        for output in output_tokens
        for clients in sorted(concurrency)
    ]


def find_load_tool() -> str:
    """The program `aiperf` beside this Python or on the path. Raises InvalidInputError, with what to install."""
    found = shutil.which("aiperf", path=str(Path(sys.executable).parent)) or shutil.which("aiperf")
    if found is None:
        raise InvalidInputError.single(
            "",
            f"measuring an endpoint needs AIPerf, which is not installed; install it with `{INSTALL_ENDPOINT}`, or in "
            "an environment of its own whose `aiperf` is on the path",
        )
    return found


def load_command(program: str, target: LoadTarget, point: GridPoint, folder: Path) -> list[str]:
    """AIPerf's command line for one point.

    Prompts are synthetic, made with the tokenizer in the given folder, so nothing is fetched. `ignore_eos` and
    `min_tokens` hold the output at its length; both are extensions that vLLM and SGLang know. Token counts are the
    server's own. Warm-up requests, as many as there are clients, are not part of the report.
    """
    return [
        program,
        "profile",
        *("--url", target.url),
        *("--model", target.served_model),
        *("--endpoint-type", "chat", "--streaming"),
        *("--tokenizer", str(target.tokenizer), "--use-server-token-count"),
        *("--concurrency", str(point.concurrency)),
        *("--request-count", str(point.requests)),
        *("--warmup-request-count", str(point.concurrency)),
        *("--isl", str(point.input_tokens), "--isl-stddev", "0"),
        *("--osl", str(point.output_tokens), "--osl-stddev", "0"),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{point.output_tokens}"),
        *("--random-seed", "0"),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
        *("--output-artifact-dir", str(folder)),
    ]


def run_load_tool(program: str, target: LoadTarget, point: GridPoint, folder: Path) -> bytes:
    """Run one point, return the bytes of AIPerf's report. Raises InferplanError, with its last lines, if it fails."""
    environment = os.environ | {"HF_HUB_DISABLE_TELEMETRY": "1", "COLUMNS": "120"}
    command = load_command(program, target, point, folder)
    completed = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    report = folder / REPORT_NAME
    if completed.returncode != 0 or not report.is_file():
        last = "\n".join(f"  {line}" for line in completed.stdout.strip().splitlines()[-SHOWN_LINES:])
        raise InferplanError(
            f"AIPerf failed at {point.label} (exit code {completed.returncode}); its last lines:\n{last}"
        )
    return report.read_bytes()
