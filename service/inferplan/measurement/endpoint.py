"""Measuring a running endpoint: the load tool over a grid of loads, and the profile that comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from inferplan.errors import InvalidInputError, Violation
from inferplan.measurement.aiperf_report import ServedConfiguration, read_report
from inferplan.measurement.endpoint_facts import EndpointFacts, read_endpoint_facts
from inferplan.measurement.load_tool import GridPoint, LoadTarget, find_load_tool, run_load_tool
from inferplan.profiles.profile import Profile, ProfileProvenance

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


@dataclass(frozen=True, slots=True)
class EndpointQuestion:
    """What is to be measured. Names are those of the catalogue; `served_model` empty means the endpoint's only one."""

    url: str
    accelerator: str
    engine: str
    served: ServedConfiguration
    tokenizer: Path
    points: tuple[GridPoint, ...]
    served_model: str = ""
    engine_version: str = ""
    engine_flags: str = ""
    measured_by: str = ""


@dataclass(frozen=True, slots=True)
class EndpointMeasurement:
    """The profile, and what deserves a look."""

    profile: Profile
    notes: tuple[str, ...] = ()


def measure_endpoint(
    question: EndpointQuestion, folder: Path, progress: Callable[[GridPoint], None] = lambda _point: None
) -> EndpointMeasurement:
    """Load the endpoint at every point of the grid; the tool's own files stay in `folder`.

    `progress` is told each point before it runs. Raises InvalidInputError for a question that cannot be asked, with all
    that is wrong, and InferplanError where the load tool fails.
    """
    violations = tokenizer_violations(question.tokenizer)
    if violations:
        raise InvalidInputError(violations)
    program = find_load_tool()
    facts = read_endpoint_facts(question.url)
    target = LoadTarget(question.url, served_name(question, facts), question.tokenizer.resolve())
    contents = []
    for point in question.points:
        progress(point)
        contents.append((point, run_load_tool(program, target, point, folder / point.label)))
    return assemble(question, facts, contents)


def assemble(
    question: EndpointQuestion, facts: EndpointFacts, contents: list[tuple[GridPoint, bytes]]
) -> EndpointMeasurement:
    """The profile of the reports, in the order in which they were made. The hash is that of all their bytes in turn."""
    points, versions, digest = [], [], hashlib.sha256()
    for point, content in contents:
        digest.update(content)
        read, version = read_report(content, point.concurrency, question.served)
        points.append(read)
        versions.append(version)
    notes = [
        f"{point.label}: {read.failed_requests} requests failed"
        for (point, _content), read in zip(contents, points, strict=True)
        if read.failed_requests
    ]
    said, given = facts.engine_version, question.engine_version
    if said and given and said != given:
        notes.append(f"the endpoint says that it is version {said}, not {given}; {said} is recorded")
    provenance = ProfileProvenance(
        accelerator=question.accelerator,
        engine=question.engine,
        engine_version=said or given,
        engine_flags=question.engine_flags,
        tool="aiperf",
        tool_version=versions[-1],
        measure_time=datetime.now(UTC),
        measured_by=question.measured_by,
        raw_sha256=digest.hexdigest(),
    )
    return EndpointMeasurement(Profile(provenance, serving_points=tuple(points)), tuple(notes))


def served_name(question: EndpointQuestion, facts: EndpointFacts) -> str:
    """The name to ask for. Raises InvalidInputError if the endpoint does not serve it, or serves several."""
    if question.served_model in facts.models:
        return question.served_model
    if not question.served_model and len(facts.models) == 1:
        return facts.models[0]
    legal = ", ".join(facts.models) or "none, since the endpoint serves nothing"
    wrong = f"{question.served_model!r} is not served" if question.served_model else "must be given"
    raise InvalidInputError.single("--served-model", f"{wrong}; legal: {legal}")


def tokenizer_violations(folder: Path) -> list[Violation]:
    """What is wrong with the tokenizer's folder: the load tool would look for anything else on the internet."""
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        return []
    legal = ", ".join(TOKENIZER_FILES)
    return [
        Violation(
            "--tokenizer",
            f"{folder} holds no tokenizer; legal is a folder on this machine with one of {legal}, such as the "
            "model's own. Nothing is fetched",
        )
    ]
