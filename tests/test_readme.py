"""Every command of the README and of the pages in `docs` runs as it stands there."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from tests.conftest import Command
from tests.traces.formats import test_nas_table
from tests.traces.power import test_power_log
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.registry import POINTS, policies
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.sections import cluster
from wattkeeper.scenarios.spec.sections.section import Section

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
README = PAGES["README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(README)
COMMAND = re.compile(r"^(?:\$ )?(wattkeeper .*(?:(?<=\\)\n.*)*)", re.MULTILINE)
INDENTED = re.compile(r"^ {4}(.*)$", re.MULTILINE)
ASSIGNED = re.compile(r"^(\w+)='([^']*)'$", re.MULTILINE)
"""Shell variables that a block sets for its commands."""
WITHOUT_COMMANDS = (
    "electricity.md",
    "forecasts.md",
    "formats-clusters.md",
    "live-elastic.md",
    "power-model.md",
    "promises.md",
    "speed.md",
)
"""Those without a command of wattkeeper; tests of live runs run that of `live-elastic.md`."""
INLINE = re.compile(r"`(wattkeeper [^`]+)`")
LARGE = (
    (re.compile(r"(--jobs) \d{5,}"), r"\1 2000"),
    (re.compile(r"(--seeds) ([3-9]|\d{2,})"), r"\1 2"),
    (re.compile(r"^(wattkeeper run (?:quickstart|zoo-bandits))(?!.*--seeds)"), r"\1 --seeds 2"),
    (re.compile(r"^(wattkeeper record)(?!.*--repeats)"), r"\1 --repeats 1"),
    (re.compile(r"--workers \d+"), "--workers 1"),
    (re.compile(r"^(wattkeeper study)"), r"\1 --workers 1"),
)
"""So many take longer than it takes to see that it works; each worker imports everything anew."""


def commands(page: str) -> list[str]:
    """Those that stand in blocks, each in one line and without its remark."""
    blocks = [*(block for _, block in BLOCK.findall(PAGES[page])), *INDENTED.findall(PAGES[page])]
    for index, block in enumerate(blocks):
        for name, value in ASSIGNED.findall(block):
            blocks[index] = blocks[index].replace(f"${name}", value)
    found = (line.replace("\\\n", " ") for line in COMMAND.findall("\n".join(blocks)))
    return [line.partition(" #")[0].strip() for line in found]


def words(line: str) -> list[str]:
    for many, few in LARGE:
        line = many.sub(few, line)
    return shlex.split(line)[1:]


def with_help(arguments: list[str]) -> list[str]:
    """Asks for help where no script could take it for its own argument."""
    command: click.Command = main
    at = 0
    while isinstance(command, click.Group) and at < len(arguments):
        found = command.get_command(click.Context(command), arguments[at])
        assert found is not None, arguments[at]
        command = found
        at += 1
    return [*arguments[:at], "--help", *arguments[at:]]


def needs_data(line: str) -> bool:
    return bool(re.search("zeus-(?!jit)|groups", line))


def is_a_pattern(line: str) -> bool:
    """Whether it stands for many commands, or needs a network."""
    return bool(re.search(r"\b(FORMAT|PATH|NAME$|HOST:)", line))


def test_all_commands_are_known() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 140
    consoles = "".join(block for kind, block in BLOCKS if kind == "console").splitlines()
    assert [line.removeprefix("$ ") for line in consoles] == commands("README.md")
    assert re.findall(r"^make (\w+)", README, re.MULTILINE) == ["quickstart"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"\bmake (\w+)", README)
    assert {"quickstart", "compile", "docs"} <= set(targets)
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_readme_is_short_and_has_three_doors() -> None:
    assert len(README.splitlines()) < 150
    first_screen, _, doors = README.partition("\n## Quickstart\n")
    assert re.search(r"!\[[^]]+\]\(docs/pictures/page.png\)", first_screen)
    doors = doors.partition("\n## Three doors\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\[Five minutes .*\]\(docs/(first-\w+\.md)\)", doors, re.MULTILINE) == [
        "first-log.md",
        "first-policy.md",
        "first-training.md",
    ]


def test_the_readme_cites_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (citation,) = (block for kind, block in BLOCKS if kind == "bibtex")
    assert f"version = {{{project['version']}}}" in citation
    assert project["description"].removeprefix("A ") in citation
    assert f"[{project['license']}](LICENSE)" in README


def test_the_readme_claims_what_was_validated() -> None:
    claims = README.partition("\n## What was validated\n")[2].partition("\n## ")[0]
    figures = re.findall(r"\d[\d,.]*\d", claims)
    assert len(figures) > 8
    assert not [figure for figure in figures if figure not in PAGES["validation.md"]]


def test_the_script_of_the_readme_is_that_of_its_door() -> None:
    (shown,) = (block for kind, block in BLOCKS if kind == "python")
    script = next(block for kind, block in BLOCK.findall(PAGES["first-training.md"]) if kind)
    lines = [line for line in shown.splitlines() if line.strip() not in ("", "...")]
    assert len(lines) > 5
    assert [line for line in script.splitlines() if line in lines] == lines


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_the_options_that_they_are_shown_with(page: str) -> None:
    shown = [*commands(page), *INLINE.findall(PAGES[page])]
    assert shown, "no command was found"
    for line in shown:
        done = CliRunner().invoke(main, with_help(words(line)))
        assert done.exit_code == 0, f"{line}: {done.output}"


@pytest.mark.parametrize(
    ("page", "names"), [("fetch.md", ["fetch"]), ("generate.md", ["generate jobs", "fit"])]
)
def test_options_that_a_page_names(page: str, names: list[str]) -> None:
    known: set[str] = set()
    for name in names:
        found: click.Command = main.commands["traces"]
        for step in name.split():
            assert isinstance(found, click.Group)
            found = found.commands[step]
        known |= {option for parameter in found.params for option in parameter.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", PAGES[page]))
    assert len(named) > 3
    assert named <= known


def save_jobs(folder: Path, name: str) -> None:
    rows = [f"{n},{37 * n % 9000},{60 + 97 * n % 5000},{1 << n % 4}" for n in range(300)]
    header = "job_id,submit_time,duration,num_gpus"
    (folder / name).write_text("\n".join([header, *rows, ""]), encoding="utf-8")


def save_yaml(folder: Path, blocks: list[tuple[str, str]]) -> None:
    """The scenarios of a page, by their names, and its nodes."""
    for kind, block in blocks:
        if kind == "yaml":
            name = yaml.safe_load(block).get("name", "nodes")
            (folder / f"{name}.yaml").write_text(block, encoding="utf-8")


def save_sacct(folder: Path) -> None:
    """What the line of the page on logs would print; the last job still runs."""
    page = PAGES["first-log.md"]
    (columns,) = re.findall(r"^sacct .*--format (\S+) > sacct.txt$", page, re.MULTILINE)
    assert columns in PAGES["formats.md"], "both pages want the same columns"
    rows = []
    for n in range(60):
        runs = n == 59
        row = {
            "JobID": f"{n}",
            "Cluster": "c",
            "User": f"u{n % 5}",
            "Partition": "gpu",
            "Submit": f"2024-01-05T10:{n:02}:00",
            "Eligible": f"2024-01-05T10:{n:02}:00",
            "Start": f"2024-01-05T11:{n:02}:00",
            "Suspended": "00:00:00",
            "End": "Unknown" if runs else f"2024-01-05T12:{n:02}:00",
            "ElapsedRaw": "3600",
            "TimelimitRaw": "120",
            "State": "RUNNING" if runs else "COMPLETED",
            "AllocTRES": f"cpu=8,gres/gpu:a100={1 << n % 4}",
            "ReqTRES": "",
            "NNodes": "1",
            "Account": "lab",
            "QOS": "normal",
            "ConsumedEnergyRaw": "0",
        }
        rows.append("|".join(row[column] for column in columns.split(",")))
    text = "\n".join([columns.replace(",", "|"), *rows, ""])
    (folder / "sacct.txt").write_text(text, encoding="utf-8")


def save_elastic(folder: Path) -> None:
    """What the page on elastic jobs names: losses, rates, and costs of layers and sections."""
    systems = ("oobleck", "varuna", "bamboo")
    models = ("bertLarge", "gpt_2_ours", "gpt_3m", "gpt_3_2_7b", "gpt_3_6_7b")
    files = {
        **dict.fromkeys(
            ("10m.csv", "p3-trace.csv"),
            [f"0,add,n{n}" for n in range(30)] + ["600000,remove,n1", "5000000,remove,n2"],
        ),
        "throughput_by_nodes.csv": ["system,model,num_nodes,samples_per_s"]
        + [
            f"{system},{model},{nodes},{nodes}"
            for system in systems
            for model in models
            for nodes in range(15, 31)
        ],
        "layers.csv": ["layer,fb_s", *(f"{n},{1 + n % 2}" for n in range(24))],
        "sections.csv": [
            "section,microbatch,forward_s,backward_s,state_bytes,sample_bytes,gradient_bytes",
            *(f"{n},4,0.5,1,2e9,1e8,1e9" for n in range(24)),
        ],
    }
    for name, rows in files.items():
        (folder / name).write_text("\n".join(rows), encoding="utf-8")


def save_models(folder: Path, lines: list[str]) -> list[str]:
    """What the page of the zoo calls its models; the lines that can run here."""
    from safetensors.numpy import save_file

    names = ["Net(depth=1)", "Net(depth=2)", "Net(depth=1)"]
    rows = [f'"{name}",{600 * at}' for at, name in enumerate(names)]
    (folder / "arrivals.csv").write_text("\n".join(["name,arrival", *rows, ""]), encoding="utf-8")
    graph = Graph("net", (Node("linear", (-1,), (Tensor("fc.weight", "weight", (3, 2)),)),))
    (folder / "graphs").mkdir()
    for name in ("net", "graphs/net", "graphs/Net_depth_1", "graphs/Net_depth_2"):
        path = folder / f"{name}.json"
        path.write_text(graph.to_json(), encoding="utf-8")
    save_file({"fc.weight": np.ones((3, 2), np.float32)}, folder / "net.safetensors")
    if not find_spec("torch"):
        return [line for line in lines if "my-zoo" not in line]
    code, transfer = (block for kind, block in BLOCK.findall(PAGES["zoo.md"]) if kind == "python")
    (folder / "my_models.py").write_text(code, encoding="utf-8")
    save = (
        "import my_models, safetensors.torch as s; "
        "s.save_file(my_models.small().state_dict(), 'small.safetensors')"
    )
    subprocess.run([sys.executable, "-c", save], cwd=folder, check=True)
    assert "function in eval mode: preserved" in run_python(transfer, folder)
    return lines


def save_scripts(folder: Path, lines: list[str]) -> list[str]:
    """The scripts and arrivals of the page on live runs; the lines that can run here."""
    if not find_spec("torch"):
        return [line for line in lines if not re.search("arrivals|networks", line)]
    for kind, block in BLOCK.findall(PAGES["live.md"]):
        if kind == "python":
            name = block.partition("\n")[0].removeprefix("# ")
            (folder / name).write_text(block, encoding="utf-8")
        elif not kind and block.startswith("name,arrival"):
            (folder / "arrivals.csv").write_text(block, encoding="utf-8")
    subprocess.run([sys.executable, "networks.py"], cwd=folder, check=True)
    return lines


def run_python(code: str, folder: Path) -> str:
    """What a program prints that warns of nothing."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout


def save_policy(folder: Path, page: str, name: str) -> None:
    """The policy that a page says to save."""
    (code,) = (text for kind, text in BLOCK.findall(PAGES[page]) if kind == "python")
    (folder / name).write_text(code, encoding="utf-8")


def test_a_policy_of_ones_own_decides_the_same_live(command: Command, tmp_path: Path) -> None:
    """As the page on adding one shows it."""
    save_policy(tmp_path, "policy.md", "share_of_power.py")
    page = PAGES["policy.md"]
    (scenario,) = (text for kind, text in BLOCK.findall(page) if kind == "yaml")
    (tmp_path / "shares.yaml").write_text(scenario, encoding="utf-8")
    for line in commands("policy.md"):
        command(*words(line))
    read = partial(pd.read_parquet, columns=["variant", "job_id", "power_limit_w", "energy_j"])
    simulated, live = (
        read(tmp_path / f"results/{kind}/jobs.parquet").sort_values(["variant", "job_id"])
        for kind in ("simulated", "live")
    )
    assert simulated["power_limit_w"].tolist() == live["power_limit_w"].tolist()
    np.testing.assert_allclose(simulated["energy_j"], live["energy_j"], rtol=1e-9)
    assert simulated.groupby("variant")["energy_j"].sum()["share-60"] > 0
    limits = simulated.groupby("variant")["power_limit_w"].unique().map(list).to_dict()
    assert limits["share-60"] < limits["share-80"] < limits["full"]


def test_a_source_of_ones_own_submits_the_jobs(tmp_path: Path) -> None:
    """As the page on sources shows it."""
    code = "\n".join(text for kind, text in BLOCK.findall(PAGES["sources.md"]) if kind == "python")
    lines = dict(line.split(": ") for line in run_python(code, tmp_path).splitlines())
    assert list(lines) == ["default", "zeus", "frugal"]
    assert all(line.startswith("40 trials, ") for line in lines.values())
    assert lines["zeus"] != lines["default"]


def test_a_policy_follows_the_price_that_is_charged(command: Command, tmp_path: Path) -> None:
    """As the page on signals shows it."""
    save_policy(tmp_path, "signals.md", "follow_price.py")
    blocks = BLOCK.findall(PAGES["signals.md"])
    for kind, text in blocks:
        if not kind and text.startswith("time,"):
            name = "prices" if "price" in text else "grid"
            (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    save_yaml(tmp_path, [block for block in blocks if block[1].startswith("name:")])
    arriving, prices = commands("signals.md")
    told = command(*words(arriving)).stderr
    assert "2024-01-01 01:00:00Z; the last value holds" in told
    command(*words(prices))
    jobs = pd.read_parquet(tmp_path / "results/prices/jobs.parquet")
    charged = jobs.groupby("variant")["electricity_cost"].sum()
    assert charged["follow"] < charged["full"]
    assert jobs[jobs["variant"] == "follow"]["retunes"].sum() >= 2
    assert jobs[jobs["variant"] == "full"]["retunes"].isna().all()


def test_commands_of_the_readme(inside: Command, tmp_path: Path) -> None:
    """The sample of the quickstart is what it prints; the doors go on from its results."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (quickstart,) = re.findall(
        r"^quickstart:.*\n\t.*\n\t@\$\(BIN\)/wattkeeper (.*)", makefile, re.M
    )
    (sample,) = (block for kind, block in BLOCKS if kind == "text")
    printed = inside(*shlex.split(quickstart)).stdout.splitlines()
    shown = [line.rstrip() for line in printed[: len(sample.splitlines())]]
    assert sample.splitlines() == shown, "The README's sample is not what make quickstart prints"
    assert shown[-1].startswith("└")
    save_sacct(tmp_path)
    save_yaml(tmp_path, BLOCK.findall(PAGES["first-log.md"]))
    for line in commands("README.md"):
        inside(*words(line))
    assert (tmp_path / "study/results/report.html").is_file()
    assert (tmp_path / "results/mine/jobs.parquet").is_file()


def test_a_log_step_by_step(inside: Command, tmp_path: Path) -> None:
    """As the page on logs shows it."""
    save_sacct(tmp_path)
    save_jobs(tmp_path, "jobs.csv")
    save_yaml(tmp_path, BLOCK.findall(PAGES["first-log.md"]))
    said = "".join(inside(*words(line)).stdout for line in commands("cluster-log.md"))
    assert re.search("Left out: 1 jobs? without a recorded duration", said)
    assert (tmp_path / "schedulers/results/report.html").is_file()


def test_batch_sizes_in_pandas(inside: Command, tmp_path: Path) -> None:
    """As the page on results shows them."""
    (code,) = (block for kind, block in BLOCK.findall(PAGES["results.md"]) if kind == "python")
    for line in commands("results.md"):
        inside(*words(line))
    assert "batch_size" in run_python(code, tmp_path)


def test_commands_on_the_zeus_traces(inside: Command, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "zeus-traces").symlink_to(shared / "data/zeus-nsdi23")
    groups = gzip.decompress((shared / "reference/zeus/overlapping_groups.csv.gz").read_bytes())
    (tmp_path / "groups.csv").write_bytes(groups)
    lines = [line for line in commands("first-policy.md") if needs_data(line)]
    assert len(lines) > 5
    for line in lines:
        inside(*words(line))
    assert (tmp_path / "results/zeus-overlap/jobs.parquet").is_file()


TRAINS = {"live.md", "record.md"}
"""Pages whose commands train; other tests of live runs have the same commands on less."""

SLOW_PAGES = {"bench.md", "chase.md", "elastic-policy.md", "zoo-bandits.md"}
"""Pages whose commands simulate for seconds; other tests have these scenarios on less."""

ELSEWHERE = {
    "README.md",
    "cluster-log.md",
    "policy.md",
    "results.md",
    "signals.md",  # above
    "first-log.md",
    "first-policy.md",  # in test_doors.py
}
"""Pages whose commands are run by tests that look at the results, too."""

LIVE = {"devices.md", "live.md", "record.md", "session.md"}
"""Pages whose commands have processes, signals and devices of their own."""


def save_carbon(folder: Path, lines: list[str], run: Command) -> list[str]:
    """The commands that can run: with the recorded series and profiles, where they are there."""
    data = ROOT.parent / "shared/data"
    if not data.is_dir():
        return [line for line in lines if not needs_data(line)]
    (folder / "de_2022.parquet").symlink_to(data / "carbon/de_2022.parquet")
    run("traces", "import", "zeus-nsdi23", data / "zeus-nsdi23")
    return lines


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page in TRAINS | SLOW_PAGES))
        for page in PAGES
        if page not in ELSEWHERE
    ],
)
def test_commands_of_pages(
    page: str, command: Command, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = command if page in LIVE else inside
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "my_models", None)  # and gone again after the test
    del sys.modules["my_models"]
    save_yaml(tmp_path, BLOCK.findall(PAGES[page]))
    save_sacct(tmp_path)
    save_jobs(tmp_path, "FILE")
    save_sacct(tmp_path)
    sinfo = "PARTITION|TIMELIMIT|GRES\ngpu*|1-00:00:00|gpu:a100:4\n"
    (tmp_path / "sinfo.txt").write_text(sinfo, encoding="utf-8")
    formats = ROOT / "tests/data/formats"
    shutil.copy(formats / "gavel.trace", tmp_path / "FILE.trace")
    shutil.copy(formats / "gavel.json", tmp_path / "simulation_throughputs.json")
    lines = [line for line in commands(page) if not is_a_pattern(line) or "FILE" in line]
    if page == "elastic.md":
        save_elastic(tmp_path)
    if page == "carbon-queue.md":
        rows = ["submit_time,duration,num_gpus,limit", "100,60,1,600", "200,60,8,3600", ""]
        (tmp_path / "jobs.csv").write_text("\n".join(rows), encoding="utf-8")
        (awk,) = re.findall(r"^awk .*$", PAGES[page], re.MULTILINE)
        subprocess.run(awk, shell=True, cwd=tmp_path, check=True)
        assert pd.read_csv(tmp_path / "due.csv")["due"].tolist() == [22_300, 25_400]
    if page == "chase.md":
        lines = save_carbon(tmp_path, lines, run)
    if page == "share-a-profile.md":
        (table,) = re.findall(r"^```csv\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
        (tmp_path / "measured.csv").write_text(table, encoding="utf-8")
    if page == "validation.md":
        rows = ["job_id,submit_time,duration,num_gpus", "0,0,79,1", "1,232,19,8"]
        (tmp_path / "philly_1k.csv").write_text("\n".join(rows), encoding="utf-8")
    if page == "formats.md":
        rows = [test_nas_table.HEAD, *test_nas_table.ROWS, ""]
        (tmp_path / "final.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
        for node in ("gpu01", "gpu02"):
            samples = [test_power_log.HEADER, *test_power_log.smi(["100.00 W", "200.00 W"]), ""]
            (tmp_path / f"{node}.csv").write_text("\n".join(samples), encoding="utf-8")
    if page == "scheduler.md":
        save_policy(tmp_path, page, "largest_first.py")
    if page == "zoo.md":
        lines = save_models(tmp_path, lines)
    if page == "live.md":
        lines = save_scripts(tmp_path, lines)
    if any(" TRACE " in line for line in lines):
        run("traces", "generate", "jobs", "--name", "TRACE", "--jobs", "2000")
    for line in lines:
        replace = ["--replace"] * (" import " in line and "--dry-run" not in line)
        run(*words(line), *replace)
    assert lines or page in WITHOUT_COMMANDS, "the page shows no command to run"


def test_policies_are_all_named() -> None:
    page = (ROOT / "docs/reference/policies.md").read_text(encoding="utf-8")
    for point in POINTS:
        for kind in policies(point):
            assert re.search(rf"^\| \[`{kind}`\]\(#{point}-{kind}\) \| \S.* \|", page, re.M), kind
            assert f"\n### `{point}: {kind}`\n" in page


@pytest.mark.parametrize(
    ("form", "prefix"),
    [
        (cluster.Facility, ""),
        (cluster.UniformCluster, ""),
        (cluster.MixedCluster, ""),
        (cluster.Nodes, "nodes[]."),
        (cluster.Power, "power.TYPE."),
        (cluster.Sleep, "sleep."),
        (cluster.Preemption, "preemption."),
    ],
)
def test_keys_of_clusters(form: type[Section], prefix: str) -> None:
    """Each has a row in the page, with its unit and its default."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) ?\| (.*?) \|", PAGES["clusters.md"], re.MULTILINE)
    known = {key: (unit, default) for key, unit, default in rows}
    for key, field in form.model_fields.items():
        unit, default = known[prefix + key]
        assert unit == {"w": "W", "s": "s"}.get(key.rpartition("_")[2], "")
        assert (default == "needed") == field.is_required()
        if isinstance(field.default, float):
            assert default == str(field.default)


def test_a_program_runs_processes_beside_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = (block for kind, block in BLOCK.findall(PAGES["python.md"]) if kind == "python")
    exec("\n".join(blocks), {})
    usual, closed = (float(line.split()[0]) for line in capsys.readouterr().out.splitlines()[-2:])
    assert 0 < usual < closed
