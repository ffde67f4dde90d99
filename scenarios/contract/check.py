"""Checks a file of policies by the contract, in the simulator and in a rehearsed live run."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.errors import PolicyError, WattkeeperError
from wattkeeper.policies.registry import POINTS, PolicyConfig
from wattkeeper.scenarios.contract import suite, trials
from wattkeeper.scenarios.contract.breach import ContractBreach
from wattkeeper.scenarios.contract.impurities import Impurities
from wattkeeper.scenarios.contract.lines import LineWatch, find_uncalled
from wattkeeper.scenarios.contract.other_process import rehearse_elsewhere
from wattkeeper.scenarios.contract.rehearsal import OPTIONS, Record, Rehearsal
from wattkeeper.scenarios.contract.scripted import example
from wattkeeper.scenarios.contract.steps import LONG
from wattkeeper.scenarios.run.run import run
from wattkeeper.scenarios.spec.loading import use_policy_files
from wattkeeper.scenarios.spec.policy_files import (
    PolicyFile,
    execute_policy_file,
    kind_of,
    load_policy_file,
    policies_in,
)
from wattkeeper.scenarios.spec.yaml_document import read_text

OTHER_HASHES: Final = (
    "decides otherwise in another process: by hash(), id() or the order of a set of text, which "
    "differ there; sort what is in a set"
)
UNTAUGHT: Final = (
    "it has state (state_dict), but what `observe` tells it of outcomes changes neither that nor "
    "its decisions"
)
MODULE: Final = "policy_file"
MOST_VARIATIONS: Final = 6
STEPS: Final = 120
"""Of the stream in which every line is looked at."""
RESTORED: Final = 40
"""The step of it at which the policy is replaced by a restored one."""
CUTS: Final = (7, 40, 173, 350)
"""Steps of the stream at which a policy is replaced by a restored one."""


class PolicyFault(NamedTuple):
    """A fault, and the line that has it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class CheckReport(NamedTuple):
    """What a check found.

    Attributes:
        faults: By line.
        checked: A line on each policy: how it was tried, and how it was not.
        notes: What is no fault, but looks like a mistake, by line; none where there are faults.
    """

    faults: list[PolicyFault]
    checked: list[str]
    notes: list[PolicyFault]


def check_policy_file(path: str | Path) -> CheckReport:
    """Check the policies of a file: the contract, the simulator, a rehearsed live run.

    Raises:
        ScenarioError: If the file cannot be read.
    """
    file = PolicyFile(str(path), str(path), read_text(Path(path)))
    check = _FileCheck(file)
    with _own_random_state():
        is_executed = check.execute()
    if is_executed and check.load():
        with _own_random_state():
            check.rehearse()
        check.try_out()
    notes = [] if check.faults else sorted(check.notes)
    return CheckReport(sorted(check.faults), check.checked, notes)


class _FileCheck:
    """The check of one file.

    Attributes:
        faults: What was found so far, each once.
        checked: A line on each policy that was tried in scenarios.
        notes: What looks like a mistake.
    """

    def __init__(self, file: PolicyFile) -> None:
        self.file = file
        self.impurities = Impurities(file.path)
        self.faults: dict[PolicyFault, None] = {}
        self.checked: list[str] = []
        self.notes: list[PolicyFault] = []
        self._called: set[CodeType] = set()
        self._alike: list[tuple[PolicyConfig, Record, int]] = []

    def execute(self) -> bool:
        """Whether the file can be executed."""
        watch = LineWatch(self.file.path, self.impurities, self._called)
        try:
            self.module, self.found = watch.call("import", execute_policy_file, self.file, MODULE)
        except (ContractBreach, WattkeeperError) as error:
            self._add_error(error, "", 1)
            return False
        self._add_noted(watch, "on import")
        return True

    def load(self) -> bool:
        """Whether scenarios can use the file."""
        try:
            use_policy_files([self.file])
        except WattkeeperError as error:
            self._add_error(error, "", 1)
            return False
        return True

    def rehearse(self) -> None:
        """Check configs, and rehearse policies."""
        self._find_unregistered()
        loaded = load_policy_file(self.file)
        for (_, part), (_, copied) in zip(self.found, loaded, strict=True):
            if issubclass(part, PolicyConfig) and issubclass(copied, PolicyConfig):
                self._check_class(part, copied)
        if self._alike and not self.faults:
            self._compare_elsewhere()

    def try_out(self) -> None:
        """Simulate each policy, and rehearse it live."""
        for room, part in load_policy_file(self.file):
            if not issubclass(part, PolicyConfig):
                self.checked.append(f"{room}: {kind_of(part)}: loaded")
            elif not self.faults:
                self._try_policy(example(part))

    def _compare_elsewhere(self) -> None:
        """Compare decisions with those in a process that hashes text otherwise."""
        parts = {(room, kind_of(part)): part for room, part in load_policy_file(self.file)}
        configs = [
            parts[config.point, config.kind].model_validate(config.model_dump())
            for config, _, _ in self._alike
        ]
        try:
            records = rehearse_elsewhere(configs)
        except ContractBreach as breach:
            self._add_error(breach, "", 1)
            return
        for (config, here, line), there in zip(self._alike, records, strict=True):
            try:
                suite.require_same(here, there, OTHER_HASHES)
            except ContractBreach as breach:
                self._add_error(breach, f"{config.point} policy {config.kind!r}: ", line)

    def _find_unregistered(self) -> None:
        """Policies that no config builds, and that none of those is derived from."""
        found = self.found
        built = [getattr(part, "policy", None) for _, part in found]
        for policy in policies_in(self.module):
            point = next((name for name, of in POINTS.items() if issubclass(policy, of.base)), "")
            whole = point and getattr(policy, point) is not getattr(POINTS[point].base, point)
            used = any(isinstance(one, type) and issubclass(one, policy) for one in built)
            tuned = point == "tune" and any(getattr(part, "tunes", False) for _, part in found)
            if whole and not used and not tuned and all(built):
                self._add(
                    inspect.getsourcelines(policy)[1],
                    (
                        f"no config registers {policy.__name__}: say `policy = {policy.__name__}` "
                        "in a class derived from PolicyConfig"
                    ),
                )

    def _check_class(self, part: type[PolicyConfig], copied: type[PolicyConfig]) -> None:
        """Check a class of configs, which is loaded once more to be copied to processes."""
        line = inspect.getsourcelines(part)[1]
        name = f"the config of {part.point} policy {kind_of(part)!r}: "
        if not hasattr(part, "policy") and "build" not in vars(part):
            self._add(line, f"{name}names no policy: say `policy = ...` there")
            return
        for rule in (
            suite.check_kind,
            suite.check_descriptions,
            suite.check_examples,
            lambda _: suite.check_copies(example(copied)),
        ):
            try:
                rule(part)
            except ContractBreach as breach:
                self._add(line, name + breach.message)
                if rule is suite.check_examples:
                    return
        for config in islice(suite.variations(part), MOST_VARIATIONS):
            self._check_config(config, line)
        if not self.faults:
            self._note_mistakes(example(part))

    def _note_mistakes(self, config: PolicyConfig) -> None:
        """Note what a policy has for nothing: methods, and a state that outcomes do not change."""
        path, name = self.file.path, f"{config.point} policy {config.kind!r}: "
        policy, base = type(config.build()), POINTS[config.point].base
        for line, message in find_uncalled(policy, base, path, self._called):
            self.notes.append(PolicyFault(path, line, f"{name}{message}"))
        if suite.ignores_outcomes(config):
            self.notes.append(PolicyFault(path, _line_of(config), name + UNTAUGHT))

    def _check_config(self, config: PolicyConfig, line: int) -> None:
        name = f"{config.point} policy {config.kind!r}: "
        watch = LineWatch(self.file.path, self.impurities, self._called)
        run = partial(self._keeps, name=name, watch=watch, line=line)
        if not run(partial(_check_options, config, watch)):
            return
        for rule in (suite.check_frozen, suite.check_columns, suite.check_protocol):
            if not run(partial(rule, config)):
                return
        kept = run(lambda: Rehearsal(config, LONG[:STEPS], 1, RESTORED, True, watch=watch).state)
        if not kept or watch.noted:
            return
        watch = LineWatch(self.file.path, self.impurities, self._called, looks=False)
        run = partial(self._keeps, name=name, watch=watch, line=line)
        run(partial(suite.check_copied_state, config, RESTORED, watch=watch))
        if not run(lambda: self._check_alike(config, watch)):
            return
        restart = partial(suite.check_restart, config, watch=watch)
        all(run(partial(restart, LONG[: cut + 80], 1, cut)) for cut in CUTS)
        run(partial(suite.check_strangers, config, watch=watch))
        run(partial(suite.check_recorded, config, watch=watch))

    def _check_alike(self, config: PolicyConfig, watch: LineWatch) -> None:
        """It decides the same, whatever the state of the generators of the whole process."""
        one, other = (_rehearse_seeded(config, seed, watch) for seed in (1, 2))
        suite.require_same(one, other, "decides otherwise when the same happens again")
        self._alike.append((config, one, watch.lines[config.point]))

    def _keeps(self, check: Callable[[], object], name: str, watch: LineWatch, line: int) -> bool:
        """Whether a rule is kept; what breaks it is found."""
        try:
            check()
        except (ContractBreach, WattkeeperError) as error:
            method = getattr(error, "method", "")
            self._add_error(error, name, watch.lines.get(method, line))
            return False
        finally:
            self._add_noted(watch, name)
        return True

    def _try_policy(self, config: PolicyConfig) -> None:
        name = f"{config.point}: {config.kind}"
        tried = ["rehearsed"]
        try:
            tried += self._try_in_worlds(config)
        except WattkeeperError as error:
            self._add_error(error, f"{config.point} policy {config.kind!r}: ", _line_of(config))
        self.checked.append(f"{name}: {', '.join(tried)}")

    def _try_in_worlds(self, config: PolicyConfig) -> Iterator[str]:
        """Simulate a policy, then rehearse it live; yields what was done, and why something not."""
        if why := trials.why_not_simulated(config):
            yield f"not simulated: {why}"
            return
        loaded = trials.load_trial(config, [self.file])
        if why := trials.why_refused(config, loaded):
            yield f"not simulated: {why}"
            return
        simulated = run(loaded)
        yield "simulated"
        if why := trials.why_not_live(config):
            yield f"not live: {why}"
            return
        self._compare(config, simulated, trials.rehearse_live(loaded))
        yield "live"

    def _compare(self, config: PolicyConfig, simulated: Any, live: Any) -> None:
        """Refuse other decisions in the live run than in the simulated one."""
        pairs = zip(trials.read_journal(simulated), trials.read_journal(live), strict=False)
        for ours, theirs in pairs:
            if ours != theirs:
                self._add(
                    _line_of(config),
                    (
                        f"{config.point} policy {config.kind!r}: decides otherwise in a rehearsed "
                        f"live run: {theirs} instead of {ours}"
                    ),
                )
                return

    def _add_error(self, error: ContractBreach | WattkeeperError, name: str, line: int) -> None:
        if isinstance(error, ContractBreach):
            method = f"{error.method} " if error.method else ""
            self._add(error.line or line, f"{name}{method}{error.message}")
            return
        noted = re.findall(
            rf'File "{re.escape(self.file.path)}", line (\d+)',
            "\n".join(getattr(error, "__notes__", ())),
        )
        for problem in error.problems:
            place = re.fullmatch(rf"{re.escape(self.file.path)}:(\d+)", problem.where)
            at = [place[1]] if place else noted[-1:]
            self._add(int(at[0]) if at else line, f"{name}{problem.message}")

    def _add_noted(self, watch: LineWatch, name: str) -> None:
        for (line, what), method in watch.noted.items():
            about = name if name == "on import" else f"{name}{method}"
            self._add(line, f"{about} {what}")

    def _add(self, line: int, message: str) -> None:
        self.faults[PolicyFault(self.file.path, line, message)] = None


def _check_options(config: PolicyConfig, watch: LineWatch) -> None:
    """The example of its settings suits what the rehearsal has to choose from."""
    try:
        watch.call("check", config.check, OPTIONS)
    except PolicyError as error:
        raise ContractBreach(
            f"{error}; here, there are batch sizes {OPTIONS.batch_sizes} and power limits "
            f"{OPTIONS.limits_w[0]}: give its settings examples among these, Field(examples=[...])",
            "check",
        ) from None


def _rehearse_seeded(config: PolicyConfig, seed: int, watch: LineWatch) -> Record:
    random.seed(seed)
    np.random.seed(seed)
    return Rehearsal(config, LONG, watch=watch).record()


def _line_of(config: PolicyConfig) -> int:
    """Where the policy's class begins, or its config's where that is not known."""
    policy = getattr(config, "policy", None)
    return inspect.getsourcelines(policy or type(config))[1]


@contextmanager
def _own_random_state() -> Iterator[None]:
    """Inside, the generators of the whole process may be changed; afterwards they are as before."""
    state, numbers = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)
