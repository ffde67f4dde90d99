"""The commands `wattkeeper policy ...`: policies of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE

FAILED: Final = 1


@click.group()
def policy() -> None:
    """Write policies of your own, and check them."""


@policy.command()
@click.argument("file", type=FILE)
def check(file: Path) -> None:
    """Check the policies in FILE: by the contract, simulated, and in a rehearsed live run.

    Each fault is a line with the line of the file. Exit code 1: there are some.
    """
    from wattkeeper.scenarios.contract.check import check_policy_file
    from wattkeeper.scenarios.spec.wording import count
    from wattkeeper.traces.arrow import configure_arrow

    configure_arrow()
    report = check_policy_file(file)
    for line in (*report.faults, *report.checked):
        terminal.write(str(line))
    if report.faults:
        terminal.write(count(len(report.faults), "fault"), err=True)
        click.get_current_context().exit(FAILED)
    terminal.write(f"{file}: keeps the contract")
