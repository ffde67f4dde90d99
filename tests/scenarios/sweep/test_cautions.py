"""What a sweep says before its figures: axes without effect, and what schedulers know."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Command

SCENARIO = """\
name: mine
cluster: {gpu: GPU, gpus: 2, idle_power_w: 50, busy_power_w: 250}
workload: {kind: trace, trace: log}
variants: {own: {policies: {select: fifo}}}
baseline: own
"""


def whole(text: str) -> str:
    return " ".join(text.split())


def write_scenario(inside: Command, folder: Path, rows: list[str]) -> None:
    """Import a log with these lines, and write the scenario of its jobs."""
    (folder / "log.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    maps = ("submit_time_s=submit", "gpus=n", "duration_s=took")
    inside("traces", "import", "csv", "log.csv", *(w for one in maps for w in ("--map", one)))
    (folder / "mine.yaml").write_text(SCENARIO, encoding="utf-8")


def test_an_axis_that_changes_nothing_is_named(inside: Command) -> None:
    axes = ("--sweep", "cluster.busy_power_w=100,200", "--sweep", "workload.recurrences=2,3")
    said = whole(inside("run", "quickstart", "--seeds", "1", *axes).stdout)
    assert said.count("changes nothing") == 1
    assert "cluster.busy_power_w changes nothing" in said
    page = Path("results/quickstart/report.html").read_text(encoding="utf-8")
    assert "cluster.busy_power_w changes nothing" in page


def test_points_tell_what_schedulers_know_and_what_preemption_costs(
    inside: Command, tmp_path: Path
) -> None:
    rows = ["submit,n,took", "0,2,9000", "60,1,60", "90,1,60"]
    write_scenario(inside, tmp_path, rows)
    axis = ("--sweep", "variants.own.policies.select=fifo,srtf")
    said = whole(inside("run", "mine.yaml", *axis).stdout)
    where = said[said.index("At ") :]
    assert "srtf: srtf knows run times in advance." in where
    assert "srtf: Preemption costs no time here" in where
    free = ("--set", "cluster.preemption.restore_s=5")
    assert "costs no time" not in whole(inside("run", "mine.yaml", *axis, *free).stdout)


def test_points_whose_clusters_are_charged_longer_are_told(inside: Command, tmp_path: Path) -> None:
    rows = ["submit,n,took", "0,1,36000", "0,1,36000"]
    write_scenario(inside, tmp_path, rows)
    axis = ("--sweep", "cluster.gpus=1,2")
    said = whole(inside("run", "mine.yaml", *axis).stdout)
    assert "Clusters are charged for 10.0 h to 20.0 h" in said
    stated = ("--set", "accounting.until_s=80000")
    assert "are charged for" not in whole(inside("run", "mine.yaml", *axis, *stated).stdout)
