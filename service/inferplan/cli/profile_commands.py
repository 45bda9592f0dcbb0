"""`inferplan profiles`: import measurements, look at them, take them out of use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import grpc
from rich.table import Table

from inferplan.cli.configuration_options import COUNT
from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import (
    KV_PRECISIONS,
    PRECISIONS,
    filter_option,
    format_option,
    server_option,
    settings_or_exit,
)
from inferplan.cli.output import FORMATS, console, print_json, print_json_list, print_yaml
from inferplan.cli.profile_file import import_header, import_messages, read_benchmark_file
from inferplan.cli.profile_text import measurement_count, print_import, print_profile, rejected_count, status_text
from inferplan.v1 import profile_pb2, profile_service_pb2, profile_service_pb2_grpc

PROFILES = "profiles/"


@click.group("profiles")
def profiles_group() -> None:
    """What nodes and benchmark runs measured."""


@profiles_group.command("import")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--tool", default="", metavar="NAME", help="Tool that wrote the file; default: told from the content.")
@click.option("--accelerator", required=True, metavar="ID", help="Where the file does not name one.")
@click.option("--model", default="", metavar="ID", help="Where the file does not name it.")
@click.option("--engine", default="", metavar="ID", help="Where the file does not name it.")
@click.option("--engine-version", default="", metavar="VERSION", help="Where the file does not state it.")
@click.option("--tensor-parallel", type=COUNT, help="GPUs that shared every layer, where the file does not say.")
@click.option("--pipeline-parallel", type=COUNT, help="Stages of layers, where the file does not say.")
@click.option("--expert-parallel", type=COUNT, help="GPUs that shared the experts, where the file does not say.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Of the weights, where the file does not say.")
@click.option("--kv-dtype", type=click.Choice(KV_PRECISIONS), help="Of the KV cache, where the file does not say.")
@click.option("--node", default="", metavar="NAME", help="Node that was measured.")
@click.option("--driver", default="", metavar="VERSION", help="Driver version.")
@click.option("--source", default="", metavar="TEXT", help="Where the figures were published.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="The site's own; may be repeated.")
@server_option
@format_option(*FORMATS)
def profiles_import(path: Path, labels: tuple[str, ...], server: str | None, output_format: str, **said: Any) -> None:
    """Read a benchmark tool's own file and store what it measured, each point with the sanity rules that it broke."""
    settings = settings_or_exit()
    with explained():
        content = read_benchmark_file(path)
        header = import_header(path.name, content, labels, said)
        with connect(server, settings) as channel:
            stub = profile_service_pb2_grpc.ProfileServiceStub(channel)
            response = stub.ImportProfile(import_messages(header, content), timeout=CALL_SECONDS)
    if output_format == "text":
        print_import(response, console())
    elif output_format == "yaml":
        print_yaml(response)
    else:
        print_json(response)


@profiles_group.command("list")
@filter_option("engine = vllm AND status = active")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Most profiles to print.")
@server_option
@format_option("text", "json")
def profiles_list(filter_text: str, limit: int, server: str | None, output_format: str) -> None:
    """List profiles, newest first."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        profiles = _collect_profiles(channel, filter_text, limit)
    if output_format == "json":
        print_json_list(list(profiles))
        return
    table = Table("profile", "created", "accelerator", "engine", "tool", "points", "rejected", "status")
    for column in table.columns[:3]:
        column.no_wrap = True
    for profile in profiles:
        provenance = profile.provenance
        table.add_row(
            profile.name.removeprefix(PROFILES),
            profile.create_time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S") + "Z",
            provenance.accelerator.removeprefix("accelerators/"),
            f"{provenance.engine.removeprefix('engines/')} {provenance.engine_version}".strip(),
            provenance.tool,
            str(measurement_count(profile)),
            str(rejected_count(profile)),
            status_text(profile),
        )
    console().print(table)


@profiles_group.command("show")
@click.argument("name", metavar="PROFILE")
@server_option
@format_option(*FORMATS)
def profiles_show(name: str, server: str | None, output_format: str) -> None:
    """Show one profile, by its resource name or its id."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = profile_service_pb2.GetProfileRequest(name=full_profile_name(name))
        profile = profile_service_pb2_grpc.ProfileServiceStub(channel).GetProfile(request, timeout=CALL_SECONDS)
    _print(profile, output_format)


@profiles_group.command("withdraw")
@click.argument("name", metavar="PROFILE")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept and cannot be changed.")
@click.option("--superseded-by", default="", metavar="PROFILE", help="The profile that takes its place.")
@server_option
@format_option(*FORMATS)
def profiles_withdraw(name: str, reason: str, superseded_by: str, server: str | None, output_format: str) -> None:
    """Take a profile out of use. Nothing is deleted: plans and calibrations that were made with it keep it."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = profile_service_pb2.WithdrawProfileRequest(
            name=full_profile_name(name),
            reason=reason,
            superseded_by=full_profile_name(superseded_by) if superseded_by else "",
        )
        profile = profile_service_pb2_grpc.ProfileServiceStub(channel).WithdrawProfile(request, timeout=CALL_SECONDS)
    _print(profile, output_format)


def full_profile_name(text: str) -> str:
    """The resource name of `profiles/a` and of `a` alike."""
    return f"{PROFILES}{text.removeprefix(PROFILES)}"


def _collect_profiles(channel: grpc.Channel, filter_text: str, limit: int) -> list[profile_pb2.Profile]:
    stub = profile_service_pb2_grpc.ProfileServiceStub(channel)
    profiles: list[profile_pb2.Profile] = []
    token = ""
    while len(profiles) < limit:
        request = profile_service_pb2.ListProfilesRequest(
            page_size=min(50, limit - len(profiles)), page_token=token, filter=filter_text
        )
        page = stub.ListProfiles(request, timeout=CALL_SECONDS)
        profiles.extend(page.profiles)
        token = page.next_page_token
        if not token:
            break
    return profiles


def _print(profile: profile_pb2.Profile, output_format: str) -> None:
    if output_format == "json":
        print_json(profile)
    elif output_format == "yaml":
        print_yaml(profile)
    else:
        print_profile(profile, console())
