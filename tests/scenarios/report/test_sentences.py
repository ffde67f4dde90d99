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
from wattkeeper.sim.cluster_results.accounting import COST

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
    answer = read_text(page, 'section id="answer"')
    rows = figures(tmp_path / "out")
    kwh = {name: row["year_energy_j"] / 3.6e6 for name, row in rows.items()}
    assert kwh["fifo"] == pytest.approx(kwh_a_year(25)), "five submissions, one each five days"

    def rounded(value: float) -> float:
        return float(f"{value:.3g}")

    saved = kwh["fifo"] - kwh["sleeping"]
    year = rounded(saved)
    assert year >= 1000
    assert answer.startswith(
        f"Letting idle nodes sleep ( sleeping ) saves {rounded(saved * 0.3):,.0f} EUR and "
    )
    assert_states(
        answer,
        "The baseline fifo (in order of submission): ",
        f"{rounded(kwh['fifo']):,.0f} kWh, {rounded(kwh['fifo'] * 0.3):,.0f} EUR, ",
        f"{rounded(saved * 0.4):,.0f} kg CO2 a year",
        f"({100 * saved / kwh['fifo']:.1f} %), and jobs take 0.2 % longer",
    )
    uses = read_text(page, 'section id="amounts"')
    assert_states(
        uses,
        "The cluster uses a year",
        "energy and emissions",
        f"{rounded(kwh['sleeping']):,.0f} kWh",
        f"−{year:,.0f} kWh (−{100 * saved / kwh['fifo']:.1f} %)",
    )
    lines = page.read_text()
    assert "small: below" not in lines, "rates are constant"
    assert_states(lines, "extrapolated", "25.00 days", "times 14.6", "0.3 EUR/kWh", "400 g/kWh")
    table = lines[lines.index('id="energy"') :].partition("</section>")[0]
    text = re.sub(r"<[^>]+>", " ", table)
    less = rows["fifo"]["electricity_cost"] - rows["sleeping"]["electricity_cost"]
    assert_states(
        text,
        "electricity",
        "emissions",
        f"{rows['fifo']['electricity_cost']:,.0f} EUR",
        f"−{less:,.1f}"[:4],
    )
    low, high = sorted(
        rounded(0.3 * (kwh["fifo"] - kwh[name])) for name in ("capped (low)", "capped (high)")
    )
    middle = rounded(0.3 * (kwh["fifo"] - kwh["capped"]))
    low, high = min(low, middle), max(high, middle)
    assert low < high
    assert_states(
        answer,
        f"A power limit of 60 % of the highest ( capped ) may save {middle:,.0f} EUR and ",
        f"({low:,.0f} to {high:,.0f} EUR: it depends on how far the jobs are bound by compute",
    )
    assert "capped (low)" not in answer + uses, "cases are a range of their variant"
    assert "power limit 240 W on A100" in lines


def kwh_a_year(days: float) -> float:
    """What the jobs of `write_log` draw, and the GPUs that they leave free in so many days."""
    busy_s = 8 * sum(20_000 + 977 * number for number in range(5))
    free_s = max(0.0, 16 * days * DAY - busy_s)
    return (330 * busy_s + 55 * free_s) * 1.5 * 365 / days / 3.6e6


def test_a_slow_variant_changes_no_year_of_others(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    """Only that of the window, which lasts until its end."""
    inside("run", owner, "--out", "without")
    late = "{policies: {tune: {kind: power-fraction, fraction: 0.3}}}"
    inside("run", owner, "--set", f"variants.late={late}", "--out", "with")
    without, together = figures(tmp_path / "without"), figures(tmp_path / "with")
    assert together["late"]["makespan_s"] > without["fifo"]["makespan_s"] + 3600
    for name, row in without.items():
        for metric in ("year_energy_j", "year_electricity_cost", "year_carbon_g"):
            assert together[name][metric] == row[metric]
        assert together[name]["cluster_energy_j"] > row["cluster_energy_j"]
    first, second = (
        read_text(tmp_path / each / "report.html", 'section id="answer"')
        for each in ("without", "with")
    )
    today = re.compile(r"The baseline fifo .*? a year;|Letting idle nodes sleep .*?\.")
    assert today.findall(first) == today.findall(second) != []


def test_work_after_the_last_submission_is_part_of_the_year(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    """The last job runs for 100 days: more than there is room for in 25, which the page says."""
    log = (tmp_path / "log.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join([*log[:-1], f"{20 * DAY},{100 * DAY},8"]))
    inside("traces", "import", "csv", "log.csv", "--name", "log", "--replace")
    said = inside("run", owner, "--out", "out").stdout
    busy_s = 8 * (sum(20_000 + 977 * number for number in range(4)) + 100 * DAY)
    row = figures(tmp_path / "out")["fifo"]
    assert row["year_span_s"] == 25 * DAY
    assert row["year_energy_j"] == pytest.approx(330 * busy_s * 1.5 * 365 / 25)
    assert row["year_carbon_g"] == pytest.approx(row["year_energy_j"] / 3.6e6 * 400)
    assert_states(
        said,
        "The cluster uses a year",
        f"{busy_s / (16 * 25 * DAY):.2f} (fifo)",
        "grow without bound",
    )
    assert_states((tmp_path / "out/report.html").read_text(), "grow without bound")
    inside("run", owner, "--set", "accounting.from_s=0", "--out", "stated")
    stated = figures(tmp_path / "stated")["fifo"]
    assert stated["year_energy_j"] == pytest.approx(row["year_energy_j"]), "no job was cut off"


def test_a_stated_window_is_extrapolated_as_it_is(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    span = ("--set", "accounting.from_s=0", "--set", f"accounting.until_s={10 * DAY}")
    said = inside("run", owner, *span, "--out", "out").stdout
    for row in figures(tmp_path / "out").values():
        assert row["year_energy_j"] == pytest.approx(36.5 * row["cluster_energy_j"])
    assert_states(said, "stated time (accounting) of 10.00 days, times 36.5")


@pytest.mark.parametrize(("pace", "year"), [("", False), (", every_s: 43200", True)])
def test_jobs_that_follow_each_other_have_no_year(
    inside: Command, tmp_path: Path, pace: str, year: bool
) -> None:
    """How many there are in a year depends on the variant, unless they are submitted on time."""
    (tmp_path / "recurring.yaml").write_text(f"""\
name: recurring
cluster: {{gpu: SYN-250W, gpus: 2, gpus_per_node: 1, idle_power_w: 40}}
workload:
  {{kind: recurring, profiles: {{synthetic: {{}}}}, workloads: [image], recurrences: 14{pace}}}
electricity: {{carbon: 400}}
variants: {{a: {{}}, b: {{policies: {{tune: {{kind: fixed-power, power_limit_w: 150}}}}}}}}
baseline: a
""")
    inside("run", "recurring.yaml", "--out", "out")
    spans = {row.get("year_span_s") for row in figures(tmp_path / "out").values()}
    assert spans == {7 * DAY if year else None}
    page = (tmp_path / "out/report.html").read_text()
    assert ("Amounts a year" in page) == year != ("Amounts are over the window" in page)


def test_small_changes_of_emissions_are_shown(inside: Command, tmp_path: Path) -> None:
    """They are what the scenario asks for, whatever their size."""
    inside(
        "traces",
        "generate",
        "jobs",
        "--name",
        "made-up",
        "--jobs",
        "300",
        "--gpus",
        "64",
        "--load",
        "0.5",
    )
    inside(
        "run",
        "carbon-queue",
        "--set",
        "workload.trace=made-up",
        "--set",
        "cluster.gpus=64",
        "--set",
        "cluster.idle_power_w=60",
        "--set",
        "workload.slack=0.1",
        "--set",
        "electricity.price=0.2",
        "--set",
        "electricity.currency=EUR",
        "--out",
        "out",
    )
    rows = figures(tmp_path / "out")
    base = rows["fjf"]["year_carbon_g"]
    page = (tmp_path / "out/report.html").read_text()
    table = page[page.index('id="amounts"') :].partition("</table>")[0]
    shares = []
    for name in ("easy-backfill", "carbon-aware", "carbon-backfill"):
        row = re.sub(r"<[^>]*>", " ", table[table.index(f"</svg>{name}<") :].partition("</tr>")[0])
        share = rows[name]["year_carbon_g"] / base - 1
        shares.append(abs(share))
        assert f"({100 * share:+.1f} %)".replace("-", "−") in row
        assert row.count("as the baseline") == 2, "energy and its cost"
    assert 5e-4 < max(shares) < 0.02
    assert "below 2 % may come from the hours at which jobs happen to run" in page


def test_a_short_window_is_not_extrapolated(inside: Command, owner: Path, tmp_path: Path) -> None:
    write_log(tmp_path, 3)
    inside("traces", "import", "csv", "log.csv", "--name", "log", "--replace")
    inside("run", owner, "--out", "out")
    ((from_s, until_s),) = json.loads((tmp_path / "out/manifest.json").read_text())["windows"]
    window = f"over the window of {(until_s - from_s) / DAY:.2f} days"
    assert window in (tmp_path / "out/report.html").read_text()
    answer = read_text(tmp_path / "out/report.html", 'section id="answer"')
    kwh = figures(tmp_path / "out")["fifo"]["cluster_energy_j"] / 3.6e6
    assert f"{kwh:,.0f} kWh" in answer
    assert "a year" not in answer


def test_amounts_are_rounded_and_not_padded() -> None:
    for value, text in {93.54: "94 EUR", 9.354: "9.35 EUR", 12345.0: "12,300 EUR"}.items():
        assert format_amount(value, COST, "EUR", digits=3) == text
    assert format_amount(93.54, COST, "EUR") == "93.54 EUR"


def test_variants_without_an_effect_share_a_line(
    inside: Command, owner: Path, tmp_path: Path
) -> None:
    names = [f"v{number}" for number in range(1, 8)]
    sets = [word for name in names for word in ("--set", f"variants.{name}={{}}")]
    inside("run", owner, *sets, "--out", "out")
    answer = read_text(tmp_path / "out/report.html", 'section id="answer"')
    assert "v1 , v2 , v3 and v4 and 3 more do not change the cost of electricity." in answer


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
    shown = inside(
        "run",
        "quickstart",
        "--set",
        f"workload.recurrences={recurrences}",
        "--seeds",
        "2",
        "--out",
        "out",
    ).stdout
    text = (tmp_path / "out/report.html").read_text()
    assert ("energy after learning" in text) == after
    assert ("After learning: " in shown) == after


def test_lines_of_regret_end_with_the_jobs(inside: Command, tmp_path: Path) -> None:
    """A variant with fewer recurrences has a shorter line, and groups that end are named."""
    inside(
        "run",
        "quickstart",
        "--seeds",
        "1",
        "--set",
        "workload.recurrences=12",
        "--set",
        "variants.zeus.workload={recurrences: 6}",
        "--out",
        "out",
    )
    text = (tmp_path / "out/report.html").read_text()
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    (chart,) = [chart for chart in json.loads(data)["charts"] if chart["id"] == "regret"]
    known = {
        line["v"]: sum(value is not None for value in line["y"])
        for line in chart["panels"][0]["lines"]
    }
    assert known == {0: 12, 1: 6, 2: 12, 3: 12}
    assert_states(text, "or have ended: groups have 6 to 12 recurrences")


def test_policies_declare_whether_they_draw() -> None:
    """All that ask for a random stream, so that advice on seeds is right."""
    for point in POINTS:
        for kind, config in policies(point).items():
            if config.__module__.startswith("wattkeeper."):
                source = Path(inspect.getfile(config)).read_text(encoding="utf-8")
                assert config.draws == ("ctx.rng(" in source), kind


def test_variants_are_ranked_by_what_decides(inside: Command, tmp_path: Path) -> None:
    """Their order is another one than that by energy: some follow the intensity."""
    tunes = {
        **{
            f"chase-{rate}": {"kind": "chase", "eta": 0.5, "time_rate": rate}
            for rate in (100, 200, 300, 400, 500, 600)
        },
        **{
            f"fixed-{watts}": {"kind": "fixed-power", "power_limit_w": watts}
            for watts in (125, 150, 175, 200, 225)
        },
    }
    settings = [
        f"variants.{name}={json.dumps({'policies': {'tune': tune}})}"
        for name, tune in tunes.items()
    ]
    options = [option for setting in settings for option in ("--set", setting)]
    inside("run", "carbon-limits", "--set", "workload.recurrences=12", *options, "--out", "out")
    found = figures(tmp_path / "out")
    others = [name for name in found if name != "full"]
    by_emissions, by_energy = (
        sorted(others, key=lambda name: found[name][metric])[:5]
        for metric in ("carbon_g", "cluster_energy_j")
    )
    assert by_emissions != by_energy
    page = (tmp_path / "out/report.html").read_text()
    chart = page[page.index('<table class="cards bars">') :].partition("</table>")[0]
    shown = re.findall(r"</svg>([^<]+)</span>", chart)
    assert shown[:5] == by_emissions
