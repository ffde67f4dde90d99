"""Scenarios from Python: `load`, `read` and `compare` of `wattkeeper.scenarios`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.notebook.comparison import compare
from wattkeeper.scenarios.notebook.display import open_study
from wattkeeper.scenarios.notebook.docstrings import restore_docstrings
from wattkeeper.scenarios.notebook.sweep import SavedSweep
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec import loading
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.results.folder import is_sweep, restore_folder

__all__ = ["RunnableScenario", "compare", "load", "read"]

restore_docstrings()


class RunnableScenario(loading.LoadedScenario):
    """A checked scenario that can be simulated."""

    def __repr__(self) -> str:
        """The scenario and the number of its runs, in one line."""
        scenario = self.scenario
        variants = count(len(scenario.variants), "variant")
        seeds = count(len(scenario.all_seeds), "seed")
        return f"<{type(self).__name__} {scenario.name}: {variants}, {seeds}>"

    def run(self, workers: int = 1) -> ScenarioResult:
        """Simulate all variants with all seeds, in this number of processes.

        Raises:
            WattkeeperError: If input is wrong, a policy chose what is not allowed, or the scenario
                has a sweep.
        """
        if self.scenario.sweep is not None:
            raise InputError(
                f"{self.document.name} has a sweep, which only the command runs: `wattkeeper run`; "
                'or load it with the setting "sweep=null"'
            )
        return run(self, workers)


def load(
    name_or_path: str,
    settings: Sequence[str] | Mapping[str, Any] = (),
    seeds: int | Sequence[int] | None = None,
    axes: Sequence[str] = (),
    policy_files: Sequence[str] = (),
) -> RunnableScenario:
    """Read and check a scenario; see `wattkeeper.scenarios.spec.loading.load`."""
    return RunnableScenario(*loading.load(name_or_path, settings, seeds, axes, policy_files))


def read(folder: str | Path) -> Any:
    """Read the results in a folder: a `SavedStudy` of a run, a `SavedSweep` of a sweep.

    The annotation is `Any`, since the type depends on the folder.

    Raises:
        InputError: If it holds neither, or a file is missing or not as it was written.
    """
    path = Path(folder)
    restore_folder(path)
    if is_sweep(path):
        return SavedSweep(path, study.read_sweep(path))
    return open_study(path)
