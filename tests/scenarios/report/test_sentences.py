"""The sentences on top of a page: what was asked, in kWh, money and CO2, and how certain."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.registry import POINTS, policies
from wattkeeper.scenarios.analysis.consumption import format_amount
from wattkeeper.sim.results.accounting import COST

SCENARIO = """\
name: owner
question: What does the cluster draw?
cluster: {gpu: A100, gpus: 16, gpus_per_node: 8, idle_power_w: 55, busy_power_w: 330, pue: 1.5}
workload: {kind: trace, trace: log}
electricity: {price: 0.3, carbon: 400, currency: EUR}
variants:
  fifo: {}
  sleeping: {cluster: {sleep: {after_s: 600, power_w: 5, wake_s: 60}}}
  capped: {policies: {tune: {kind: power-fraction, fraction: 0.6}}}
baseline: fifo
"""
DAY = 86400


def write_log(folder: Path, days: float) -> None:
    rows = [f"{number * days * DAY / 4:.0f},{20_000 + 977 * number},8" for number in range(5)]
    (folder / "log.csv").write_text("\n".join(["submit_time_s,duration_s,gpus", *rows]))


def read_text(page: Path, element: str) -> str:
    """The text of the first element that a pattern opens, up to its end."""
    (found,) = re.findall(rf"<{element}>(.*?)</{element.split()[0]}>", page.read_text(), re.S)[:1]
    return " ".join(re.sub(r"<[^>]*>", " ", found).split())


@pytest.fixture
def owner(inside: Command, tmp_path: Path) -> Path:
    write_log(tmp_path, 20)
    inside("traces", "import", "csv", "log.csv", "--name", "log")
    path = tmp_path / "owner.yaml"
    path.write_text(SCENARIO)
    return path


def figures(folder: Path) -> dict[str, dict[str, float]]:
    by_variant: dict[str, dict[str, float]] = {}
    for row in pq.read_table(folder / "metrics.parquet").to_pylist():
        if not row["by"]:
            by_variant.setdefault(row["variant"], {})[row["metric"]] = row["value"]
    return by_variant


def test_savings_are_in_kwh_money_and_co2_a_year(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    inside("run", owner, "--out", "out")
    page = tmp_path / "out/report.html"
    answer = read_text(page, 'ul class="answer"')
    rows = figures(tmp_path / "out")
    ((from_s, until_s),) = json.loads((tmp_path / "out/manifest.json").read_text())["windows"]
    factor = 365 * DAY / (until_s - from_s)
    kwh = {name: row["cluster_energy_j"] / 3.6e6 for name, row in rows.items()}

    def rounded(value: float) -> float:
        return float(f"{value:.3g}")

    saved = kwh["fifo"] - kwh["sleeping"]
    year = rounded(saved * factor)
    assert year >= 1000
    assert_states(
        answer,
        "fifo , the baseline:", f"{rounded(kwh['fifo'] * factor):,.0f} kWh", "a year",
        "(nodes sleep after 600 s idle, at 5 W a GPU, and wake in 60 s)",
        f"{year:,.0f} kWh ({100 * saved / kwh['fifo']:.1f} %)",
        f"{rounded(saved * factor * 0.3):,.0f} EUR",
        f"{rounded(saved * factor * 0.4):,.0f} kg CO2",
        "0.2 % longer job completion time.",
    )  # fmt: skip
    assert_states(answer, "a year; in the run, job completion time")
    lines = page.read_text()
    assert_states(lines, "extrapolated", f"(times {factor:.4g})", "0.3 EUR/kWh", "400 g/kWh")
    table = lines[lines.index('id="energy"') :].partition("</section>")[0]
    text = re.sub(r"<[^>]+>", " ", table)
    assert_states(text, "electricity", "emissions", f"{rows['fifo']['electricity_cost']:,.0f} EUR",
                  f"−{saved * 0.3:,.1f}"[:4])  # fmt: skip
    assert "capped (low):" not in answer, "cases are a range of their variant"
    low, high = sorted(rounded((kwh["fifo"] - kwh[name]) * factor)
                       for name in ("capped (low)", "capped (high)"))  # fmt: skip
    middle = rounded((kwh["fifo"] - kwh["capped"]) * factor)
    low, high = min(low, middle), max(high, middle)
    assert low < high
    hours = sorted(rows[name]["jct_s"] / 3600 for name in rows if name.startswith("capped"))
    assert_states(
        answer,
        "capped (power limit 240 W on A100) : in the middle case",
        f"{middle:,.0f} kWh ({100 * (1 - kwh['capped'] / kwh['fifo']):.1f} %)",
        f"(over the cases {low:,.0f} to {high:,.0f} kWh",
        f"{hours[0]:.1f} h to {hours[-1]:.1f} h over the cases",
    )
    assert "the same job completion time" not in answer, "it has a range"


def test_a_short_window_is_not_extrapolated(inside: Command, owner: Path, tmp_path: Path) -> None:
    write_log(tmp_path, 3)
    inside("traces", "import", "csv", "log.csv", "--name", "log", "--replace")
    inside("run", owner, "--out", "out")
    assert "a year" not in (tmp_path / "out/report.html").read_text()
    answer = read_text(tmp_path / "out/report.html", 'ul class="answer"')
    kwh = figures(tmp_path / "out")["fifo"]["cluster_energy_j"] / 3.6e6
    assert f"{kwh:,.0f} kWh" in answer
    assert "in the run" not in answer


def test_amounts_are_rounded_and_not_padded() -> None:
    for value, text in {93.54: "94 EUR", 9.354: "9.35 EUR", 12345.0: "12,300 EUR"}.items():
        assert format_amount(value, COST, "EUR", digits=3) == text
    assert format_amount(93.54, COST, "EUR") == "93.54 EUR"


def test_variants_stand_in_the_order_in_which_they_were_asked(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    """All of up to ten."""
    names = [f"v{number}" for number in range(1, 8)]
    sets = [word for name in names for word in ("--set", f"variants.{name}={{}}")]
    inside("run", owner, *sets, "--out", "out")
    answer = read_text(tmp_path / "out/report.html", 'ul class="answer"')
    shown = re.findall(r"(?:^|\. )(v\d|capped|sleeping|fifo) [(:,]", answer)
    assert shown == ["fifo", "sleeping", "capped", *names]


def test_advice_on_seeds_only_where_something_is_drawn(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    inside("run", owner, "--out", "out")
    text = (tmp_path / "out/report.html").read_text()
    assert "One seed" not in text
    assert "other seeds give the same figures" in text
    inside("run", owner, "--out", "other", "--set", "cluster.busy_power_w=300")
    assert "Nothing is drawn at random" in inside("compare", "out", "other").stdout
    inside("run", owner, "--out", "both", "--seeds", "2")
    text = (tmp_path / "both/report.html").read_text()
    assert "Means of 2 seeds" not in text
    assert "other seeds give the same figures" in text


@pytest.mark.parametrize(("recurrences", "after"), [(5, False), (12, True)])
def test_after_learning_needs_more_recurrences_than_the_window(
    inside: Command, tmp_path: Path, recurrences: int, after: bool
) -> None:
    shown = inside("run", "quickstart", "--set", f"workload.recurrences={recurrences}", "--seeds",
                   "2", "--out", "out").stdout  # fmt: skip
    text = (tmp_path / "out/report.html").read_text()
    assert ("after learning" in text) == after
    assert ("after learning" in shown) == after


def test_lines_of_regret_end_with_the_jobs(inside: Command, tmp_path: Path) -> None:
    """A variant with fewer recurrences has a shorter line, and groups that end are named."""
    inside("run", "quickstart", "--seeds", "1", "--set", "workload.recurrences=12", "--set",
           "variants.zeus.workload={recurrences: 6}", "--out", "out")  # fmt: skip
    text = (tmp_path / "out/report.html").read_text()
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    (chart,) = [chart for chart in json.loads(data)["charts"] if chart["id"] == "regret"]
    known = {line["v"]: sum(value is not None for value in line["y"])
             for line in chart["panels"][0]["lines"]}  # fmt: skip
    assert known == {0: 12, 1: 12, 2: 6, 3: 12}
    assert_states(text, "or have ended: groups have 6 to 12 recurrences")


def test_policies_declare_whether_they_draw() -> None:
    """All that ask for a random stream, so that advice on seeds is right."""
    for point in POINTS:
        for kind, config in policies(point).items():
            if config.__module__.startswith("wattkeeper."):
                source = Path(inspect.getfile(config)).read_text(encoding="utf-8")
                assert config.draws == ("ctx.rng(" in source), kind
