"""`wattkeeper study`: from a log and a description of the nodes to a page."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.slurm_logs import GPUS, draw_jobs, first_that_fits, write_sacct
from wattkeeper import scenarios
from wattkeeper.scenarios.analysis.consumption import format_amount
from wattkeeper.scenarios.analysis.usage import usage_rows

NODES = "nodes: [{gpu: a100, count: 4, gpus: 8}]\npue: 1.2\n"
STUDY = ("study", "slurm", "sacct.txt", "--nodes", "nodes.yaml", "--out", "study", "--workers", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a log of 400 jobs that the first one that fits started, and its nodes."""
    jobs = draw_jobs(400)
    write_sacct(tmp_path / "sacct.txt", jobs, first_that_fits(jobs))
    (tmp_path / "nodes.yaml").write_text(NODES, encoding="utf-8")
    return tmp_path


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_a_log_becomes_a_page(inside: Command, folder: Path) -> None:
    rates = ("--price", "0.2", "--currency", "EUR", "--carbon", "350")
    said = inside(*STUDY, *rates, "--workers", "2").stdout
    results = folder / "study/results"
    assert_states(
        said,
        "400 jobs",
        "fjf is closest to the record",
        "without a recorded duration",
        "study/scenario.yaml",
        "study/results/report.html",
    )
    manifest, summary = read(results, "manifest"), read(results, "summary")
    variants = list(summary["variants"])
    assert manifest["scenario"]["baseline"] == "fjf"
    asked = ["limit-90", "limit-80", "limit-70", "sleep", "fifo", "fjf", "easy-backfill", "sjf"]
    assert [name for name in variants if "(" not in name] == [*asked, "recorded"]
    assert {"limit-70 (low)", "limit-70 (high)"} <= {*variants}
    assert sum(manifest["dropped_jobs"].values()) == 1
    values = {
        name: {metric: each["mean"] for metric, each in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }
    base = values["fjf"]
    for name in ("limit-70 (high)", "sleep"):
        assert values[name]["cluster_energy_j"] < base["cluster_energy_j"]
        assert values[name]["jct_s"] > base["jct_s"]
    kwh = base["cluster_energy_j"] / 3.6e6
    assert base["electricity_cost"] == pytest.approx(0.2 * kwh)
    assert base["carbon_g"] == pytest.approx(350 * kwh)
    table = said[said.index("The cluster uses") :]
    (row,) = [line.split("│") for line in table.splitlines() if line.startswith("│ fjf ")]
    own = [
        format_amount(kwh * 3.6e6, "cluster_energy_j"),
        format_amount(0.2 * kwh, "electricity_cost", "EUR"),
        format_amount(350 * kwh, "carbon_g"),
    ]
    assert [cell.strip() for cell in row[2:-1]] == [f"{own[0]}, {own[2]}", own[1]]
    assert not (folder / "library").exists(), "the library of the user is left alone"
    page = (results / "report.html").read_text(encoding="utf-8")
    assert f"<b>{own[0]}</b>" in page.split('id="energy"')[0], "the table of variants"
    assert_states(
        page,
        "Recorded waits, and simulated ones",
        "recorded start",
        "deviate by up to 7.1 % besides",
    )
    times = manifest["job_times"]
    large = next(part for part in times["parts"] if part["part"] == "9 to 64 GPUs")
    assert large["runs"]["limit-70"]["extra_mean_s"] > 60
    assert next(part["part"] for part in times["parts"] if part["by"] == "queue") == "gpu"
    for name in ("limit-70", "limit-70 (high)", "sleep"):
        whole = times["parts"][0]["runs"][name]
        assert whole["extra_mean_s"] == pytest.approx(values[name]["jct_s"] - base["jct_s"])
    losses = [loser["extra_s"] for loser in times["losers"]["limit-70"]]
    assert len(losses) == 5
    assert losses == sorted(losses, reverse=True)
    answer = re.sub(r"<[^>]*>", "", page.split('id="answer"')[1].split("</ul>")[0])
    assert_states(
        answer,
        "Letting idle nodes sleep (sleep) saves ",
        "A power limit of 70 % of the highest (limit-70) may save ",
        "it depends on how far the jobs are bound by compute, which was not measured",
        "do not change the cost of electricity; sjf, which knows run times in advance, ends jobs ",
        "Today, simulated with fjf (the first job that fits): ",
        "(recorded: ",
    )
    assert_states(page, "power limit 360 W on a100")
    assert_states(page, "Who pays with time", "By queue and user", "users who lose most")
    assert_states(said, "limit-70: power limit 280 W on a100")


def test_the_record_is_reproduced(inside: Command, folder: Path) -> None:
    inside(*STUDY)
    parts = read(folder / "study/results", "manifest")["waits"]
    assert [part["part"] for part in parts if part["by"] == "queue"] == ["gpu", "long", "debug"]
    starts = first_that_fits(jobs := draw_jobs(400))
    waits = pd.Series([start - job.submit_s for job, start in zip(jobs, starts, strict=True)])
    whole = parts[0]
    assert whole["jobs"] == 400
    assert whole["recorded"]["mean_s"] == pytest.approx(waits.mean())
    assert whole["recorded"]["p95_s"] == pytest.approx(waits.quantile(0.95))
    assert waits.mean() > 600, "the log has a queue"
    for name in ("recorded", "fjf"):
        assert whole["runs"][name]["as_recorded"] == 1
        assert whole["runs"][name]["mean_difference_s"] == pytest.approx(0, abs=1e-6)
    assert whole["runs"]["fifo"]["mean_difference_s"] > 60
    large = [job.gpus > 8 for job in jobs]
    part = next(part for part in parts if part["part"] == "9 to 64 GPUs")
    assert part["recorded"]["median_s"] == pytest.approx(waits[large].median())


def test_the_baseline_is_a_scheduler_that_a_site_can_run(inside: Command, folder: Path) -> None:
    """The log has the short waits of the shortest job first, which knows run times in advance."""
    jobs = draw_jobs(150, load=2.0)
    write_sacct(folder / "sacct.txt", jobs, [job.submit_s for job in jobs])
    said = inside(*STUDY).stdout
    manifest = read(folder / "study/results", "manifest")
    runs = manifest["waits"][0]["runs"]
    by_closeness = sorted(
        ("fifo", "fjf", "easy-backfill", "sjf"),
        key=lambda name: (runs[name]["median_difference_s"], runs[name]["mean_difference_s"]),
    )
    assert by_closeness[0] == "sjf"
    baseline = manifest["scenario"]["baseline"]
    assert baseline == by_closeness[1]
    page = (folder / "study/results/report.html").read_text(encoding="utf-8")
    verdict = "The simulation does not reproduce the record: mean waits are much longer"
    mean = f"mean {runs[baseline]['mean_s'] / 3600:.1f} h"
    for text in (said, page):
        assert_states(
            text, verdict, mean, "sjf (knows run times in", "advance)", f"{baseline}, the baseline"
        )
    assert page.index(verdict) < page.index('class="basis"'), "on the first screen"
    scenario = (folder / "study/scenario.yaml").read_text(encoding="utf-8")
    assert_states(scenario, "is closest to the record")
    assert mean not in scenario, "figures would be wrong after an edit"
    said = inside(*STUDY, "--replace", "--baseline", "sjf").stdout
    assert_states(said, "sjf: chosen with --baseline", f"{baseline} is closest to the record")
    manifest = read(folder / "study/results", "manifest")
    assert manifest["scenario"]["baseline"] == "sjf"
    assert manifest["scenario"]["policies"]["select"]["kind"] == "sjf"
    said = inside(*STUDY, "--replace", "--baseline", "las", code=2).stderr
    assert_states(said, "--baseline", "'las'", "easy-backfill")


def test_its_scenario_runs_again(inside: Command, folder: Path) -> None:
    inside(*STUDY)
    before = read(folder / "study/results", "manifest")["results_digest"]
    inside("run", "study/scenario.yaml", "--out", "again")
    assert read(folder / "again", "manifest")["results_digest"] == before
    said = inside(*STUDY, code=2).stderr
    assert_states(said, "study: holds the results of a study", "--replace")
    path = folder / "study/scenario.yaml"
    edited = path.read_text(encoding="utf-8").replace("fraction: 0.7", "fraction: 0.6")
    path.write_text(edited, encoding="utf-8")
    inside("validate", "study/scenario.yaml")
    inside(*STUDY, "--replace")
    assert "fraction: 0.7" in path.read_text(encoding="utf-8")
    assert (folder / "study/scenario.before.yaml").read_text(encoding="utf-8") == edited
    written = path.read_bytes()
    inside(*STUDY, "--replace")
    inside(*STUDY, "--replace")
    assert (folder / "study/scenario.before.yaml").read_text(encoding="utf-8") == edited
    assert (folder / "study/scenario.before-2.yaml").read_bytes() == written
    assert not (folder / "study/scenario.before-3.yaml").exists()


def test_a_study_can_be_moved(inside: Command, folder: Path, tmp_path: Path) -> None:
    prices = "time,price\n" + "".join(
        f"2024-{month:02}-{day:02} {hour:02}:00,{(37 * hour) % 90}\n"
        for month, day, hour in product(range(1, 13), range(1, 29), range(24))
    )
    site = folder / "site"
    site.mkdir()
    (site / "prices.csv").write_text(prices, encoding="utf-8")
    rates = "electricity: {price: {file: prices.csv, unit: EUR/MWh, zone: UTC, fill: previous}, "
    (site / "nodes.yaml").write_text(f"{NODES}{rates}zone: UTC}}\n", encoding="utf-8")
    inside(*STUDY, "--nodes", "site/nodes.yaml", "--out", "site/study")
    scenario = (site / "study/scenario.yaml").read_text(encoding="utf-8")
    assert str(folder) not in scenario
    sent = folder / "elsewhere"
    (site / "study").rename(sent)
    shutil.rmtree(site)
    inside("run", "elsewhere/scenario.yaml", "--out", "again")
    first, second = (read(path, "manifest") for path in (sent / "results", folder / "again"))
    assert first.pop("wall_s") > 0 < second.pop("wall_s")
    assert first == second
    page = (sent / "results/report.html").read_bytes()
    assert page == (folder / "again/report.html").read_bytes()


def test_nodes_that_cannot_do_what_the_log_says(inside: Command, folder: Path) -> None:
    (folder / "nodes.yaml").write_text(NODES.replace("count: 4", "count: 3"), encoding="utf-8")
    said = inside(*STUDY).stdout
    assert_states(said, "Not all of the record fits the described nodes", "variant recorded")
    path = folder / "study/scenario.yaml"
    text = path.read_text(encoding="utf-8").replace("  recorded:", "  today:")
    path.write_text(text, encoding="utf-8")
    inside("run", path, "--out", "again")
    page = (folder / "again/report.html").read_text(encoding="utf-8")
    assert_states(page, "had no place there at the recorded start", "(variant today)")


@pytest.mark.slow
def test_a_log_without_limits(inside: Command, folder: Path) -> None:
    jobs = draw_jobs(60)
    write_sacct(folder / "sacct.txt", jobs, first_that_fits(jobs), limits=False)
    said = inside(*STUDY).stdout
    note = "20 of 61 jobs have no time limit, and are taken to have the longest of their partition"
    assert_states(said, note, "gpu ", "long ", "debug ", "--default-estimate")
    results = folder / "study/results"
    assert "easy-backfill" in read(results, "summary")["variants"]
    for path in ("results/report.html", "scenario.yaml"):
        text = (folder / "study" / path).read_text(encoding="utf-8").replace("\n  # ", " ")
        assert_states(text, note)
    digest = read(results, "manifest")["results_digest"]
    inside("run", "study/scenario.yaml", "--out", "again")
    assert read(folder / "again", "manifest")["results_digest"] == digest
    said = inside(*STUDY, "--replace", "--default-estimate", "86400").stdout
    assert_states(said, "20 jobs without an estimate have 86400 s")
    assert "longest" not in said
    log = (folder / "sacct.txt").read_text(encoding="utf-8")
    log = re.sub(r"\|\d+\|(COMPLETED\||RUNNING)", r"|UNLIMITED|\1", log)
    (folder / "sacct.txt").write_text(log, encoding="utf-8")
    said = inside(*STUDY, "--replace").stdout
    assert_states(said, "Left out: easy-backfill, for no job has a time limit", "--partitions")
    assert "easy-backfill" not in read(results, "summary")["variants"]


@pytest.mark.parametrize(("started", "number"), [(0, "no"), (40, "too few")])
def test_a_log_without_starts(inside: Command, folder: Path, started: int, number: str) -> None:
    lines = ["id,at,takes,gpus,start_time_s"]
    lines += [
        f"{n},{60 * n},{600 + n},{1 + n % 4},{60 * n if n < started else ''}" for n in range(50)
    ]
    (folder / "jobs.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    maps = ("job_id=id", "submit_time_s=at", "duration_s=takes")
    options = [word for text in maps for word in ("--map", text)]
    said = inside("study", "csv", "jobs.csv", *STUDY[3:], *options).stdout
    assert_states(said, f"Baseline fifo: the log has {number} recorded starts")
    manifest = read(folder / "study/results", "manifest")
    assert list(manifest["scenario"]["variants"])[-3:] == ["fifo", "fjf", "sjf"]
    assert ("waits" in manifest) == bool(started)


@pytest.mark.parametrize(
    ("nodes", "facts"),
    [
        ("nodes: [{gpu: a100, count: 4}]", ["nodes.yaml:1:9", "gpus", "missing"]),
        (
            "nodes: [{gpu: a100, count: 4, gpus: 8, idle: 3}]",
            ["nodes.yaml:1:40", "'idle'", "idle_w"],
        ),
        ("nodes: [{gpu: x9, count: 4, gpus: 8}]", ["nodes.yaml:1:9", "idle_w, busy_w", "'x9'"]),
        ("nodes: [{gpu: x9, count: 4, gpus: 8, idle_w: 9, busy_w: 3}]", ["3 W", "9 W"]),
        (
            "nodes: [{gpu: A40, count: 4, gpus: 8, busy_w: 2400}]",
            ["nodes.yaml:1:47", "busy_w", "2400 W", "A40", "300 W"],
        ),
        (
            "nodes: [{gpu: x, count: 4, gpus: 8, model: A40, idle_w: 9, busy_w: 301}]",
            ["busy_w", "301 W", "A40", "300 W"],
        ),
        (
            "nodes: [{gpu: A40, count: 4, gpus: 8}]\nsleep: {after_s: 1, power_w: 60, wake_s: 1}",
            ["nodes.yaml:2:30", "sleep.power_w", "60 W", "20 W"],
        ),
        ("nodes: [{gpu: V1000, count: 4, gpus: 8}]", ["did you mean 'v100'?"]),
        ("nodes: [{gpu: x, count: 4, gpus: 8, model: y}]", ["nodes.yaml:1:44", "'y'"]),
        ("[]", ["nodes.yaml:1:1", "a list", "a mapping"]),
        (
            "nodes:\n- {gpu: a100, count: 1, gpus: 8}\n- {gpu: a100, count: 1, gpus: 8, idle_w: 9}",
            ["nodes.yaml:3:3", "a100", "differ"],
        ),
    ],
)
def test_wrong_nodes(inside: Command, folder: Path, nodes: str, facts: list[str]) -> None:
    (folder / "nodes.yaml").write_text(nodes, encoding="utf-8")
    assert_states(inside(*STUDY, code=2).stderr, *facts)
    assert not (folder / "study").exists()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--price", "0.2"], ["--price", "currency"]),
        (["--price", "absent.csv"], ["--price", "'absent.csv'", "a number or a file"]),
        (["--carbon", "-1"], ["--carbon", "'-1'", "from 0 to 1e+15"]),
        (["--carbon", "nan"], ["--carbon", "'nan'", "from 0 to 1e+15"]),
        (["--price", "nan", "--currency", "EUR"], ["--price", "'nan'", "from -1e+15 to 1e+15"]),
        (["--price", "0.2", "--currency", "EUR cents"], ["currency", "'EUR cents'", "as EUR"]),
        (["--zone", "Mars"], ["--zone", "'Mars'"]),
    ],
)
def test_wrong_rates(inside: Command, folder: Path, options: list[str], facts: list[str]) -> None:
    assert_states(inside(*STUDY, *options, code=2).stderr, *facts)


def test_a_number_replaces_a_file_of_the_nodes(inside: Command, folder: Path) -> None:
    """What only the file needed, as the zone of the log, is left out with it."""
    (folder / "carbon.csv").write_text("time,g\n2024-03-01,300\n2024-03-02,x\n", encoding="utf-8")
    rates = "electricity: {carbon: {file: carbon.csv, unit: g/kWh}, zone: Europe/Berlin}\n"
    (folder / "nodes.yaml").write_text(NODES + rates, encoding="utf-8")
    inside(*STUDY, "--carbon", "350")
    scenario = yaml.safe_load((folder / "study/scenario.yaml").read_text(encoding="utf-8"))
    assert scenario["electricity"] == {"carbon": 350}


def test_a_fault_of_rates_is_told_of_their_file_before_the_import(
    inside: Command, folder: Path
) -> None:
    (folder / "carbon.csv").write_text(
        "time,carbon (g/kWh)\n2024-03-01,300\n2024-03-02,x\n", encoding="utf-8"
    )
    rates = "electricity: {carbon: {file: carbon.csv, kind: average, zone: UTC}, zone: UTC}\n"
    (folder / "nodes.yaml").write_text(NODES + rates, encoding="utf-8")
    said = inside(*STUDY, code=2).stderr
    assert_states(said, "carbon.csv, line 3", "'x'")
    assert "study/" not in said
    assert not (folder / "study").exists()


def test_all_that_files_of_rates_do_not_state_is_told_at_once(
    inside: Command, folder: Path
) -> None:
    """With the key of the file of nodes, or the option, that led to each file."""
    times = ["2024-01-01 00:00", "2024-01-01 01:00"]
    for name in ("price", "carbon"):
        rows = ["time,value", *(f"{time},300" for time in times)]
        (folder / f"{name}.csv").write_text("\n".join(rows), encoding="utf-8")
    rates = "electricity:\n  price: {file: price.csv}\n  carbon: {file: carbon.csv}\n"
    (folder / "nodes.yaml").write_text(NODES + rates, encoding="utf-8")
    facts = (
        ("price", "`unit`"),
        ("price", "`zone`"),
        ("carbon", "`unit`"),
        ("carbon", "`kind`"),
        ("carbon", "`zone`"),
    )
    at = {
        "price": "nodes.yaml:4:10, electricity.price",
        "carbon": "nodes.yaml:5:11, electricity.carbon",
    }
    lines = inside(*STUDY, code=2).stderr.splitlines()
    for line, (key, fact) in zip(lines, facts, strict=True):
        assert_states(line, f"{at[key]}: {key}.csv", fact)
    options = ("--price", "price.csv", "--carbon", "carbon.csv")
    lines = inside(*STUDY, *options, code=2).stderr.splitlines()
    for line, (key, fact) in zip(lines, facts, strict=True):
        assert_states(
            line,
            f"--{key}: {key}.csv",
            fact,
            "file of nodes",
            f"electricity: {{{key}: {{file: {key}.csv",
        )
    said = inside(*STUDY, "--price", "absent.csv", "--carbon", "-1", code=2).stderr
    assert_states(said, "--price", "'absent.csv'", "--carbon", "'-1'")
    assert not (folder / "study").exists()


def test_files_of_rates_and_a_log_have_the_same_time(inside: Command, folder: Path) -> None:
    times = ["2024-01-01T00:00Z", "2024-01-01T01:00Z"]
    rows = ["time,carbon (g/kWh)", *(f"{time},300" for time in times)]
    (folder / "carbon.csv").write_text("\n".join(rows), encoding="utf-8")
    rates = "electricity:\n  carbon: {file: carbon.csv, kind: average}\n"
    (folder / "nodes.yaml").write_text(NODES + rates, encoding="utf-8")
    said = inside(*STUDY, code=2).stderr
    assert_states(
        said, "nodes.yaml:4:11, electricity:", "second 0 is 2024", "`zone: Europe/Berlin`"
    )
    said = inside(*STUDY, "--zone", "UTC", code=2).stderr
    assert_states(
        said,
        "nodes.yaml:4:11, electricity.carbon: carbon.csv",
        "covers 2024-01-01",
        "`repeat: year`",
    )
    assert not (folder / "study/scenario.yaml").exists()


def test_profiles_are_no_log(inside: Command, folder: Path, shared: Path) -> None:
    said = inside("study", "zeus-nsdi23", shared / "data/zeus-nsdi23", *STUDY[3:], code=2).stderr
    assert_states(said, "zeus-nsdi23", "profiles", "a study needs a log of jobs")


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("study", ["study is a file", "--out"]),
        ("study/scenario.yaml", ["study/scenario.yaml", "no scenario of a study"]),
        ("study/notes.txt", ["study: ", "'notes.txt'", "--out"]),
        ("study/trace/notes.txt", ["study/trace", "no trace"]),
        ("study/results/notes.txt", ["study/results", "notes.txt", "--out"]),
    ],
)
def test_a_folder_that_is_no_study(
    inside: Command, folder: Path, name: str, facts: list[str]
) -> None:
    """It is refused before anything is read, even the nodes, and stays as it is."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("name: mine\n", encoding="utf-8")
    (folder / "nodes.yaml").write_text("[]", encoding="utf-8")
    before = sorted(folder.rglob("*"))
    for replace in ((), ("--replace",)):
        said = inside(*STUDY, *replace, code=2).stderr
        assert said.count("\n") == 1
        assert_states(said, *facts)
    assert sorted(folder.rglob("*")) == before


def test_results_of_a_study_whose_scenario_is_gone(inside: Command, folder: Path) -> None:
    inside(*STUDY)
    (folder / "study/scenario.yaml").unlink()
    said = inside(*STUDY, code=2).stderr
    assert_states(said, "study: ", "scenario is gone", "--out", "--replace")
    assert "wattkeeper run" not in said
    inside(*STUDY, "--replace")


def test_names_that_yaml_would_read_otherwise(inside: Command, folder: Path) -> None:
    text = (folder / "sacct.txt").read_bytes().replace(b"gpu:a100=", b"gpu:1e3=")
    (folder / "sacct.txt").write_bytes(text)
    nodes = 'nodes: [{gpu: "1e3", count: 4, gpus: 8, model: a100}]'
    (folder / "nodes.yaml").write_text(nodes, encoding="utf-8")
    inside(*STUDY)
    scenario = yaml.safe_load((folder / "study/scenario.yaml").read_text(encoding="utf-8"))
    assert scenario["cluster"]["nodes"] == [{"gpu": "1e3", "count": GPUS // 8, "gpus": 8}]
    assert scenario["cluster"]["power"]["1e3"]["model"] == "a100"


def test_who_used_what(inside: Command, folder: Path) -> None:
    """The share of free GPUs is computed anew from the attempts, stretch by stretch."""
    inside(*STUDY, "--price", "0.2", "--currency", "EUR", "--carbon", "350")
    results = folder / "study/results"
    manifest, summary = read(results, "manifest"), read(results, "summary")
    assert manifest["usage"] == "user"
    usage, attempts = (pd.read_parquet(results / f"{name}.parquet") for name in ("usage", "jobs"))
    for variant, about in summary["variants"].items():
        own = usage[usage["variant"] == variant]
        metrics = {name: figures["mean"] for name, figures in about["metrics"].items()}
        energy_j = own["energy_j"].sum() + own["idle_energy_j"].sum()
        assert energy_j == pytest.approx(metrics["cluster_energy_j"], rel=1e-9)
        for rate in ("electricity_cost", "carbon_g"):
            whole = own[rate].sum() + own[f"idle_{rate}"].sum()
            assert whole == pytest.approx(metrics[rate], rel=1e-9)
    jobs = pd.read_parquet(folder / "study/trace/jobs.parquet").set_index("job_id")
    runs = attempts[attempts["variant"] == "fjf"].assign(user=attempts["job_id"].map(jobs["user"]))
    power_w = yaml.safe_load((folder / "study/scenario.yaml").read_text())["cluster"]["power"]
    idle_w = power_w["a100"]["idle_w"]
    expected = dict.fromkeys(runs["user"], 0.0)
    times = sorted({*runs["start_time_s"], *runs["finish_time_s"]})
    for from_s, to_s in pairwise(times):
        running = runs[(runs["start_time_s"] <= from_s) & (runs["finish_time_s"] >= to_s)]
        held = running["gpus"].sum()
        for user, gpus in running.groupby("user")["gpus"].sum().items():
            expected[user] += 1.2 * (32 - held) * idle_w * (to_s - from_s) * gpus / held
    found = usage[(usage["variant"] == "fjf") & usage["name"].notna()].set_index("name")
    assert {*found.index} == {*expected}
    for user, share_j in expected.items():
        assert found["idle_energy_j"][user] == pytest.approx(share_j, rel=1e-9)
        own_j = 1.2 * runs[runs["user"] == user]["energy_j"].sum()
        assert found["energy_j"][user] == pytest.approx(own_j, rel=1e-9)
        assert found["jobs"][user] == (runs["user"] == user).sum()
    page = (results / "report.html").read_text(encoding="utf-8").split('id="usage"')[1]
    order = [page.index(f">{user}<") for user in found.index[:10]]
    assert order == sorted(order)
    study = scenarios.read(results)
    rows = usage_rows(study, "fjf", largest=2)
    assert [row.name for row in rows[:2]] == list(found.index[:2])
    assert rows[2].name == f"{len(found) - 2} other users"
    assert rows[-1].name == "nobody"
    whole_j = summary["variants"]["fjf"]["metrics"]["cluster_energy_j"]["mean"]
    assert sum(row.energy_j for row in rows) == pytest.approx(whole_j)
    assert sum(row.cost or 0.0 for row in rows) == pytest.approx(0.2 * whole_j / 3.6e6)
