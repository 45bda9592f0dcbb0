"""`inferplan profiles`: look at measurements, and take them out of use."""

from __future__ import annotations

import click
import grpc
from rich.table import Table

from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import format_option, server_option, settings_or_exit
from inferplan.cli.output import FORMATS, console, print_json, print_json_list, print_yaml
from inferplan.cli.profile_text import measurement_count, print_profile, rejected_count, status_text
from inferplan.v1 import profile_pb2, profile_service_pb2, profile_service_pb2_grpc

PROFILES = "profiles/"


@click.group("profiles")
def profiles_group() -> None:
    """What nodes and benchmark runs measured."""


@profiles_group.command("list")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Most profiles to print.")
@server_option
@format_option("text", "json")
def profiles_list(limit: int, server: str | None, output_format: str) -> None:
    """List profiles, newest first."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        profiles = _collect_profiles(channel, limit)
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


def _collect_profiles(channel: grpc.Channel, limit: int) -> list[profile_pb2.Profile]:
    stub = profile_service_pb2_grpc.ProfileServiceStub(channel)
    profiles: list[profile_pb2.Profile] = []
    token = ""
    while len(profiles) < limit:
        request = profile_service_pb2.ListProfilesRequest(page_size=min(50, limit - len(profiles)), page_token=token)
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
