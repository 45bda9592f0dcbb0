"""The options that describe one replica, shared by the commands that ask about one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from inferplan.cli.options import KV_PRECISIONS, PRECISIONS, model_source, precision_value
from inferplan.v1 import workload_pb2

COUNT = click.IntRange(1, 2**31 - 1)
"""Zero would mean "not given" in the contract, so the command line refuses it itself."""

_OPTIONS = (
    click.option("--model", required=True, metavar="ID_OR_CONFIG", help="Catalogue name, or path of a config.json."),
    click.option("--accelerator", required=True, metavar="ID", help="Catalogue name, such as h100-sxm-80gb."),
    click.option("--tensor-parallel", type=COUNT, default=1, show_default=True, help="GPUs that share every layer."),
    click.option("--pipeline-parallel", type=COUNT, default=1, show_default=True, help="Stages of layers."),
    click.option("--expert-parallel", type=COUNT, default=1, show_default=True, help="GPUs that share the experts."),
    click.option(
        "--precision", type=click.Choice(PRECISIONS), help="Number format of the weights; default: the checkpoint's."
    ),
    click.option("--kv-dtype", type=click.Choice(KV_PRECISIONS), help="Number format of the KV cache."),
    click.option("--gpu-memory-utilization", type=float, help="Fraction of the visible memory that the engine claims."),
    click.option("--max-model-len", type=COUNT, help="Longest context, in tokens."),
    click.option("--max-num-seqs", type=COUNT, help="Sequences that run at once."),
    click.option("--max-num-batched-tokens", type=COUNT, help="Token budget of one step."),
    click.option("--engine", default="", metavar="ID", help="Serving engine; default: vllm."),
    click.option("--engine-version", default="", metavar="VERSION", help="Default: the newest that is known."),
)


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What the options said."""

    model: str
    accelerator: str
    tensor_parallel: int
    pipeline_parallel: int
    expert_parallel: int
    precision: str | None
    kv_dtype: str | None
    gpu_memory_utilization: float | None
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    engine: str
    engine_version: str

    def model_source(self) -> workload_pb2.ModelSource:
        """The model. Raises InvalidInputError for a config.json that cannot be read."""
        return model_source(self.model)

    def parallelism(self) -> workload_pb2.Parallelism:
        """How the replica is spread over GPUs."""
        return workload_pb2.Parallelism(
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            expert_parallel=self.expert_parallel,
        )

    def engine_settings(self) -> workload_pb2.EngineSettings:
        """How the engine is run."""
        return workload_pb2.EngineSettings(
            engine=self.engine,
            version=self.engine_version,
            weight_precision=precision_value(self.precision),
            kv_precision=precision_value(self.kv_dtype),
            gpu_memory_utilization=self.gpu_memory_utilization,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len_tokens=self.max_model_len,
        )


def replica_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them together as its argument `replica`."""

    @functools.wraps(command)
    def with_replica(**values: Any) -> Any:
        own = {name: values.pop(name) for name in ReplicaOptions.__slots__}
        return command(replica=ReplicaOptions(**own), **values)

    for option in reversed(_OPTIONS):
        option(with_replica)
    return with_replica
