"""Answers as JSON, YAML or tables. JSON is protobuf's canonical form and nothing else on standard output."""

from __future__ import annotations

import json
import sys

from google.protobuf import json_format
from google.protobuf.message import Message
from rich.console import Console
from ruamel.yaml import YAML

FORMATS = ("text", "json", "yaml")

WIDTH_WITHOUT_TERMINAL = 120


def console() -> Console:
    """Standard output for people: as wide as the terminal, or a fixed width where there is none."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False, soft_wrap=False)


def error_console() -> Console:
    """Standard error for people; progress shows there, and only on a terminal."""
    return Console(stderr=True, highlight=False)


def print_json(message: Message) -> None:
    """The message in protobuf's canonical JSON."""
    sys.stdout.write(json_format.MessageToJson(message, ensure_ascii=False))
    sys.stdout.write("\n")


def print_json_list(messages: list[Message]) -> None:
    """A JSON array of messages, each in canonical form."""
    sys.stdout.write(
        json.dumps([json_format.MessageToDict(message) for message in messages], indent=2, ensure_ascii=False)
    )
    sys.stdout.write("\n")


def print_yaml(message: Message) -> None:
    """The message's canonical JSON, written as YAML."""
    writer = YAML()
    writer.default_flow_style = False
    writer.dump(json_format.MessageToDict(message), sys.stdout)
