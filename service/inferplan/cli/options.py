"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from inferplan.cli.failures import explained
from inferplan.cli.workload_file import read_config_file
from inferplan.errors import InvalidInputError, Violation
from inferplan.settings import Settings, load_settings
from inferplan.v1 import model_pb2, workload_pb2

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

PRECISIONS = ("float32", "float16", "bfloat16", "fp8", "int8", "int4", "mxfp4", "nvfp4")
KV_PRECISIONS = ("auto", "float16", "bfloat16", "fp8")


def filter_option(example: str) -> Callable[[CommandT], CommandT]:
    """`--filter EXPRESSION`."""
    return click.option(
        "--filter", "filter_text", default="", metavar="EXPRESSION", help=f"Only those that match, such as '{example}'."
    )


def server_option(command: CommandT) -> CommandT:
    """`--server HOST:PORT`."""
    return click.option(
        "--server",
        metavar="HOST:PORT",
        envvar="INFERPLAN_SERVER",
        help="Ask a running service instead of this process.",
    )(command)


def format_option(*formats: str) -> Callable[[CommandT], CommandT]:
    """`--format`, text by default."""
    return click.option(
        "--format", "output_format", type=click.Choice(formats), default="text", show_default=True, help="How to print."
    )


def calibration_option(command: CommandT) -> CommandT:
    """`--calibration NAME`, the service's choice if absent."""
    return click.option(
        "--calibration",
        metavar="NAME|builtin|datasheet",
        help="Coefficients to use; default: the newest stored for the engine, else the built-in ones.",
    )(command)


def settings_or_exit() -> Settings:
    """Settings from the environment; a bad one is told like any other bad input."""
    with explained():
        return load_settings()


def model_source(text: str) -> workload_pb2.ModelSource:
    """A catalogue name, or the path of a config.json: what looks like a path, or is a file, is read as one."""
    path = Path(text)
    if text.endswith(".json") or path.is_file():
        return workload_pb2.ModelSource(config_json=read_config_file(path))
    if path.is_dir() and (path / "config.json").is_file():
        return workload_pb2.ModelSource(config_json=read_config_file(path / "config.json"))
    return workload_pb2.ModelSource(model=text)


def precision_value(name: str | None) -> model_pb2.Precision.ValueType:
    """The contract's value of a precision; unspecified for None and `auto`."""
    if name is None or name == "auto":
        return model_pb2.PRECISION_UNSPECIFIED
    return model_pb2.Precision.Value(f"PRECISION_{name.upper()}")


def labels_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Labels as KEY=VALUE. Raises InvalidInputError naming every one that is not."""
    wrong = [text for text in texts if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise InvalidInputError(
            Violation("--label", f"{text!r} is not KEY=VALUE, such as team=search") for text in wrong
        )
    return {key: value for key, _equals, value in (text.partition("=") for text in texts)}
