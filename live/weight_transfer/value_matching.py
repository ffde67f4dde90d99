"""Follows the child's program and finds the parent's value that each of its values equals."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from wattkeeper.live.weight_transfer.equivalence import is_clamp_redundant
from wattkeeper.live.weight_transfer.fill import input_axis
from wattkeeper.live.weight_transfer.heads import find_heads
from wattkeeper.live.weight_transfer.insertion import LayerInsertion
from wattkeeper.live.weight_transfer.program.ir import Op
from wattkeeper.live.weight_transfer.program.op_sets import (
    CLAMPS,
    COMMUTING,
    TRANSPARENT,
    UNIFORM,
    VIEWS,
)
from wattkeeper.live.weight_transfer.report import ReportBuilder, TensorNote


class ValueMatching:
    """Matches the child's values with the parent's, and inserts layers that only the child has."""

    def __init__(
        self,
        insertion: LayerInsertion,
        holders: Mapping[str, Sequence[int]],
        report: ReportBuilder,
        values: dict[str, Tensor],
    ) -> None:
        self.insertion, self.check = insertion, insertion.check
        self.holders, self.report, self.values = holders, report, values
        self.child, self.parent = self.check.child, self.check.parent
        self.sources: list[int | None] = []  # by operator of the child, the parent's operator
        self.is_known: list[bool] = []  # by operator of the child, whether that is proven

    def run(self) -> None:
        """Match the values of all operators, and compare the outputs."""
        for index, op in enumerate(self.child.program.ops):
            losses, lost = self.report.losses, [*self.report.lost_in_eval]
            self.sources.append(self._find_source(index, op))
            self.is_known.append(self.report.losses == losses and self._reads_known(index, op))
            if not self.child.program.is_read[index]:
                self.report.losses, self.report.lost_in_eval = losses, lost
        if not self.report.lost_in_eval and not self._has_same_outputs():
            self.report.lose_function("the child's outputs are other values than the parent's")

        if self.report.lost_in_eval:
            origins = self.insertion.origins
            self.report.heads = find_heads(self.check, origins, self.sources, self.is_known)

    def _reads_known(self, index: int, op: Op) -> bool:
        """Whether a value is the parent's, by all that was found of the operators before it.

        Those inside a block that adds nothing do not count.
        """
        blocks = self.insertion.blocks
        if index in blocks.inside:
            return True
        if index in blocks.shortcuts:
            return self.is_known[blocks.shortcuts[index]]
        return self.sources[index] is not None and all(self.is_known[ref] for ref in op.refs)

    def _has_same_outputs(self) -> bool:
        """Whether each output is the parent's, unit by unit."""
        mine, yours = self.child.program, self.parent.program
        sources = [self.sources[index] for index in mine.outputs]
        return sources == [yours.values[index] for index in yours.outputs] and all(
            self.check.is_equal(index, origin)
            for index, origin in zip(mine.outputs, yours.outputs, strict=True)
        )

    def _find_source(self, index: int, op: Op) -> int | None:
        """The parent's operator with the same result, apart from units; None if there is none."""
        blocks = self.insertion.blocks
        if index in blocks.inside:
            return None
        if index in blocks.shortcuts:
            return self.sources[blocks.shortcuts[index]]
        inputs = [self.sources[ref] for ref in op.refs]
        if op.kind in TRANSPARENT:
            return inputs[0]
        origin = self.insertion.origins.get(index)
        if origin is not None:
            self._check_filled(index, origin, inputs)
            return origin
        if None in inputs and op.kind != "cat" and op.kind not in UNIFORM:
            return None
        if op.tensors and op.kind != "unused":
            return self._insert(index, op)
        return self._match(index, op, inputs)

    def _check_filled(self, index: int, origin: int, inputs: Sequence[int | None]) -> None:
        """Report if an operator with the parent's weights computes something else."""
        program, name = self.parent.program, self.child.program.ops[index].name(index)
        if None in inputs:
            if not self.report.lost_in_eval:
                self.report.lose_function(f"{name} reads a value that the parent does not have")
        elif inputs != self._inputs_of(origin):
            self.report.lose_function(
                f"{name} takes the weights of {program.ops[origin].name(origin)}, which reads "
                "another value in the parent"
            )
        elif difference := self.check.find_difference(index, origin):
            self.report.lose_function(difference)
        elif not self._fits_shared(index, origin):
            self.report.lose_function(f"{name} shares weights, which do not fit all their holders")

    def _inputs_of(self, origin: int) -> list[int]:
        program = self.parent.program
        return [program.values[ref] for ref in program.ops[origin].refs]

    def _fits_shared(self, index: int, origin: int) -> bool:
        """Whether the weights that an operator shares with others are those that it needs."""
        ops, parent_op = self.child.program.ops, self.parent.program.ops[origin]
        for role, name in ops[index].tensors.items():
            source = parent_op.tensors.get(role, "")
            if self.report.notes.get(name, TensorNote()).source != source:
                return False
            x, y = self.child.dims.tensors[name], self.parent.dims.tensors[source]
            kinds = {ops[holder].kind for holder in (self.holders[name][0], index)}
            axes = {input_axis(kind, role, len(x)) for kind in kinds}
            # One holder needs replicas to share a weight, the other needs it whole.
            is_split = index not in self.check.tied_readers
            if (
                is_split
                and len(axes) > 1
                and any(axis is not None and x[axis].extent != y[axis].extent for axis in axes)
            ):
                return False
        return True

    def _match(self, index: int, op: Op, inputs: Sequence[int | None]) -> int | None:
        """The parent's operator without weights that computes the same from the same values."""
        known = [source for source in inputs if source is not None]
        if op.kind == "cat":
            source = self._match_cat(index, inputs)
            if source is None and None not in inputs:
                self.report.lose_function(f"{op.name(index)} has no counterpart in the parent")
            return source
        difference = ""
        for candidate in self._list_candidates(index, op, known):
            difference = self.check.find_difference(index, candidate)
            if not difference:
                return self.parent.program.values[candidate]
        if op.kind in VIEWS and (viewed := self._find_viewed(index, known[0])) is not None:
            return viewed
        is_clamp = op.kind in CLAMPS and len(known) == 1
        if is_clamp and is_clamp_redundant(self.parent.program, known[0], op):
            return known[0]
        if op.kind != "unused":
            self.report.lose_function(
                difference or f"{op.name(index)} has no counterpart in the parent"
            )
        return None

    def _find_viewed(self, index: int, source: int) -> int | None:
        """The parent's value that a view of it turns back into, as `reshape` undoes `view`."""
        program = self.parent.program
        while program.ops[source].kind in VIEWS:
            source = program.values[program.ops[source].refs[0]]
            if self.check.has_same_units(index, source):
                return source
        return None

    def _list_candidates(self, index: int, op: Op, inputs: Sequence[int]) -> list[int]:
        """The parent's operators without weights of the same kind that read the same values."""
        ops = self.parent.program.ops
        commutes = op.kind in COMMUTING and op.args.get("alpha", 1) == 1
        candidates = []
        is_uniform = op.kind in UNIFORM  # its values are the same whatever it reads
        reads = bool(inputs) and not is_uniform
        for candidate in self.insertion.parent_users[inputs[0]] if reads else range(len(ops)):
            if ops[candidate].tensors or not self.check.has_same_arguments(index, candidate):
                continue
            expected = self._inputs_of(candidate)
            if (
                is_uniform
                or expected == inputs
                or (commutes and sorted(expected) == sorted(inputs))
            ):
                candidates.append(candidate)
        return candidates

    def _match_cat(self, index: int, inputs: Sequence[int | None]) -> int | None:
        """The parent's concatenation of which the child's holds the inputs, and maybe more."""
        known = {source for source in inputs if source is not None}
        users = {user for source in known for user in self.insertion.parent_users[source]}
        cats = [user for user in sorted(users) if self.parent.program.ops[user].kind == "cat"]
        for user in sorted(cats, key=lambda user: -len(self.parent.program.ops[user].refs)):
            refs = self.parent.program.ops[user].refs
            if (
                known >= {*self._inputs_of(user)}
                and self.check.joins_same(index, user, inputs, refs)
                and not self.check.find_difference(index, user)
            ):
                return user
        for source in sorted(known):
            if self.check.joins_same(index, source, inputs, [source]):
                return source
        return None

    def _insert(self, index: int, op: Op) -> int | None:
        """Make a layer that only the child has the identity, if the layers after it allow it."""
        name = op.name(index)
        if any(len(self.holders[tensor]) > 1 for tensor in op.tensors.values()):
            self.report.lose_function(f"{name} is new and shares its weights with other layers")
            return None
        source = self.sources[op.refs[0]] if op.refs else None
        compatible = source is not None and self.insertion.is_compatible(index, source)
        init = None
        is_head = (
            source is not None
            and index in self.child.program.outputs
            and op.shape != self.parent.program.ops[source].shape
        )
        if source is not None and compatible and not is_head:
            init = self.insertion.find_identity(index, source)
        if init is None:
            reason = (
                f"a {op.kind} of this shape cannot be the identity"
                if compatible
                else "the activation after it would change its input again"
            )
            for tensor in op.tensors.values():
                self.report.notes.setdefault(tensor, TensorNote(why=f"inserted, but {reason}"))
            self.report.lose_function(f"{name} is new and not the identity: {reason}")
            return None
        for tensor, value in init.values.items():
            self.values[tensor] = value
            self.report.notes[tensor] = TensorNote("inserted", init.why)
        if init.lost_in_eval:
            self.report.lose_function(init.lost_in_eval)
        if init.lost_in_train:
            self.report.lost_in_train.append(init.lost_in_train)
        return source
