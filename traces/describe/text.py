"""Tables of a report on a trace, for a terminal."""

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final

from rich.console import Console
from rich.table import Table

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.profile import BOUNDARY_WORDS

NUMBER: Final = re.compile(r"((< )?[+-]?[\d.,]+( ([%hds]|min|of [\d,]+))?|-)?")


def head(report: Json, console: Console) -> None:
    """Print the trace's origin, the head of every report."""
    rows = ", ".join(f"{count} {name}" for name, count in report["rows"].items())
    title = f"{report['name']}: {report['kind']}, {report['origin']}, {rows}"
    console.print(title, style="bold", soft_wrap=True)
    console.print(f"{report['source']}; licence: {report['licence']}", soft_wrap=True)
    for note in report["notes"]:
        console.print(f"- {note}", soft_wrap=True)


def render(report: Json, console: Console) -> None:
    """Print the sections of `describe_profiles.report`."""
    _coverage(report["coverage"], console)
    _clocks(report["coverage"], console)
    _answers(report["answers"], console)
    _measurement(report["measurement"], console)
    _convergence(report["convergence"], console)
    _oddities(report["oddities"], console)
    _unmeasured(report["unmeasured"], console)
    _boundness(report["boundness"], console)
    _potential(report["potential"], report["eta"], console)


def print_table(
    console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """Print a table with numbers aligned right; nothing if it has no rows."""
    cells = list(rows)
    if not cells:
        return
    table = Table(title=title, title_justify="left")
    for head, column in zip(heads, zip(*cells, strict=True), strict=True):
        number = all(NUMBER.fullmatch(cell) for cell in column)
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _coverage(rows: Iterable[Json], console: Console) -> None:
    heads = (
        "workload",
        "GPU",
        "batch sizes",
        "usable",
        "limits in W",
        "points",
        "missing",
        "why unusable",
    )
    print_table(
        console,
        "What was recorded",
        heads,
        (
            (
                row["workload"],
                _gpu(row),
                _range(row["batch_sizes"]),
                str(len(row["usable_batch_sizes"])),
                _range(row["power_limits_w"]),
                str(row["points"]),
                str(len(row["missing"])),
                row["why_not"] or "",
            )
            for row in rows
        ),
    )


def _clocks(rows: Iterable[Json], console: Console) -> None:
    lines = [
        f"{row['workload']} on {_gpu(row)}: {row['clock_points']} points with clocks locked at "
        f"{_range(row['clocks_mhz'])} MHz"
        for row in rows
        if "clocks_mhz" in row
    ]
    print_list("", lines, console)


def _answers(rows: Iterable[Json], console: Console) -> None:
    """What energy is of, the spread over runs, and what a profile cannot answer, if anything."""
    lines = []
    for row in rows:
        told = []
        if row["energy_of"] not in (None, "gpu"):
            told.append(f"energy is of {BOUNDARY_WORDS[row['energy_of']]}")
        if "runs" in row:
            spread = f"{row['time_spread_pct']:.1f} % in time"
            if "energy_spread_pct" in row:
                spread += f" and {row['energy_spread_pct']:.1f} % in energy"
            told.append(f"{row['runs']} runs, standard deviation {spread}")
        told += row["cannot"]
        if told:
            lines.append(f"{row['workload']} on {_gpu(row)}: {'; '.join(told)}")
    print_list("What the profiles can and cannot answer", lines, console)


def _measurement(about: Json, console: Console) -> None:
    if about:
        lines = [f"{key}: {text}" for key, text in about["stated"].items()]
        absent = ", ".join(about["not_stated"])
        lines += [f"not stated: {absent}"] if absent else []
        print_list("What the table says of itself", lines, console)


def _convergence(rows: Iterable[Json], console: Console) -> None:
    heads = ("workload", "target", "most epochs", "batch sizes", "runs", "reached", "epochs")
    cells = []
    for row in rows:
        sizes = row["batch_sizes"]
        if not sizes:
            continue
        runs = sum(size["runs"] for size in sizes)
        reached = sum(size["runs"] * size["reached"] for size in sizes)
        epochs = [size["mean_epochs"] for size in sizes if size["mean_epochs"] is not None]
        target = f"{'>=' if row['higher_is_better'] else '<='} {row['target']:g}"
        cells.append(
            (
                row["workload"],
                target,
                str(row["max_epochs"]),
                _range([size["batch_size"] for size in sizes]),
                str(runs),
                f"{100 * reached / runs:.0f} %",
                f"{min(epochs):.3g} to {max(epochs):.3g}" if epochs else "-",
            )
        )
    print_table(console, "Convergence to the target", heads, cells)


def _oddities(odd: Json, console: Console) -> None:
    lines = []
    for row in odd["above_cap"]:
        if worst := row["worst"]:
            lines.append(
                f"{_gpu(row)}: {row['rows']} of {row['of']} points draw more than their cap, at "
                f"worst {worst['average_power_w']:.1f} W at {worst['power_limit_w']:g} W "
                f"({worst['workload']}, batch size {worst['batch_size']})"
            )
    for row in odd["slower_at_higher_limit"]:
        if worst := row["worst"]:
            low, high = worst["power_limits_w"]
            lines.append(
                f"{_gpu(row)}: at {row['rows']} of {row['of']} neighbouring limits "
                f"({100 * row['share']:.0f} %) the higher one is more than 2 % slower, at worst "
                f"{worst['slower_pct']:.0f} % from {low:g} to {high:g} W ({worst['workload']}, "
                f"batch size {worst['batch_size']})"
            )
    for row in odd["never_reached"]:
        listed = ", ".join(map(str, row["batch_sizes"]))
        lines.append(f"{row['workload']}: no run reached the target at batch size {listed}")
    print_list("", lines, console)
    rows = (
        (
            row["workload"],
            _gpu(row),
            ", ".join(map(str, row["profiles_only"])),
            ", ".join(map(str, row["convergence_only"])),
        )
        for row in odd["one_table_only"]
    )
    heads = ("workload", "GPU", "with power only", "with convergence only")
    print_table(console, "Batch sizes in one table only", heads, rows)


def _unmeasured(rows: Iterable[Json], console: Console) -> None:
    named = [f"{row['workload']} on {_gpu(row)}" for row in rows]
    if named:
        text = f"Nothing measured power: {', '.join(named)}. Only time can be saved (--eta 0)."
        print_list("", [text], console)


def _boundness(rows: Iterable[Json], console: Console) -> None:
    """Where limits act, and how far workloads are bound by the clock there."""
    heads = ("workload", "GPU", "batch sizes", "with a limit that acts", "boundness")
    print_table(
        console,
        "Limits below the draw; others change nothing",
        heads,
        (
            (
                row["workload"],
                _gpu(row),
                str(row["batch_sizes"]),
                str(row["limited"]),
                "-" if row["boundness"] is None else "{:.2f} to {:.2f}".format(*row["boundness"]),
            )
            for row in rows
        ),
    )


def _potential(rows: Iterable[Json], eta: float, console: Console) -> None:
    """Savings of an oracle; energy and time in % of the default's."""
    heads = (
        "workload",
        "GPU",
        "default",
        "both knobs",
        "energy",
        "time",
        "power limit only",
        "energy",
        "batch size only",
        "energy",
    )
    print_table(
        console,
        f"What an oracle would choose at eta {eta:g}, and save",
        heads,
        (
            (
                row["workload"],
                _gpu(row),
                _choice(row["default"]),
                _choice(row["both"]),
                _saving(row["both"], "energy"),
                _saving(row["both"], "time"),
                _choice(row["power_limit"]),
                _saving(row["power_limit"], "energy"),
                _choice(row["batch_size"]),
                _saving(row["batch_size"], "energy"),
            )
            for row in rows
        ),
    )


def print_list(title: str, lines: Iterable[str], console: Console) -> None:
    """Print lines under a title, wrapped at words; nothing if there are none."""
    items = list(lines)
    if not items:
        return
    if title:
        console.print(title, style="italic")
    for line in items:
        for part in wrap(
            line,
            console.width,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        ):
            console.print(part, soft_wrap=True)


def _gpu(row: Json) -> str:
    return str(row["gpu_type"]) if row["gpus"] == 1 else f"{row['gpus']} x {row['gpu_type']}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"{len(values)}: {values[0]:g} to {values[-1]:g}"


def _choice(choice: Json | None) -> str:
    if choice is None:
        return "never reached"
    limit_w = choice["power_limit_w"]
    if "clock_mhz" in choice:
        return f"{choice['batch_size']} at {choice['clock_mhz']} MHz"
    return f"{choice['batch_size']}" + ("" if limit_w is None else f" at {limit_w:g} W")


def _saving(choice: Json | None, what: str) -> str:
    value = None if choice is None else choice[f"{what}_saving_pct"]
    return "-" if value is None else f"{value:.1f} %"
