"""A benchmark file as text, and as JSON where it is JSON. The only place where NaN and infinity are let in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from inferplan.errors import InvalidInputError

MAXIMUM_FILE_BYTES = 64 * 2**20
MAXIMUM_JSON_DEPTH = 100
"""Real files nest about 10 deep."""
MAXIMUM_JSON_VALUES = 5_000_000
"""A parsed value takes about 100 bytes, so this bounds the memory of a read to about 500 MB."""
MAXIMUM_JSON_LINES = 100_000

_NOT_JSON = object()


@dataclass(frozen=True, slots=True)
class BenchmarkContent:
    """A file's text, and `records`: the one JSON document, the elements of a JSON array, or one document a line.

    `records` is empty for what is not JSON, or holds anything but objects. `is_json` says whether the text is JSON at
    all. Bare Infinity and NaN, which JSON forbids and benchmark tools write, are floats here; readers decide.
    """

    text: str
    records: tuple[Mapping[str, object], ...] = ()
    is_json: bool = False

    @property
    def document(self) -> Mapping[str, object]:
        """The one JSON object of the file; empty if there is not exactly one."""
        return self.records[0] if len(self.records) == 1 else {}


def parse_content(content: bytes) -> BenchmarkContent:
    """The file's content.

    Raises InvalidInputError for files above 64 MiB, text that is not UTF-8, and JSON that is nested too deeply or
    holds too many values. Text that is not JSON is no error: it may be CSV.
    """
    if len(content) > MAXIMUM_FILE_BYTES:
        raise _refused(f"has {len(content)} bytes; legal is at most {MAXIMUM_FILE_BYTES} (64 MiB)", "FILE_TOO_LARGE")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(f"is not UTF-8 text (byte {error.start})", "NOT_TEXT") from None
    if not text.strip():
        raise _refused("is empty", "EMPTY_FILE")
    if text.lstrip()[0] not in "{[":
        return BenchmarkContent(text)
    _check_values(text)
    parsed = _parsed(text)
    if parsed is _NOT_JSON:
        return BenchmarkContent(text, *_json_lines(text))
    items = parsed if isinstance(parsed, list) else [parsed]
    records = tuple(item for item in items if isinstance(item, dict))
    return BenchmarkContent(text, records if len(records) == len(items) else (), is_json=True)


def _check_values(text: str) -> None:
    if text.count(",") + text.count("[") + text.count("{") > MAXIMUM_JSON_VALUES:
        raise _refused(
            f"holds more than {MAXIMUM_JSON_VALUES} values; leave out what is kept for each request, "
            "such as `generated_texts`, `itls` or `requests`",
            "TOO_MANY_VALUES",
        )


def _json_lines(text: str) -> tuple[tuple[Mapping[str, object], ...], bool]:
    """One object a line, as tools write that append a run to the file; nothing if any line is not one."""
    records: list[Mapping[str, object]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        record = _parsed(line)
        if not isinstance(record, dict):
            return (), False
        if len(records) == MAXIMUM_JSON_LINES:
            raise _refused(f"has more than {MAXIMUM_JSON_LINES} JSON lines", "TOO_MANY_ROWS")
        records.append(record)
    return tuple(records), bool(records)


def _parsed(text: str) -> object:
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        return _NOT_JSON
    _check_depth(parsed)
    return parsed


def _check_depth(parsed: object) -> None:
    level = [parsed]
    for _ in range(MAXIMUM_JSON_DEPTH + 1):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(child for child in value.values() if isinstance(child, dict | list))
            elif isinstance(value, list):
                below.extend(child for child in value if isinstance(child, dict | list))
        if not below:
            return
        level = below
    raise _too_deep()


def _too_deep() -> InvalidInputError:
    return _refused(f"is JSON nested deeper than {MAXIMUM_JSON_DEPTH} levels", "NESTED_TOO_DEEPLY")


def _refused(description: str, reason: str) -> InvalidInputError:
    return InvalidInputError.single("file", description, reason)
