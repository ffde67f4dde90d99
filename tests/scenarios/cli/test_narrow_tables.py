"""Tables on the terminal show names and figures whole, however narrow it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.conftest import Command
from wattkeeper.scenarios.cli.tables.document import print_whole

LONG = "first-in-first-out-on-nodes-as-they-are-with-a-rather-long-name"
NAMES = [f"{LONG}-one", f"{LONG}-two", "short"]


def read_cells(text: str) -> list[str]:
    """The cells of the body by row and column, with their lines joined."""
    lines = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│")]
    rows: list[list[str]] = []
    for parts in ([part.strip() for part in line] for line in lines):
        if all(part[:1] == "=" for part in parts if part):
            rows.append([""] * len(parts))
            continue
        rows[-1] = [
            before + part.replace(" ", "") for before, part in zip(rows[-1], parts, strict=True)
        ]
    return ["|".join(row) for row in rows]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_nothing_is_cut(width: int) -> None:
    table = Table("variant", show_lines=False)
    for head in ("energy", "job completion", "queue delay"):
        table.add_column(head, justify="right", no_wrap=True)
    for name in NAMES:
        table.add_row("=", "=", "=", "=")
        table.add_row(name, "89.6 kWh +10.0 %", "123.3 h -16.4 %", "2.4 h -21.0 %")
    out = io.StringIO()
    print_whole(Console(file=out, width=width), table)
    figures = "89.6kWh+10.0%|123.3h-16.4%|2.4h-21.0%"
    assert read_cells(out.getvalue()) == [f"{name}|{figures}" for name in NAMES]
    assert "…" not in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= width
    one_line = [line for line in out.getvalue().splitlines() if "89.6 kWh +10.0 %" in line]
    assert len(one_line) == (len(NAMES) if width >= 80 else 0), "figures wrap only where they must"


def test_variants_of_a_run_have_their_whole_names(inside: Command, tmp_path: Path) -> None:
    rows = "".join(f"{60 * row},1,600\n" for row in range(20))
    (tmp_path / "log.csv").write_text(f"submit_time_s,gpus,duration_s\n{rows}")
    inside("traces", "import", "csv", "log.csv", "--name", "log")
    variants = ", ".join(f"{name}: {{}}" for name in NAMES)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ncluster: {gpu: GPU, gpus: 4, idle_power_w: 50, busy_power_w: 250}\n"
        "workload: {kind: trace, trace: log}\nelectricity: {price: 0.2, currency: EUR}\n"
        f"variants: {{{variants}}}\nbaseline: {NAMES[0]}\n"
    )
    said = inside("run", "mine.yaml").stdout
    assert "…" not in said
    folded = "".join(line.split("│")[1].strip() for line in said.splitlines() if line[:1] == "│")
    assert [folded.count(name) for name in NAMES[:2]] == [2, 2]
