"""Workload files: YAML that a person writes, read into the contract's own message.

The keys are the contract's field names. Beyond protobuf's JSON form a person may write enum values short (`fp8`,
`ttft`), durations with a unit (`500ms`, `90s`, `5 min`), a plain number for a constant length (`input_tokens: 500`),
and `config_file` for a config.json beside the YAML file. A key that is no field is refused with the nearest one that
is.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from inferplan.errors import InvalidInputError, Violation

MAXIMUM_FILE_BYTES = 8 * 1024 * 1024
MAXIMUM_CONFIG_BYTES = 1024 * 1024

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(us|µs|ms|s|min|m|h)?\s*")
_UNIT_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, None: 1.0}
_DURATION_TYPE = "google.protobuf.Duration"
_LENGTH_TYPE = "inferplan.v1.LengthDistribution"
_MODEL_SOURCE_TYPE = "inferplan.v1.ModelSource"


@dataclass(frozen=True, slots=True)
class WorkloadFile:
    """What a file says: its own `deployment`, empty if it names none, and protobuf JSON of a PlanInput."""

    deployment_id: str
    input_json: dict[str, Any]


def read_workload_file(path: Path, input_descriptor: Descriptor) -> WorkloadFile:
    """Read a workload file. Raises InvalidInputError with every key and value that cannot be read."""
    content = _load_yaml(path)
    reader = _Reader(path.parent)
    deployment_id = content.pop("deployment", "")
    if not isinstance(deployment_id, str):
        reader.violate("deployment", f"must be a name, not {deployment_id!r}")
        deployment_id = ""
    input_json = reader.message(content, input_descriptor, "", extra_keys=("deployment",))
    if reader.violations:
        raise InvalidInputError(reader.violations)
    return WorkloadFile(deployment_id, input_json)


def read_message_file(path: Path, message: Message) -> None:
    """Fill `message` from a YAML file whose keys are its fields, written as in workload files.

    Raises InvalidInputError with every key and value that cannot be read.
    """
    reader = _Reader(path.parent)
    content = reader.message(_load_yaml(path), cast(Descriptor, message.DESCRIPTOR), "")
    if reader.violations:
        raise InvalidInputError(reader.violations)
    try:
        json_format.ParseDict(content, message)
    except json_format.ParseError as error:
        raise InvalidInputError.single("", str(error)) from None


def fill_input(workload_file: WorkloadFile, message: Message) -> None:
    """Write what the file says into `message`, a PlanInput."""
    try:
        json_format.ParseDict(workload_file.input_json, message)
    except json_format.ParseError as error:
        raise InvalidInputError.single("", str(error)) from None


def parse_duration_seconds(text: str) -> float | None:
    """Seconds of `500ms`, `90s`, `5 min`, `1.5h` or a plain number of seconds; None if it is none of these."""
    match = _DURATION.fullmatch(text)
    return float(match.group(1)) * _UNIT_SECONDS[match.group(2)] if match else None


def _load_yaml(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > MAXIMUM_FILE_BYTES:
            raise InvalidInputError.single(
                "", f"{path}: {size} bytes; a workload file has at most {MAXIMUM_FILE_BYTES}"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError.single("", f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("", f"{path}: not UTF-8 text") from None
    try:
        content = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidInputError.single("", f"{path}: not YAML{where}: {error.problem}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise InvalidInputError.single("", f"{path}: not YAML: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise InvalidInputError.single(
            "", f"{path}: must be a mapping of keys to values, such as docs/examples/chatbot.yaml"
        )
    return content


class _Reader:
    """Walks the YAML tree beside the contract's descriptors and gathers every violation on the way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.violations: list[Violation] = []

    def violate(self, path: str, description: str) -> None:
        self.violations.append(Violation(path, description))

    def message(
        self, content: Any, descriptor: Descriptor, path: str, extra_keys: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Protobuf JSON of one message."""
        if not isinstance(content, Mapping):
            self.violate(path, f"must be a mapping with keys from: {', '.join(sorted(descriptor.fields_by_name))}")
            return {}
        result: dict[str, Any] = {}
        for key, value in content.items():
            where = f"{path}.{key}" if path else str(key)
            if descriptor.full_name == _MODEL_SOURCE_TYPE and key == "config_file":
                self._config_file(value, where, result)
                continue
            field = descriptor.fields_by_name.get(key) if isinstance(key, str) else None
            if field is None:
                self._unknown_key(key, descriptor, where, extra_keys)
            elif value is not None:
                result[field.name] = self._field(value, field, where)
        return result

    def _unknown_key(self, key: Any, descriptor: Descriptor, where: str, extra_keys: tuple[str, ...]) -> None:
        known = [*descriptor.fields_by_name, *extra_keys]
        if descriptor.full_name == _MODEL_SOURCE_TYPE:
            known.append("config_file")
        near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        self.violations.append(
            Violation(where, f"unknown key; {hint}legal keys: {', '.join(sorted(known))}", "UNKNOWN_FIELD")
        )

    def _field(self, value: Any, field: FieldDescriptor, where: str) -> Any:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(value, field, where)
        if field.is_repeated:
            if not isinstance(value, list):
                self.violate(where, "must be a list")
                return []
            return [self._single(item, field, f"{where}[{index}]") for index, item in enumerate(value)]
        return self._single(value, field, where)

    def _map(self, value: Any, field: FieldDescriptor, where: str) -> Any:
        if not isinstance(value, Mapping):
            self.violate(where, "must be a mapping")
            return {}
        assert field.message_type is not None
        value_field = field.message_type.fields_by_name["value"]
        return {str(key): self._single(item, value_field, f"{where}.{key}") for key, item in value.items()}

    def _single(self, value: Any, field: FieldDescriptor, where: str) -> Any:
        if field.message_type is not None:
            name = field.message_type.full_name
            if name == _DURATION_TYPE:
                return self._duration(value, where)
            if name == _LENGTH_TYPE and isinstance(value, int | float) and not isinstance(value, bool):
                return {"constant_tokens": self._whole(value, where)}
            return self.message(value, field.message_type, where)
        if field.enum_type is not None:
            return self._enum(value, field.enum_type, where)
        return self._scalar(value, field, where)

    def _scalar(self, value: Any, field: FieldDescriptor, where: str) -> Any:
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if isinstance(value, str):
                return value
            if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
            self.violate(where, f"must be text, not {value!r}")
            return ""
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            if not isinstance(value, bool):
                self.violate(where, f"must be true or false, not {value!r}")
            return bool(value)
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self._number(value, where)
        return self._whole(value, where, signed=kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64))

    def _number(self, value: Any, where: str) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            self.violate(where, f"must be a finite number, not {_shown(value)}")
            return 1.0
        return number

    def _whole(self, value: Any, where: str, signed: bool = False) -> int:
        number = self._number(value, where)
        lowest, highest = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
        if number != int(number):
            self.violate(where, f"must be a whole number, not {_shown(value)}")
            return 1
        if not lowest <= number <= highest:
            self.violate(where, f"must be from {lowest} to {highest}, not {_shown(value)}")
            return 1
        return int(number)

    def _duration(self, value: Any, where: str) -> str:
        seconds = None
        if not isinstance(value, bool) and isinstance(value, int | float | str):
            seconds = parse_duration_seconds(str(value))
        if seconds is None or not seconds < 1e9:
            self.violate(where, f"must be a duration such as 500ms, 90s or 5 min, not {_shown(value)}")
            return "1s"
        return f"{seconds:.9f}s"

    def _enum(self, value: Any, enum: EnumDescriptor, where: str) -> str:
        names = [item.name for item in enum.values if item.number != 0]
        prefix = _common_prefix(enum)
        short = {name.removeprefix(prefix).lower(): name for name in names}
        wanted = str(value).strip()
        found = short.get(wanted.lower().replace("-", "_")) or (wanted if wanted in names else None)
        if found is None:
            near = difflib.get_close_matches(wanted.lower(), list(short), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            self.violate(where, f"{_shown(value)} is not legal; {hint}legal: {', '.join(short)}")
            return names[0]
        return found

    def _config_file(self, value: Any, where: str, result: dict[str, Any]) -> None:
        if not isinstance(value, str) or not value:
            self.violate(where, "must be the path of a config.json")
            return
        try:
            result["config_json"] = read_config_file(self._folder / value)
        except InvalidInputError as error:
            self.violations += [violation.below(where) for violation in error.violations]


def read_config_file(path: Path) -> str:
    """The text of a config.json. Raises InvalidInputError if it cannot be read or is too large to be one."""
    try:
        size = path.stat().st_size
        if size > MAXIMUM_CONFIG_BYTES:
            raise InvalidInputError.single(
                "", f"{path}: {size} bytes; a config.json has at most {MAXIMUM_CONFIG_BYTES}"
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError.single("", f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("", f"{path}: not UTF-8 text") from None


def _common_prefix(enum: EnumDescriptor) -> str:
    zero = next(item.name for item in enum.values if item.number == 0)
    return zero.removesuffix("UNSPECIFIED")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
