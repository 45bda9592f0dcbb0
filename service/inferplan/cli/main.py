"""`inferplan …`: the command line."""

from __future__ import annotations

import click

from inferplan import __version__
from inferplan.cli.accuracy_command import accuracy_command
from inferplan.cli.calibration_commands import calibrations_group
from inferplan.cli.catalog_commands import accelerators_group, models_group
from inferplan.cli.database_commands import database_group
from inferplan.cli.deployment_commands import deployments_group
from inferplan.cli.measure_commands import measure_group
from inferplan.cli.memory_command import memory_command
from inferplan.cli.plan_commands import plan_command, plans_group
from inferplan.cli.predict_command import predict_command
from inferplan.cli.profile_commands import profiles_group
from inferplan.cli.render_command import render_command
from inferplan.cli.replay_command import replay_command
from inferplan.cli.search_command import search_command
from inferplan.cli.serve_command import config_command, serve_command
from inferplan.cli.simulate_command import simulate_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def main() -> None:
    """Plan fleets for LLM inference: replicas, parallelism, predicted latency, cost, autoscaling.

    Commands that take --server talk to a running service; without it they work in this process, over the database that
    `inferplan config` names.

    Exit codes: 0 done, 2 bad input, 3 nothing fits, 4 the server is away, 1 anything else.
    """


@main.command("version")
def version_command() -> None:
    """Print the version."""
    click.echo(__version__)


main.add_command(plan_command)
main.add_command(plans_group)
main.add_command(deployments_group)
main.add_command(memory_command)
main.add_command(predict_command)
main.add_command(search_command)
main.add_command(simulate_command)
main.add_command(replay_command)
main.add_command(render_command)
main.add_command(profiles_group)
main.add_command(calibrations_group)
main.add_command(accuracy_command)
main.add_command(measure_group)
main.add_command(models_group)
main.add_command(accelerators_group)
main.add_command(database_group)
main.add_command(serve_command)
main.add_command(config_command)
