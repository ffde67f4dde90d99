"""The unit of work: one variant with one seed, run where there is room for it."""

import platform
import sys
import time
import traceback
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.policies.parts import foreign_modules
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.kinds.kind import find_kind
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster_results.tables import ClusterResult

SOFTWARE: Final = ("wattkeeper", "numpy", "pandas", "pyarrow", "pydantic", "simpy")

FLOORS: Final = ("policies", "traces", "sim", "live", "scenarios")


class UnitResult(NamedTuple):
    """The outcome of a unit.

    Attributes:
        result: Its results, or the error that it raised.
        wall_s: Its duration, s.
    """

    result: ClusterResult | Exception
    wall_s: float


def run_unit(spec: RunSpec, inputs: RunInputs) -> UnitResult:
    """Run one variant with one seed; an error is returned in a form that can be pickled."""
    began = time.perf_counter()
    result: ClusterResult | Exception
    try:
        result = find_kind(spec.variant.workload.kind).execute(spec, inputs)
    except WattkeeperError as error:
        result = error
    except Exception as error:  # of a policy, whose author reads the note; perhaps no pickle
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        result = RuntimeError(f"{type(error).__name__}: {error} ({where})")
        result.add_note(traceback.format_exc())
    return UnitResult(result, time.perf_counter() - began)


def software_versions(*more: str) -> dict[str, str]:
    """Versions of Python and of the libraries that results depend on; `more`: some of them."""
    names = (*SOFTWARE, *more)
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


_version = cache(version)


@cache
def code_digest() -> str:
    """SHA-256 of all that results follow from besides a scenario and its inputs.

    That is wattkeeper's files, policies of other distributions, and the versions of libraries.
    Files of policies are inputs.
    """
    state = sha256(repr(sorted(software_versions().items())).encode())
    for path in _sources():
        state.update(f"{path.parent.name}/{path.name}".encode())
        state.update(sha256(path.read_bytes()).digest())
    return state.hexdigest()


def _sources() -> list[Path]:
    floors = [Path(__file__).parents[2] / floor for floor in FLOORS]
    own = [
        path
        for floor in floors
        for path in sorted(floor.rglob("*"))
        if path.suffix in {".py", ".json"}
    ]
    others = [sys.modules[name].__file__ for name in foreign_modules()]
    return own + [Path(file) for file in others if file is not None]
