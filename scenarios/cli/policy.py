"""The commands `wattkeeper policy ...`: policies of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from wattkeeper.policies.registry import POINTS, Point
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE, PATH

FAILED: Final = 1


@click.group()
def policy() -> None:
    """Write policies of your own, and check them."""


@policy.command()
@click.argument("file", type=FILE)
def check(file: Path) -> None:
    """Check the policies in FILE: by the contract, simulated, and in a rehearsed live run.

    Each fault is a line with the line of the file. Exit code 1: there are some. Else, notes name
    what looks like a mistake, such as a method that nothing calls.
    """
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.contract.check import check_policy_file
    from wattkeeper.scenarios.spec.wording import count

    report = check_policy_file(file)
    for line in (*report.faults, *report.checked):
        terminal.write(str(line))
    if report.faults:
        terminal.write(count(len(report.faults), "fault"), err=True)
        click.get_current_context().exit(FAILED)
    for note in report.notes:
        terminal.write(f"{note.path}:{note.line}: note: {note.message}")
    terminal.write(f"{file}: keeps the contract")


@policy.command()
@click.argument("point", type=click.Choice(tuple(POINTS)))
@click.argument("name")
@click.option("--out", type=PATH, default=Path(), help="Folder of the files [.].")
@click.option("--preemptive", is_flag=True, help="A select policy that preempts jobs.")
def new(point: Point, name: str, out: Path, preemptive: bool) -> None:
    """Write a file with a policy of a decision point, called NAME, and one with its test.

    They are a stateful example, with comments, to change. Prints the commands that check it, and
    compare it with other policies.
    """
    from wattkeeper.scenarios.contract.new_policy import list_next_steps, write_policy

    out.mkdir(parents=True, exist_ok=True)
    written = write_policy(point, name, out, preemptive)
    for path in written:
        terminal.write(str(path))
    terminal.write("Next:")
    for command in list_next_steps(point, name, written[0]):
        terminal.write(f"  {command}")
