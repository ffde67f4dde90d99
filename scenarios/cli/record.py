"""The command `wattkeeper record`."""

import math
from collections.abc import Callable
from typing import Any

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.traces.files.user_dirs import library_folder


def _list_type(requirement: str, kind: type[int] | type[float]) -> Callable[[str], tuple[Any, ...]]:
    """A parser of positive numbers with commas between."""

    def parse_list(text: str) -> tuple[Any, ...]:
        try:
            values = tuple(kind(part) for part in text.split(","))
        except ValueError:
            values = ()
        if not values or not all(0 < number < math.inf for number in values):
            raise click.BadParameter(f"found {str(text)!r}; must be {requirement}")
        return values

    return parse_list


_SIZES = _list_type("batch sizes > 0 with commas between, as 32,64,128", int)
_LIMITS = _list_type("power limits in W > 0 with commas between, as 150,200,250", float)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--name", required=True, help="Its name in the trace library.")
@click.option(
    "--batch-sizes",
    type=_SIZES,
    metavar="N,N,...",
    help="Global batch sizes, and the script's default one [the script's].",
)
@click.option(
    "--power-limits",
    type=_LIMITS,
    metavar="W,W,...",
    help="Limits of each GPU [all that may be set, 25 W apart].",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=3,
    help="Trainings to the target for each batch size [3].",
)
@click.option(
    "--epochs", type=click.IntRange(1), default=3, help="Epochs at each lower power limit [3]."
)
@click.option(
    "--torchrun",
    type=click.IntRange(1),
    metavar="N",
    help="Have torchrun start N processes of it, one a GPU.",
)
@click.option(
    "--lease",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=60.0,
    metavar="S",
    help="Give up a training silent for so long, s [60].",
)
@click.option("--replace", is_flag=True, help="Replace what the trace has of this training.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record(
    name: str,
    batch_sizes: tuple[int, ...] | None,
    power_limits: tuple[float, ...] | None,
    repeats: int,
    epochs: int,
    torchrun: int | None,
    lease: float,
    replace: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Record SCRIPT, a file or a module that uses a Session, as a profile to replay.

    The script runs repeatedly: to its target at every batch size, and for some epochs at every
    lower power limit. The same command resumes an interrupted recording.
    """
    from wattkeeper.live.record import sweep as recorder
    from wattkeeper.live.record.to_trace import build_trace, check_new, find_recorded
    from wattkeeper.traces.files.names import check_name
    from wattkeeper.traces.files.private import make_private_folder
    from wattkeeper.traces.library import store

    before = find_recorded(check_name(name))
    plan = recorder.RecordingPlan(
        script, arguments, batch_sizes, power_limits, repeats, epochs, torchrun, lease
    )
    folder = library_folder() / ".recording" / name
    for own in (folder.parent, folder):
        make_private_folder(own)
    with terminal.progress(script) as progress:
        recording = recorder.record(
            plan, folder, lambda begun: check_new(before, begun, replace), progress
        )
    trace = build_trace(name, plan, recording, before)
    path = store.save(trace, replace=before is not None)
    recorder.remove_runs(folder)
    for table, rows in trace.tables.items():
        terminal.write(f"{rows.num_rows:8} {table}")
    for note in trace.notes:
        terminal.write(f"Note: {note}")
    latencies = trace.parameters["latencies"][-1]
    shown = ", ".join(
        f"{key} {'absent' if value is None else f'{value:.3g}'}"
        for key, value in latencies.items()
        if key.endswith("_s")
    )
    terminal.write(f"Latencies of {latencies['workload']} (latencies: recorded): {shown}")
    terminal.write(f"{trace.name} ({trace.kind}, {trace.origin}): {path}")
