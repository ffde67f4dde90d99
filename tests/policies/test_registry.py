"""The registry: kinds that are taken, and policies of other distributions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.parts import FORECASTS, find_part, parts
from wattkeeper.policies.points.point import register_points
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, policies

ROOMS = (*POINTS, FORECASTS)


def test_a_kind_that_is_taken_is_refused() -> None:
    known = policies("tune")
    with pytest.raises(PolicyError, match="two tune policies are called 'max-power'") as caught:

        class Impostor(PolicyConfig):
            point: ClassVar[Point] = "tune"
            kind: Literal["max-power"] = "max-power"

    assert __name__ in str(caught.value)
    assert "wattkeeper.policies.tune.max_power" in str(caught.value)
    assert policies("tune") == known


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_is_named_as_its_kind(room: str) -> None:
    folder = Path(__file__).parents[2] / "policies" / room
    kinds = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
    shipped = {
        kind: part
        for kind, part in parts(room, added=False).items()
        if part.__module__.startswith("wattkeeper.")
    }
    assert kinds == set(shipped)
    for kind, part in shipped.items():
        assert part.__module__ == f"wattkeeper.policies.{room}.{kind.replace('-', '_')}"
        assert find_part(room, kind) is part


@pytest.mark.parametrize("kind", ["", "best_fit", "_las", "..place", "no-such"])
def test_what_is_no_kind_is_not_found(kind: str) -> None:
    assert find_part("place", kind) is None


ASK_FOR_ONE = """
import sys
from typing import ClassVar, Literal
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.registry import Point, PolicyConfig, find_config

find_config("tune", "max-power"), find_config("place", "best-fit")
try:
    class Impostor(PolicyConfig):
        point: ClassVar[Point] = "retain"
        kind: Literal["keep-all"] = "keep-all"
except PolicyError as error:
    assert "two retain policies are called 'keep-all'" in str(error)
    print(*sys.modules)
"""


def test_a_policy_is_imported_without_the_others() -> None:
    """One that takes the kind of another has that one imported, and is refused."""
    done = subprocess.run(
        [sys.executable, "-c", ASK_FOR_ONE], capture_output=True, text=True, check=True
    )
    rooms = {f"wattkeeper.policies.{room}" for room in ROOMS}
    imported = {
        name
        for name in done.stdout.split()
        if name.rpartition(".")[0] in rooms and "._" not in name
    }
    assert imported == {
        "wattkeeper.policies.tune.max_power",
        "wattkeeper.policies.place.best_fit",
        "wattkeeper.policies.retain.keep_all",
    }


ACME = '''
"""A policy from elsewhere."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.views import Configuration
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.registry import Point, PolicyConfig


class AcmeConfig(PolicyConfig):
    """The largest batch size."""

    point: ClassVar[Point] = "configure"
    kind: Literal["acme-largest"] = "acme-largest"

    def build(self):
        return Acme()


class Acme(Configure):
    def configure(self, ctx, start):
        return Configuration(start.options.batch_sizes[-1])
'''

ASK_FOR_ACME = """
import json
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.spec.schema import Scenario
print(json.dumps({
    "kinds": list(policies("configure")),
    "module": policies("configure")["acme-largest"].__module__,
    "in_schema": "acme-largest" in json.dumps(Scenario.model_json_schema()),
}))
"""


def test_a_policy_of_another_distribution_is_found(tmp_path: Path) -> None:
    (tmp_path / "acme_policies.py").write_text(ACME)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wattkeeper.policies]\nacme = acme_policies\n")
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, "-c", ASK_FOR_ACME],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *inherited])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["module"] == "acme_policies"
    assert found["in_schema"]
    assert found["kinds"] == sorted(found["kinds"])
    assert set(policies("configure")) < set(found["kinds"])


def test_a_policy_without_a_registered_decision_point_is_refused() -> None:
    with pytest.raises(PolicyError, match="needs a decision point") as caught:

        class Lost(PolicyConfig):
            point: ClassVar[Point] = "nowhere"
            kind: Literal["lost"] = "lost"

    assert ", ".join(POINTS) in str(caught.value)


def test_a_decision_point_keeps_its_name() -> None:
    tune = POINTS["tune"]
    register_points(tune)
    with pytest.raises(PolicyError, match="two decision points are called 'tune'"):
        register_points(tune._replace(answer="int"))
    assert POINTS["tune"] is tune
