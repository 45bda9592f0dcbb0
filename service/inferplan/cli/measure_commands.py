"""`inferplan measure`: what a node's GPUs reach, and what a running endpoint does under load."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
from google.protobuf import json_format

from inferplan.catalog import Catalog, Precision, load_catalog
from inferplan.cli.configuration_options import COUNT
from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import KV_PRECISIONS, PRECISIONS, format_option, server_option, settings_or_exit
from inferplan.cli.output import console, error_console, print_json
from inferplan.cli.profile_text import measurement_count, print_profile, rejected_count
from inferplan.errors import InvalidInputError, NotFoundError, Violation
from inferplan.measurement.aiperf_report import ServedConfiguration
from inferplan.measurement.endpoint import EndpointQuestion, measure_endpoint, tokenizer_violations
from inferplan.measurement.load_tool import GridPoint, grid_points
from inferplan.measurement.node import measure_node
from inferplan.profiles.profile import Profile
from inferplan.rpc.convert.profile import profile_to_wire
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.v1 import profile_pb2, profile_service_pb2, profile_service_pb2_grpc

MeasureFunction = Callable[[], tuple[Profile, tuple[str, ...]]]


class CountList(click.ParamType[tuple[int, ...]]):
    """Whole numbers above zero, separated by commas."""

    name = "N,N,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers, without repetition."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        return tuple(dict.fromkeys(COUNT(part.strip(), param, ctx) for part in parts))


COUNTS = CountList()
out_option = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the profile to this file, as the contract's JSON, and store nothing.",
)
measured_by_option = click.option("--measured-by", default="", metavar="NAME", help="Who measures; recorded.")


@click.group("measure")
def measure_group() -> None:
    """Measure a node's GPUs or a running endpoint; the result is stored as a profile."""


@measure_group.command("node")
@click.option("--accelerator", default="", metavar="ID", help="Catalogue name; default: from what the driver says.")
@measured_by_option
@out_option
@server_option
@format_option("text", "json")
def measure_node_command(
    accelerator: str, measured_by: str, out: Path | None, server: str | None, output_format: str
) -> None:
    """Measure memory, matrix products, transfers and all-reduce on every GPU of this machine.

    Needs the extra `inferplan[measure]`, and the GPUs to be idle.
    """
    settings = settings_or_exit()

    def measure() -> tuple[Profile, tuple[str, ...]]:
        measured = measure_node(load_catalog(settings.catalog_directory), accelerator, measured_by)
        return measured.profile, measured.notes

    _measure_and_store(measure, out, server, output_format)


@measure_group.command("endpoint")
@click.argument("url")
@click.option("--model", required=True, metavar="ID", help="Catalogue name of the model.")
@click.option("--accelerator", required=True, metavar="ID", help="Catalogue name of the GPUs behind the endpoint.")
@click.option("--engine", required=True, metavar="ID", help="Serving engine, such as vllm.")
@click.option("--engine-version", default="", metavar="VERSION", help="Default: what the endpoint says.")
@click.option("--engine-flags", default="", help="The engine's full command line; recorded.")
@click.option("--tensor-parallel", type=COUNT, default=1, show_default=True, help="GPUs that share every layer.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Number format of the weights; recorded.")
@click.option("--kv-dtype", type=click.Choice(KV_PRECISIONS), help="Number format of the KV cache; recorded.")
@click.option("--max-num-seqs", type=COUNT, help="Sequences that run at once; recorded.")
@click.option("--max-num-batched-tokens", type=COUNT, help="Token budget of one step; recorded.")
@click.option(
    "--tokenizer",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder with the model's tokenizer. Nothing is fetched.",
)
@click.option(
    "--served-model", default="", metavar="NAME", help="Name that the endpoint serves; default: its only one."
)
@click.option("--concurrency", type=COUNTS, default="1,4,16,64", show_default=True, help="Clients, each one request.")
@click.option("--input-tokens", type=COUNTS, default="1024", show_default=True, help="Prompt lengths.")
@click.option("--output-tokens", type=COUNTS, default="256", show_default=True, help="Output lengths.")
@click.option("--requests-per-point", type=COUNT, help="Default: five for each client, and at least 20.")
@click.option(
    "--reports", type=click.Path(file_okay=False, path_type=Path), help="Keep the load tool's own files in this folder."
)
@measured_by_option
@out_option
@server_option
@format_option("text", "json")
def measure_endpoint_command(
    url: str,
    model: str,
    accelerator: str,
    engine: str,
    engine_version: str,
    engine_flags: str,
    tensor_parallel: int,
    precision: str | None,
    kv_dtype: str | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    tokenizer: Path,
    served_model: str,
    concurrency: tuple[int, ...],
    input_tokens: tuple[int, ...],
    output_tokens: tuple[int, ...],
    requests_per_point: int | None,
    reports: Path | None,
    measured_by: str,
    out: Path | None,
    server: str | None,
    output_format: str,
) -> None:
    """Load an OpenAI-compatible server at every combination of concurrency and lengths, with AIPerf.

    Needs the extra `inferplan[endpoint]`, and nobody else on the endpoint. URL is without /v1: http://127.0.0.1:8000.
    """
    settings = settings_or_exit()
    kv_precision = None if kv_dtype in (None, "auto") else Precision(kv_dtype)
    question = EndpointQuestion(
        url=url.rstrip("/"),
        accelerator=accelerator,
        engine=engine,
        served=ServedConfiguration(
            model,
            ParallelismChoice(tensor_parallel=tensor_parallel),
            Precision(precision) if precision else None,
            kv_precision,
            max_num_seqs,
            max_num_batched_tokens,
        ),
        tokenizer=tokenizer,
        points=tuple(grid_points(concurrency, input_tokens, output_tokens, requests_per_point)),
        served_model=served_model,
        engine_version=engine_version,
        engine_flags=engine_flags,
        measured_by=measured_by,
    )

    def measure() -> tuple[Profile, tuple[str, ...]]:
        raise_violations(_name_violations(load_catalog(settings.catalog_directory), question))
        with ExitStack() as stack:
            folder = reports or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inferplan-load-")))
            measured = measure_endpoint(question, folder, _tell_point)
        return measured.profile, measured.notes

    _measure_and_store(measure, out, server, output_format)


def _name_violations(catalog: Catalog, question: EndpointQuestion) -> list[Violation]:
    """Names that the catalogue does not know, and a tokenizer that is not there: all before anything is loaded."""
    violations = []
    for option, look_up, name in (
        ("--model", catalog.model, question.served.model),
        ("--accelerator", catalog.accelerator, question.accelerator),
        ("--engine", catalog.engine, question.engine),
    ):
        try:
            look_up(name)
        except NotFoundError as error:
            violations.append(Violation(option, str(error)))
    return violations + tokenizer_violations(question.tokenizer)


def _measure_and_store(measure: MeasureFunction, out: Path | None, server: str | None, output_format: str) -> None:
    with explained():
        if out is not None:
            profile, notes = measure()
            request = _create_request(profile)
            _write(request.profile, out)
            stored, place = request.profile, str(out)
        else:
            with connect(server, settings_or_exit()) as channel:
                stub = profile_service_pb2_grpc.ProfileServiceStub(channel)
                _require_service(stub)
                profile, notes = measure()
                stored = stub.CreateProfile(_create_request(profile), timeout=CALL_SECONDS)
                place = stored.name
    for note in notes:
        error_console().print(f"note: {note}", markup=False, soft_wrap=True)
    if output_format == "json":
        print_json(stored)
        return
    print_profile(stored, console())
    counts = f"{measurement_count(stored)} measurements, {rejected_count(stored)} of them rejected"
    console().print(f"{counts}: {place}", markup=False, soft_wrap=True)


def _require_service(stub: profile_service_pb2_grpc.ProfileServiceStub) -> None:
    """Ask something cheap first: to learn only after an hour of measuring that nothing can be stored would lose it."""
    stub.ListProfiles(profile_service_pb2.ListProfilesRequest(page_size=1), timeout=CALL_SECONDS)


def _create_request(profile: Profile) -> profile_service_pb2.CreateProfileRequest:
    """The request, which keeps the contract's rules. Its id makes a repetition by the channel harmless."""
    request = profile_service_pb2.CreateProfileRequest(profile=profile_to_wire(profile), request_id=str(uuid.uuid4()))
    request.profile.ClearField("status")  # the service's to set
    raise_violations(message_violations(request))
    return request


def _write(profile: profile_pb2.Profile, out: Path) -> None:
    try:
        out.write_text(json_format.MessageToJson(profile, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInputError.single("--out", f"{out} cannot be written: {error.strerror or error}") from None


def _tell_point(point: GridPoint) -> None:
    error_console().print(f"loading: {point.label}, {point.requests} requests", markup=False, soft_wrap=True)
