"""The contract of policies, rule by rule; each check raises a `ContractBreach`.

`wattkeeper policy check` goes through them for a file, the tests for all policies of wattkeeper.
"""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pydantic import ValidationError

from wattkeeper.policies.registry import POINTS, PolicyConfig, build_policy
from wattkeeper.scenarios.contract.breach import ContractBreach, require
from wattkeeper.scenarios.contract.json_state import find_unsuitable
from wattkeeper.scenarios.contract.rehearsal import Record, Rehearsal
from wattkeeper.scenarios.contract.scripted import example
from wattkeeper.scenarios.contract.steps import LONG, Step
from wattkeeper.scenarios.contract.watch import Watch
from wattkeeper.traces.schema import JOBS

RECORDED: Final = ("duration_s", "estimate_s", "start_time_s")
"""Columns of a trace that a log records of jobs."""


def variations(config: type[PolicyConfig]) -> Iterator[PolicyConfig]:
    """The example, and the example with each switch, choice and optional number changed once."""
    plain = example(config)
    yield plain
    for name, field in config.model_json_schema()["properties"].items():
        kinds = {part.get("type") for part in field.get("anyOf", [field])}
        values: list[Any] = field.get("enum", [])
        if "boolean" in kinds:
            values = [True, False]
        elif kinds == {"integer", "null"}:
            values = [32]
        for value in values:
            if getattr(plain, name) != value:
                yield config.model_validate({**plain.model_dump(), name: value})


# --- configs


def check_kind(config: type[PolicyConfig]) -> None:
    """The kind is a `Literal`: another name is refused."""
    kind = config.model_fields["kind"].default
    fixed = config.model_json_schema()["properties"]["kind"].get("const") == kind
    require(fixed, f'its kind is not fixed: say kind: Literal["{kind}"] = "{kind}"')


def check_descriptions(config: type[PolicyConfig]) -> None:
    """The docstring says what the policy does; each field has one, too."""
    text = inspect.cleandoc(config.__doc__ or "") if "__doc__" in vars(config) else ""
    said = text.split("\n")[0].endswith(".")
    require(
        said,
        "its docstring does not begin with a line that says what it does, with a full "
        "stop at its end",
    )
    fields = config.model_json_schema()["properties"]
    for name in fields.keys() - {"kind"}:
        told = fields[name].get("description", "").endswith(".")
        require(
            told,
            f"no docstring under the field {name!r} says what it means, with a full stop "
            "at its end",
        )


def check_examples(config: type[PolicyConfig]) -> None:
    """A field that is needed has an example, with which the policy is checked."""
    try:
        example(config)
    except (KeyError, ValidationError) as error:
        fields = ", ".join(config.model_json_schema().get("required", []))
        raise ContractBreach(
            f"a needed field ({fields}) has no example that is allowed: say "
            f"Field(examples=[...]) ({type(error).__name__})"
        ) from None


def check_frozen(config: PolicyConfig) -> None:
    """A config cannot be changed, and has no other keys."""
    for name in type(config).model_fields:
        try:
            setattr(config, name, getattr(config, name))
        except ValidationError:
            continue
        raise ContractBreach(f"its field {name!r} can be changed: leave its model_config alone")
    try:
        type(config).model_validate({**config.model_dump(), "no such key": 0})
    except ValidationError:
        return
    raise ContractBreach("it takes keys that it does not have: leave its model_config alone")


def check_copies(config: PolicyConfig) -> None:
    """A config survives pickle, JSON and its own fields: that is how processes get it."""
    kind = type(config)
    copies: dict[str, Callable[[], object]] = {
        "pickle": lambda: pickle.loads(pickle.dumps(config)),
        "JSON": lambda: kind.model_validate_json(config.model_dump_json()),
        "its fields": lambda: kind.model_validate(config.model_dump()),
    }
    for name, make in copies.items():
        try:
            copy = make()
        except Exception as error:
            raise ContractBreach(f"a copy of it by {name} fails: {error}") from None
        same = type(copy) is kind and copy == config
        require(same, f"a copy of it by {name} is another: {copy!r}, not {config!r}")


def check_columns(config: PolicyConfig) -> None:
    """It needs columns that jobs may have, and says what to do where one is absent."""
    unknown = sorted(set(config.needed_columns) - set(JOBS.names))
    require(not unknown, f"it needs columns that jobs never have: {', '.join(unknown)}")
    require(all(config.needed_columns.values()), "`needed_columns` gives no advice for a column")


# --- policies


def check_protocol(config: PolicyConfig) -> None:
    """The policy has the methods of its decision point, with their parameters."""
    policy, base = build_policy(config), POINTS[config.point].base
    for name in (name for name in dir(base) if not name.startswith("_")):
        method = getattr(policy, name)
        ours = list(inspect.signature(method).parameters)
        theirs = list(inspect.signature(getattr(base, name)).parameters)[1:]
        require(ours == theirs, f"has the parameters {ours}; needed: {theirs}", name)
    require(config.build() is not policy, "builds one policy for two runs", "build")


def check_determinism(config: PolicyConfig, stream: Sequence[Step], seed: int) -> None:
    """What it decides is allowed, and the same whenever the same happens."""
    one, other = (Rehearsal(config, stream, seed).record() for _ in range(2))
    require_same(one, other, "decides otherwise when the same happens again")


def check_restart(
    config: PolicyConfig, stream: Sequence[Step], seed: int, cut: int, watch: Watch | None = None
) -> None:
    """A new policy with its state decides as the original does."""
    whole = Rehearsal(config, stream, seed, cut, watch=watch)
    resumed = Rehearsal(config, stream, seed, cut, restart=True, watch=watch)
    key = find_unsuitable(whole.take_state())
    because = f" ({key})" if key else ""
    what = f"lacks a part of what decides: a policy that is restored decides otherwise{because}"
    require_same(whole.record(), resumed.record(), what, "state_dict")


def require_same(one: Record, other: Record, what: str, method: str = "") -> None:
    """Check that a policy decided alike in two rehearsals, and ended in the same state.

    Raises:
        ContractBreach: If not; `what` says what that means.
    """
    for number, (first, second) in enumerate(zip(one.decisions, other.decisions, strict=False)):
        if first != second:
            shown = f"{what}: at its decision {number + 1} {first:.120}, then {second:.120}"
            raise ContractBreach(shown, method or one.point)
    same = len(one.decisions) == len(other.decisions) and one.state == other.state
    require(same, f"{what}: its states differ", method or "state_dict")


def check_copied_state(config: PolicyConfig, begun: int, watch: Watch | None = None) -> None:
    """What was taken does not change with the policy; what was loaded is not changed by it."""
    what = "gives away values that it changes later: answer with copies"
    giving = _Kept(begun, loads=False, what=what)
    Rehearsal(config, LONG[: begun + 80], watch=watch, at_step=giving.look)
    for first in LONG[0], LONG[4]:  # a submission, an end
        what = "keeps values of others and changes them later: keep copies"
        taking = _Kept(begun, loads=True, what=what)
        stream = [*LONG[:begun], first, *LONG[:40]]
        Rehearsal(config, stream, cut=begun, watch=watch, at_step=taking.look)


class _Kept:
    """The state of a policy at a step, which does not change from then on.

    It is no longer the policy's own: that gave it away, or a new policy loads it.
    """

    def __init__(self, step: int, loads: bool, what: str) -> None:
        self._step, self._loads, self._what = step, loads, what

    def look(self, rehearsal: Rehearsal, step: int) -> None:
        """Look at it, before a step of a rehearsal."""
        if step < self._step:
            return
        if step == self._step:
            self._state = rehearsal.take_state()
            self._text = json.dumps(self._state)
            if self._loads:
                rehearsal.replace_policy(self._state)
        method = "load_state_dict" if self._loads else "state_dict"
        require(json.dumps(self._state) == self._text, self._what, method)


def check_strangers(config: PolicyConfig, watch: Watch | None = None) -> None:
    """Outcomes of a group that it never decided on change nothing."""
    plain = Rehearsal(config, LONG[:80], watch=watch)
    disturbed = Rehearsal(config, LONG[:80], stranger=True, watch=watch)
    what = "decides otherwise after outcomes of jobs that it never decided on"
    require_same(plain.record(), disturbed.record(), what, "observe")


def ignores_outcomes(config: PolicyConfig) -> bool:
    """Whether a policy with state decides the same, and has the same state, if `observe` is silent.

    Of policies that are told of outcomes, and either have an `observe` or choose batch sizes.
    """
    policy, base = build_policy(config), POINTS[config.point].base
    if type(policy).state_dict is base.state_dict:
        return False
    if config.point != "configure" and type(policy).observe is base.observe:
        return False
    told, untold = (Rehearsal(config, LONG, told=told).record() for told in (True, False))
    return told == untold


def check_recorded(config: PolicyConfig, watch: Watch | None = None) -> None:
    """What a log recorded of a job that has not run yet decides only if the config declares it."""
    plain = Rehearsal(config, LONG[:160], watch=watch)
    for name in RECORDED:
        if name in config.needed_columns or config.needs_foresight:
            continue
        other = Rehearsal(config, LONG[:160], watch=watch, recorded={name: 3.0})
        what = (
            f"decides by the recorded {name} of jobs, which its config does not declare: say "
            f"{name!r} in `needed_columns` there"
        )
        require(other.decisions == plain.decisions, what, config.point)
