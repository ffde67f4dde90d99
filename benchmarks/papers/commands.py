"""What the commands share: names, nodes of a trace, counts of a replay, exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from benchmarks.papers.replays.inputs import SpotChange, spot_changes
from benchmarks.papers.replays.result import ReplayResult
from wattkeeper.policies.errors import InputError, WattkeeperError
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.cli import terminal
from wattkeeper.traces.library import store
from wattkeeper.traces.node_events import add_repairs, node_events


class PaperCommand(click.Command):
    """A command whose errors of wattkeeper end in a message and their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except WattkeeperError as error:
            terminal.write(str(error), err=True)
            ctx.exit(error.exit_code)


def choose(what: str, chosen: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """The chosen names, in their order; all that are known if none is chosen.

    Raises:
        InputError: If one is not known.
    """
    for name in chosen:
        if name not in known:
            meant = did_you_mean(name, known)
            raise InputError(f"no {what} {name!r}{meant}; there is {', '.join(known)}")
    return tuple(dict.fromkeys(chosen)) or tuple(known)


def counts(result: ReplayResult) -> dict[str, Any]:
    """What a replay counted, by name; without spans."""
    names = (name for name in ReplayResult.__slots__ if name != "spans")
    return {name: getattr(result, name) for name in names}


def read_changes(trace: str) -> tuple[SpotChange, ...]:
    """The nodes that come and are lost in a trace, by name or path.

    Raises:
        InputError: If there is no such trace, it holds something else, or nodes become slow in it.
    """
    found = store.find(trace)
    if found.kind != "node-events":
        raise InputError(f"trace {found.name!r} holds {found.kind}; node-events are needed")
    return spot_changes(list(add_repairs(node_events(found.tables["node-events"]))))
