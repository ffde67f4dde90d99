"""The file that describes the nodes of a cluster: `nodes.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, NamedTuple, Self

from pydantic import Field, model_validator

from wattkeeper.policies.errors import Problem, ScenarioError
from wattkeeper.scenarios.spec.loading import validate
from wattkeeper.scenarios.spec.sections.cluster import MAX_GPUS, Preemption, Sleep
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection
from wattkeeper.scenarios.spec.sections.gpu import NameOrFacts, find_model, highest_limit_w
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.sections.values import Watts
from wattkeeper.scenarios.spec.sweep_files import read_sweep_files
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, read
from wattkeeper.traces.gpus.model import GpuModel, explain_unknown

ASSUMED_SLEEP: Final = Sleep(after_s=600.0, power_w=0.0, wake_s=300.0)
"""Sleep of nodes where the file states none: they are switched off, and boot again."""

ASSUMED_PREEMPTION: Final = Preemption(checkpoint_s=60.0, restore_s=60.0)
"""Cost of pausing a job where the file states none."""


class StudyNodes(Section):
    """Equal nodes."""

    gpu: str
    """Their GPU type, as the log calls it."""
    count: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """Number of nodes."""
    gpus: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """GPUs of each."""
    model: NameOrFacts | None = None
    """GPU type whose power model stands for theirs, or facts of these GPUs; `gpu` if absent."""
    idle_w: Watts | None = None
    """Power of one GPU while no job holds it, W; the model's if absent."""
    busy_w: Watts | None = None
    """Power of one GPU while a job holds it, W; the model's if absent."""


class StatedElectricity(ElectricitySection):
    """What the energy of the cluster costs and emits, but for what options say."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        return self  # it is with the options


class StudyCluster(Section):
    """The nodes of a cluster, and what their electricity costs."""

    nodes: Annotated[tuple[StudyNodes, ...], Field(min_length=1)]
    """Groups of equal nodes."""
    pue: Annotated[float, Field(ge=1, le=10)] = 1.0
    """Power usage effectiveness: power of the whole facility over that of its GPUs."""
    sleep: Sleep | None = None
    """How nodes would sleep, for the variant in which they do."""
    preemption: Preemption | None = None
    """Cost of pausing a job, for the variants in which they pause (`--pause`)."""
    electricity: StatedElectricity | None = None
    """What electricity costs and emits, where options do not say it."""


class TypePower(NamedTuple):
    """Power of a GPU type.

    Attributes:
        idle_w: While no job holds it, W.
        busy_w: While a job without measured energy holds it, W.
        model: Its power model; None if there is none.
        stated: The type or the facts that the file states for it.
        source: Where the power comes from.
    """

    idle_w: float
    busy_w: float
    model: GpuModel | None
    stated: NameOrFacts | None
    source: str

    @property
    def limits_w(self) -> tuple[float, ...]:
        """The limits whose effect is known, ascending; empty if there are none."""
        return () if self.model is None else self.model.limits_w


class DescribedCluster(NamedTuple):
    """A cluster as its file describes it, and the power of each GPU type."""

    stated: StudyCluster
    power: dict[str, TypePower]
    document: YamlDocument


def read_nodes(path: Path) -> DescribedCluster:
    """Read a file of nodes.

    Raises:
        ScenarioError: If it is wrong, or the power of a type is neither stated nor known; with
            line and column.
    """
    document = read(path)
    read_sweep_files(document)
    stated = validate(StudyCluster, document, document.data)
    power: dict[str, TypePower] = {}
    problems = []
    for index, group in enumerate(stated.nodes):
        own = _find_power(group, index, document)
        if isinstance(own, Problem):
            problems.append(own)
        elif power.setdefault(group.gpu, own) != own:
            what = f"nodes: groups with {group.gpu} differ in idle_w, busy_w or model"
            problems.append(Problem(what, document.where(("nodes", index))))
        elif stated.sleep is not None and stated.sleep.power_w > own.idle_w:
            what = (
                f"sleep.power_w: a GPU asleep draws {stated.sleep.power_w:g} W, more than an idle "
                f"{group.gpu}, {own.idle_w:g} W"
            )
            problems.append(Problem(what, document.where(("sleep", "power_w"))))
    if problems:
        raise ScenarioError(problems)
    return DescribedCluster(stated, power, document)


def _find_power(group: StudyNodes, index: int, document: YamlDocument) -> TypePower | Problem:
    """The power of a group's GPUs, stated or of the model of their type."""
    place = document.where(("nodes", index))
    model = find_model(group.model, group.gpu, group.idle_w)
    name = group.model if isinstance(group.model, str) else group.gpu
    if model is None and group.model is not None:
        return Problem(f"model: {explain_unknown(name)}", document.where(("nodes", index, "model")))
    values = {
        "idle_w": (group.idle_w, model and model.idle_w),
        "busy_w": (group.busy_w, model and model.busy_w),
    }
    absent = [key for key, pair in values.items() if pair == (None, None)]
    if absent:
        advice = f"state what one GPU draws, W ({', '.join(absent)})"
        if model is None:
            advice += ", or the type that it is (model: TYPE)"
            return Problem(f"{explain_unknown(name)}; {advice}", place)
        return Problem(f"no {' and '.join(absent)} of GPU type {name!r} is known; {advice}", place)
    idle_w, busy_w = (modelled if own is None else own for own, modelled in values.values())
    assert idle_w is not None
    assert busy_w is not None
    highest_w = highest_limit_w(group.model, group.gpu)
    if highest_w is not None and busy_w > highest_w:
        what = (
            f"busy_w: {busy_w:g} W is above the highest power limit of {name}, {highest_w:g} W: "
            "state what one GPU draws, not its node, or the GPU type that it is (gpu, model)"
        )
        return Problem(what, document.where(("nodes", index, "busy_w")))
    if idle_w > busy_w:
        what = f"busy_w: a busy {group.gpu} draws {busy_w:g} W, less than an idle one, {idle_w:g} W"
        return Problem(what, place)
    modelled = [key for key, (own, _) in values.items() if own is None]
    source = "stated in the file of nodes"
    if modelled and model is not None:
        source = f"{' and '.join(modelled)} of the model of {model.gpu_type}: {model.source}"
    return TypePower(idle_w, busy_w, model, group.model, " ".join(source.split()))
