"""Loading the catalogue: the YAML files shipped with the package, and a site's own on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import Model
from inferplan.catalog.catalog import Catalog
from inferplan.catalog.checks import accelerator_violations, engine_violations, model_violations
from inferplan.catalog.engine import Engine
from inferplan.catalog.structure import structure
from inferplan.errors import InvalidInputError, Violation

_Entry = TypeVar("_Entry", Model, Accelerator, Engine)


def load_catalog(extra_directory: Path | None = None) -> Catalog:
    """The built-in catalogue, with the entries of `extra_directory` added.

    The directory has the layout of the built-in data: `models/`, `accelerators/` and `engines/`, one YAML file an
    entry, named after its id; any of the three may be absent. An entry with the id of a built-in one replaces it.
    Built-in data is read once a process, a site's on every call.

    Raises InvalidInputError naming every file and field that is wrong.
    """
    built_in = _built_in_catalog()
    if extra_directory is None:
        return built_in
    if not extra_directory.is_dir():
        raise InvalidInputError.single(
            "catalog_directory",
            f"{extra_directory} is not a directory; legal is one with models/, accelerators/, engines/",
        )
    site = _load_directory(extra_directory, str(extra_directory))
    return built_in.with_entries(site)


def is_built_in(entry: Model | Accelerator | Engine) -> bool:
    """Whether the entry ships with the package as it stands: not added, replaced or re-priced."""
    built_in = _built_in_catalog()
    return any(entry == known for known in (*built_in.models(), *built_in.accelerators(), *built_in.engines()))


@cache
def _built_in_catalog() -> Catalog:
    return _load_directory(resources.files("inferplan.catalog") / "data", "")


def _load_directory(directory: Traversable, prefix: str) -> Catalog:
    """`prefix` leads the file names in messages."""
    violations: list[Violation] = []

    def load(folder: str, kind: type[_Entry], check: Callable[[_Entry], list[Violation]]) -> list[_Entry]:
        entries: list[_Entry] = []
        for file in _yaml_files(directory / folder):
            entry, found = _load_file(file, kind, check)
            path = "/".join(part for part in (prefix, folder, file.name) if part)
            violations.extend(_in_file(path, violation) for violation in found)
            if entry is not None:
                entries.append(entry)
        return entries

    models = load("models", Model, model_violations)
    accelerators = load("accelerators", Accelerator, accelerator_violations)
    engines = load("engines", Engine, engine_violations)
    if violations:
        raise InvalidInputError(violations)
    return Catalog(models, accelerators, engines)


def _load_file(
    file: Traversable, kind: type[_Entry], check: Callable[[_Entry], list[Violation]]
) -> tuple[_Entry | None, list[Violation]]:
    try:
        entry = structure(_parse_yaml(file), kind)
    except InvalidInputError as error:
        return None, list(error.violations)
    found = check(entry)
    if file.name.removesuffix(".yaml") != entry.id:
        found.append(Violation("id", f"is {entry.id[:80]!r}; legal is the file's own name without .yaml"))
    return entry, found


def _yaml_files(folder: Traversable) -> Iterator[Traversable]:
    if folder.is_dir():
        files = [file for file in folder.iterdir() if file.name.endswith(".yaml")]
        yield from sorted(files, key=lambda file: file.name)


def _parse_yaml(file: Traversable) -> object:
    try:
        return YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError.single("", f"is not YAML: {' '.join(str(error).split())[:300]}", "NOT_YAML") from None


def _in_file(path: str, violation: Violation) -> Violation:
    return Violation(f"{path}: {violation.field}" if violation.field else path, violation.description, violation.reason)
