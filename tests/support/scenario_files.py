"""A good scenario file, and checks of the problems of changed ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.messages import assert_states
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.scenarios.spec.schema import Scenario

GOOD = """\
name: mine
question: Does it work?
cluster:
  gpu: SYN-250W
  gpus: 4
  gpus_per_node: 2
  idle_power_w: 40
workload:
  kind: recurring
  profiles: {synthetic: {}}
  recurrences: 3
objective: {eta: 0.5}
variants:
  default: {}
  zeus:
    policies:
      configure: {kind: zeus, beta: 2}
      tune: zeus-jit
baseline: default
seeds: 2
"""

Refuse = Callable[..., list[tuple[str, str]]]


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} stands {GOOD.count(old)} times in the scenario"
    return GOOD.replace(old, new)


def accepted(path: Path, content: str, *overrides: str) -> Scenario:
    path.write_text(content, encoding="utf-8")
    return load(str(path), overrides).scenario


def check(problems: Sequence[tuple[str, str]], *expected: tuple[str, str]) -> None:
    """Each expectation is a place, `line:column` or `line` alone, and words separated by `|`."""
    assert len(problems) == len(expected), problems
    for (where, message), (at, words) in zip(problems, expected, strict=True):
        assert re.fullmatch(r"\d+:\d+", where), f"no line and column: {where}: {message}"
        assert at in (where, where.partition(":")[0]), f"{where}, not {at}: {message}"
        assert_states(message, *words.split("|"))
