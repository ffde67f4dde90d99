"""Makes layers that only the child has the identity, where the layers that follow allow it."""

import math
from collections.abc import Mapping

from wattkeeper.live.weight_transfer.equivalence import EquivalenceCheck, is_clamp_redundant
from wattkeeper.live.weight_transfer.fill import state_tensors
from wattkeeper.live.weight_transfer.identity_init import (
    IdentityInit,
    UnitMoments,
    estimate_moments,
    init_batch_norm,
    init_layer_norm,
    init_linear,
)
from wattkeeper.live.weight_transfer.program.ir import Ref, Shape
from wattkeeper.live.weight_transfer.program.op_sets import CLAMPS, CONVOLUTIONS, DENSE, MEANS
from wattkeeper.live.weight_transfer.zero_init_blocks import InsertedBlocks


class LayerInsertion:
    """Finds values that make inserted layers the identity."""

    def __init__(
        self,
        check: EquivalenceCheck,
        origins: Mapping[int, int],
        blocks: InsertedBlocks,
        users: Mapping[int, list[int]],
        parent_users: Mapping[int, list[int]],
    ) -> None:
        self.check, self.origins, self.blocks = check, origins, blocks
        self.users, self.parent_users = users, parent_users
        self.child, self.parent, self.maps = check.child, check.parent, check.maps
        self.own, self.parent_state = state_tensors(check.child), state_tensors(check.parent)

    def is_compatible(self, index: int, source: int) -> bool:
        """Whether the operators up to the next activation pass on the parent's value `source`."""
        program = self.child.program
        while len(self.users[index]) == 1:
            (index,) = self.users[index]
            op = program.ops[index]
            if op.tensors:
                if index in self.origins or op.kind != "batch_norm":
                    return True
                continue
            if not op.pointwise or len(op.refs) != 1:
                return True
            if op.kind in CLAMPS and is_clamp_redundant(self.parent.program, source, op):
                return True
            return any(
                self.check.has_same_arguments(index, user) for user in self.parent_users[source]
            )
        return True

    def find_identity(self, index: int, source: int) -> IdentityInit | None:
        """Values that make an operator pass on the parent's value `source`; None if none do."""
        op, own = self.child.program.ops[index], self.own
        if op.kind == "batch_norm":
            return init_batch_norm(op, own, self._estimate_moments(index, source))
        if op.kind == "layer_norm":
            return init_layer_norm(op, own) if self._is_renormalised(index) else None
        if op.kind not in CONVOLUTIONS | DENSE or "weight" not in op.tensors:
            return None
        inputs_shape = self.child.program.ops[op.refs[0]].shape
        if len(inputs_shape) != len(op.shape):
            return None
        if op.kind not in DENSE and not self._keeps_or_averages(index, inputs_shape[2:]):
            return None
        channel_axis = -1 if op.kind in DENSE else 1
        parent_dim = self.parent.dims.results[source][0][channel_axis]
        outputs = self.maps.map_units(self.child.dims.results[index][0][channel_axis], parent_dim)
        inputs = self.maps.map_units(self.child.dims.of(Ref(op.refs[0]))[channel_axis], parent_dim)
        if outputs is None or inputs is None:
            return None
        return init_linear(op, own, self.maps, outputs, inputs)

    def _estimate_moments(self, index: int, source: int) -> UnitMoments | None:
        """Moments of an inserted batch norm's input, estimated in the parent."""
        program = self.parent.program
        units = self.maps.map_units(
            self.child.dims.results[index][0][1], self.parent.dims.results[source][0][1]
        )
        moments = estimate_moments(program, self.parent_state, source)
        if moments is None or units is None or (units < 0).any():
            return None
        positions = math.prod(program.ops[source].shape[2:])
        return moments.select(units, positions / math.prod(self.child.program.ops[index].shape[2:]))

    def _keeps_or_averages(self, index: int, positions: Shape) -> bool:
        """Whether a convolution has one output for each position of its input, or may average them.

        With strides it may if the model does so later. `positions` is the shape of the input
        without batch and channels.
        """
        op = self.child.program.ops[index]
        strides = op.integers("stride")
        if set(strides) == {1}:
            return positions == op.shape[2:]
        if positions != tuple(out * step for out, step in zip(op.shape[2:], strides, strict=True)):
            return False
        while True:
            users = [user for user in self.users[index] if user not in self.blocks.inside]
            if len(users) != 1 or index in self.child.program.outputs:
                return False
            before, (index,) = index, users
            user = self.child.program.ops[index]
            if user.kind in MEANS and set(user.shape[2:]) == {1}:
                return True
            is_new = bool(user.tensors) and index not in self.origins
            keeps_positions = user.kind == "batch_norm" or (
                "stride" in user.args and set(user.integers("stride")) == {1}
            )
            ends_block = self.blocks.shortcuts.get(index) == before
            if not ((is_new and keeps_positions) or ends_block or user.kind in CLAMPS):
                return False

    def _is_renormalised(self, index: int) -> bool:
        """Whether only inserted blocks and layer norms read a value."""
        users = self.users[index]
        for user in users:
            is_shortcut = user in self.blocks.shortcuts and self._is_renormalised(user)
            is_norm = self.child.program.ops[user].kind == "layer_norm"
            if not (user in self.blocks.inside or is_shortcut or is_norm):
                return False
        return bool(users) and index not in self.child.program.outputs
