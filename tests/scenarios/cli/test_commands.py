"""Help, `scenarios` and `validate`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.runs import names
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.loading import shipped


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in group.commands.items():
        if isinstance(inner, click.Group):
            yield from commands(inner, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(main)), ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(main, [*path, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == long.exit_code == 0
    assert short.stdout == long.stdout
    assert short.stdout.startswith(f"Usage: {' '.join(('main', *path))} ")
    assert short.stderr == ""
    found: click.Command = main
    for name in path:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    assert found.help
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} is not explained"


def test_help_of_all_through_the_command(command: Command) -> None:
    done = command("-h")
    assert all(f"\n  {name} " in done.stdout for name in main.list_commands(click.Context(main)))
    assert re.fullmatch(r"wattkeeper, version \d+\.\d+\.\d+\n", command("--version").stdout)


def test_scenarios(inside: Command) -> None:
    lines = inside("scenarios").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped())
    questions = json.loads(inside("scenarios", "--json").stdout)
    assert list(questions) == list(shipped())
    assert all(
        line.endswith(question) for line, question in zip(lines, questions.values(), strict=True)
    )


def test_what_is_no_scenario_file_is_not_printed(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xf5\x00")
    os.mkfifo(tmp_path / "pipe")
    for name, found in (("binary", "is not UTF-8"), ("pipe", "is not a file")):
        assert_states(inside("scenarios", tmp_path / name, code=2).stderr, name, found)
    assert_states(inside("scenarios", "/dev/zero", code=2).stderr, "/dev/zero", "is not a file")


@pytest.mark.parametrize(
    "arguments",
    [
        ("report",),
        ("timeline",),
        ("run", "quickstart", "--out"),
        ("traces", "describe"),
        ("traces", "import", "csv"),
    ],
    ids=" ".join,
)
def test_a_loop_of_links_is_refused(
    arguments: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert_states(inside(*arguments, loop, code=2).stderr, str(loop))
    assert loop.is_symlink()


def test_validate_shipped(inside: Command) -> None:
    done = inside("validate", "quickstart")
    assert done.stdout.endswith("quickstart.yaml: good; 4 variants, 20 runs\n")
    done = inside("validate", "zeus-eta", code=2)
    assert re.search(r"zeus-eta\.yaml:\d+:\d+: no trace named 'zeus-nsdi23'", done.stderr)
    assert "wattkeeper traces fetch zeus-nsdi23" in done.stderr


def test_an_absent_trace_tells_how_to_get_it(inside: Command, tmp_path: Path) -> None:
    done = inside("run", "zeus-nsdi23", code=2)
    assert re.match(
        r"\S+zeus-nsdi23\.yaml:\d+:\d+: no trace named 'zeus-nsdi23': in the library \(.*\) there "
        r"is nothing yet, and \S+ holds no folder of that name\. Download it with "
        r"`wattkeeper traces fetch zeus-nsdi23`",
        done.stderr,
    )
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("runn",), "run"),
        (("Study",), "study"),
        (("traces", "lst"), "list"),
        (("zoo", "ad"), "add"),
        (("run", "quikstart"), "quickstart"),
        (("run", "quickstart", "--set", "policies.select=fifoo"), "fifo"),
        (("run", "quickstart", "--set", "policies.tune=zeus-jti"), "zeus-jit"),
        (("run", "quickstart", "--set", "cluster.gpu=SYN-250"), "SYN-250W"),
        (("run", "quickstart", "--set", "workload.workloads=[imgae]"), "image"),
        (("run", "quickstart", "--set", "cluster.sleeep=2"), "sleep"),
        (("run", "quickstart", "--set", "baseline=defualt"), "default"),
        (("traces", "import", "slrum", "log"), "slurm"),
        (("traces", "import", "csv", "log", "--map", "submit_times_s=x"), "submit_time_s"),
        (("traces", "fetch", "phily"), "philly"),
        (("traces", "generate", "jobs", "--fit", "pilly"), "philly"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_known_may_be_meant_to_be_another(
    inside: Command, tmp_path: Path, arguments: tuple[str, ...], meant: str
) -> None:
    (tmp_path / "log").touch()
    said = inside(*arguments, code=2).stderr
    assert re.search(rf"did you mean '{meant}'\?", said, re.IGNORECASE), said


def test_a_load_in_per_cent_is_asked_back(inside: Command) -> None:
    jobs = ("traces", "generate", "jobs", "--gpus", "64", "--jobs", "9")
    assert_states(inside(*jobs, "--load", "90", code=2).stderr, "90", "at most 10", "90 % is 0.9")
    inside(*jobs, "--load", "0.9")
