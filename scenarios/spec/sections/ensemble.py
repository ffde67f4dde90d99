"""The section of scenario files on ensembles of networks."""

from __future__ import annotations

import random
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import override

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.spec.sections.search import SearchSpace, TrainedNetworks
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.sim.search.architectures import Architecture, describe, parse
from wattkeeper.sim.search.ensembles import (
    CoresFirst,
    MemberGroup,
    group_by_number,
    group_by_share,
    leave_single,
)
from wattkeeper.sim.search.strategy import Strategy


def _check_architecture(text: str) -> str:
    try:
        return describe(parse(text))
    except InputError as error:
        raise ValueError(str(error)) from None


Network = Annotated[str, AfterValidator(_check_architecture)]
MemberCount = Annotated[int, Field(ge=2, le=1000)]


class EnsembleMembers(Section):
    """The networks of an ensemble: stated, or drawn with the seed."""

    networks: Annotated[tuple[Network, ...], Field(min_length=2, max_length=1000)] | None = None
    """Their architectures, such as `c3r3-16-c5-24`: by stage the blocks, `c` a convolution or `r` a
    residual block with its kernel, and the width."""
    count: MemberCount | None = None
    """Number of networks that are drawn; none twice."""
    space: SearchSpace = SearchSpace()
    """What they are drawn from; each block has its own kind and kernel."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.networks is None) == (self.count is None):
            raise ValueError("count: state either the networks, or how many are drawn (count)")
        if self.networks is not None and "space" in self.model_fields_set:
            raise ValueError("space: the networks are stated, none is drawn from it")
        most = self.space.networks().mixed_size
        if self.count is not None and self.count > most:
            raise ValueError(f"count: the space has only {most} networks")
        return self

    def draw(self, seed: int) -> list[Architecture]:
        """The networks with a seed."""
        if self.networks is not None:
            return [parse(text) for text in self.networks]
        assert self.count is not None
        rng, space = random.Random(seed), self.space.networks()
        drawn: dict[Architecture, None] = {}
        while len(drawn) < self.count:
            drawn[space.draw_mixed(rng)] = None
        return list(drawn)


class Cores(Section):
    """How members are grouped, each group with a common core (MotherNets, Wasay et al., MLSys '20).

    The paper's own condition is not published; this one has its knob.
    """

    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Smallest share of a member's parameters that its core has."""
    number: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Largest number of groups; members of other families, by number of stages and the kind of
    their first blocks, are never in one."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.share is None) == (self.number is None):
            raise ValueError("share: state either the share, or the number of groups (number)")
        return self

    def group(self, members: list[Architecture]) -> list[MemberGroup] | None:
        """The groups of members; None if they cannot be so few."""
        if self.share is not None:
            return group_by_share(members, self.share)
        assert self.number is not None
        return group_by_number(members, self.number)


class Ensemble(TrainedNetworks):
    """Networks whose answers are averaged; all are really trained, one after the other."""

    overrides: ClassVar[frozenset[str]] = frozenset({"cores"})
    kind: Literal["ensemble"]
    members: EnsembleMembers
    """The networks."""
    cores: Cores | None = None
    """Trains what the members of a group have in common before them; nothing if absent."""

    @property
    @override
    def plan(self) -> str:
        return self.model_dump_json(include={"members", "cores"})

    @override
    def start(self, seed: int) -> Strategy[Architecture]:
        members = self.members.draw(seed)
        return CoresFirst(members, self.group(members))

    def group(self, members: list[Architecture]) -> list[MemberGroup]:
        """The groups in which members are trained.

        Raises:
            InputError: If they cannot be so few.
        """
        groups = leave_single(members) if self.cores is None else self.cores.group(members)
        if groups is None:
            assert self.cores is not None
            raise InputError(
                f"cores: the members cannot be {self.cores.number} groups with a core each; state "
                "a larger number, or a share"
            )
        return groups

    @override
    def explain_no_origins(self) -> str:
        return "" if self.cores else "the variant has no cores (workload.cores)"
