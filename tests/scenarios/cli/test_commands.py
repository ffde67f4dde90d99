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
    [("report",), ("timeline",), ("run", "quickstart", "--out"),
     ("traces", "describe"), ("traces", "import", "csv")],
    ids=" ".join,
)  # fmt: skip
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
