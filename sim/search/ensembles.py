"""Groups of similar networks, and what each has in common (MotherNets, Wasay et al., MLSys '20).

How groups are found is not published; this rule has the published knob.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from typing_extensions import override

from wattkeeper.sim.search.architectures import Architecture, Block, Stage, count_parameters
from wattkeeper.sim.search.strategy import Proposal, Strategy

MEMBER: Final = "member"
CORE: Final = "core"
"""What the names of their networks begin with."""


class MemberGroup(NamedTuple):
    """Networks with a common core.

    Attributes:
        members: Their positions, in sorted order.
        core: What all of them contain; of a single network, itself.
        share: The smallest share of a member's parameters that the core has.
    """

    members: tuple[int, ...]
    core: Architecture
    share: float


class CoresFirst(Strategy[Architecture]):
    """The members of an ensemble group by group, each group after its core.

    A member's origin is its core. A network that is alone in its group has none.

    Args:
        members: The networks.
        groups: Their groups, in the order of training.
    """

    def __init__(self, members: Sequence[Architecture], groups: Sequence[MemberGroup]) -> None:
        super().__init__()
        self._next = iter(self._order(members, groups))

    def _order(
        self, members: Sequence[Architecture], groups: Sequence[MemberGroup]
    ) -> Iterator[Proposal[Architecture]]:
        for number, group in enumerate(groups):
            first = None
            if len(group.members) > 1:
                proposal = self._number(group.core, label=f"{CORE}{number}")
                first = proposal.trial
                yield proposal
            for index in group.members:
                yield self._number(members[index], first, f"{MEMBER}{index:02d}")

    @override
    def propose(self) -> Proposal[Architecture] | None:
        return next(self._next, None)

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        pass


def core(members: Sequence[Architecture]) -> Architecture | None:
    """The largest network that all contain; None if there is none."""
    if len({len(member) for member in members}) > 1:
        return None
    stages = [_common(stages) for stages in zip(*members, strict=True)]
    return tuple(stages) if all(stage.blocks for stage in stages) else None


def _common(stages: tuple[Stage, ...]) -> Stage:
    alike = takewhile(
        lambda blocks: len({block.residual for block in blocks}) == 1,
        zip(*(stage.blocks for stage in stages), strict=False),
    )
    blocks = tuple(
        Block(blocks[0].residual, min(block.kernel for block in blocks)) for blocks in alike
    )
    return Stage(min(stage.width for stage in stages), blocks)


def share(members: Sequence[Architecture]) -> float:
    """The smallest share of a member's parameters that the core has; 0 without a core."""
    common = core(members)
    if common is None:
        return 0.0
    return count_parameters(common) / max(map(count_parameters, members))


def group_by_share(networks: Sequence[Architecture], least: float) -> list[MemberGroup]:
    """Groups of consecutive networks, by family and size, with at least that share in common."""
    runs: list[list[int]] = []
    for index in _sorted(networks):
        if runs:
            joined = [networks[each] for each in (*runs[-1], index)]
            if _family(joined[0]) == _family(joined[-1]) and share(joined) >= least:
                runs[-1].append(index)
                continue
        runs.append([index])
    return [_group(networks, members) for members in runs]


def group_by_number(networks: Sequence[Architecture], most: int) -> list[MemberGroup] | None:
    """At most that many such groups, of the largest share; None if there are more families."""
    order = _sorted(networks)
    shares = {
        share([networks[index] for index in order[start:end]])
        for start in range(len(order))
        for end in range(start + 1, len(order) + 1)
    }
    for least in sorted(shares - {0.0}, reverse=True):
        groups = group_by_share(networks, least)
        if len(groups) <= most:
            return groups
    return None


def leave_single(networks: Sequence[Architecture]) -> list[MemberGroup]:
    """Each network as a group of its own, in their order: no cores."""
    return [MemberGroup((index,), each, 1.0) for index, each in enumerate(networks)]


def _family(network: Architecture) -> tuple[int, tuple[bool, ...]]:
    return len(network), tuple(stage.blocks[0].residual for stage in network)


def _sorted(networks: Sequence[Architecture]) -> list[int]:
    return sorted(
        range(len(networks)),
        key=lambda index: (_family(networks[index]), count_parameters(networks[index]), index),
    )


def _group(networks: Sequence[Architecture], members: Sequence[int]) -> MemberGroup:
    architectures = [networks[index] for index in members]
    common = core(architectures)
    assert common is not None  # a network alone has one, and no group without one was made
    return MemberGroup(tuple(members), common, share(architectures))
