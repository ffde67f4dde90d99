"""Report of a transfer: the source of each tensor, and whether the function is preserved."""

from collections.abc import Iterator
from math import prod
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, computed_field

from wattkeeper.live.weight_transfer.program.ir import Program

Status = Literal["copied", "widened", "narrowed", "inserted", "left"]

Kept = Literal["all", "all but the head", "weights", "nothing"]

Found = Literal["all", "all but the head", "neither", "not run"]

Precision = Literal["float64", "as given"]
"""The type of floating-point tensors in a run: float64, or what the modules have."""

CLAIMS: Final = ("all", "all but the head")
"""Of `Kept`, what says something about the function."""

FROM_PARENT: Final = ("copied", "widened", "narrowed")


class TensorReport(BaseModel):
    """How one tensor of the child was filled.

    Attributes:
        name: Its name in the child's state.
        status: `copied`, `widened` or `narrowed` from the parent; `inserted` so that an added
            layer or block is the identity; `left` at its own initialisation.
        source: Name of the parent's tensor; empty if none.
        why: The reason for the status.
        shape: Its shape.
        trained: Whether it is a parameter, not a buffer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    status: Status
    source: str
    why: str
    shape: tuple[int, ...]
    trained: bool


class Heads(BaseModel):
    """The last layers of two models whose functions are equal but for them.

    Attributes:
        parent: Layers of the parent that the child lacks; one that shares its weights with an
            earlier one is marked as tied.
        child: Layers of the child that the parent lacks, marked in the same way.
        entries: Those of the child that read values of the parent.
        ends: Further layers of the child whose results its head reads: they are the parent's.
        outputs: Outputs of the child, by position, that are values of the parent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: tuple[str, ...]
    child: tuple[str, ...]
    entries: tuple[str, ...]
    ends: tuple[str, ...]
    outputs: tuple[int, ...]


class Verification(BaseModel):
    """What running parent and child in eval mode found, on the example inputs.

    Attributes:
        found: `all`: their outputs are equal; `all but the head`: what the last layers of the child
            read are values of the parent; `neither`; `not run`.
        proven: What the operators proved before.
        difference: Largest difference of an output over the parent's largest output, or of a value
            that the head reads over the largest of the parent's; None if there is no such number.
        tolerance: The largest difference of values that count as equal.
        precision: Whether both ran in float64 or, since that failed, in the types that they have.
        reason: Why they could not be run, or not in float64; else empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    found: Found
    proven: Kept
    difference: float | None
    tolerance: float
    precision: Precision
    reason: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def agrees(self) -> bool | None:
        """Whether the run found what the operators prove; None if nothing was run."""
        if self.found == "not run":
            return None
        return self.found == (self.proven if self.proven in CLAIMS else "neither")

    def __str__(self) -> str:
        if self.found == "not run":
            return f"not run: {self.reason}"
        what = {
            "all": "the outputs are equal",
            "all but the head": "what the head reads is equal",
            "neither": "the outputs differ",
        }[self.found]
        if self.difference is None:
            what, size = "the outputs have other shapes or are no numbers", ""
        else:
            size = f" by {self.difference:.1e}"
        verdict = "as the operators say" if self.agrees else f"the operators say: {self.proven}"
        types = "float64" if self.precision == "float64" else f"own types ({self.reason})"
        return f"{what}{size} (allowed {self.tolerance:.1e}) in {types}; {verdict}"


class TransferReport(BaseModel):
    """Result of a transfer; prints as a table and serialises with `model_dump_json`.

    Attributes:
        parent: Name of the parent.
        child: Name of the child.
        tensors: How each tensor of the child was filled.
        lost_in_eval: Why the child's function is not the parent's in eval mode; empty if it is.
        lost_in_train: The same for train mode, apart from the random draws of dropout.
        heads: Where the function is not the parent's in eval mode because of the heads alone: what
            differs; else None.
        verification: What running both found; None if neither was asked for nor needed by a claim.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: str
    child: str
    tensors: tuple[TensorReport, ...]
    lost_in_eval: tuple[str, ...]
    lost_in_train: tuple[str, ...]
    heads: Heads | None = None
    verification: Verification | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def coverage(self) -> float:
        """Share of the child's parameters that was filled from the parent, in [0, 1]."""
        sizes = [(prod(item.shape), item.status) for item in self.tensors if item.trained]
        filled = sum(size for size, status in sizes if status in FROM_PARENT)
        return filled / (sum(size for size, _ in sizes) or 1)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def preserved_in_eval(self) -> bool:
        """Whether the child's function is the parent's in eval mode."""
        return not self.lost_in_eval

    @computed_field  # type: ignore[prop-decorator]
    @property
    def preserved_in_train(self) -> bool:
        """Whether it is in train mode, apart from the random draws of dropout."""
        return not self.lost_in_train

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kept(self) -> Kept:
        """What of the parent's function in eval mode the child has; `weights`: nothing claimed."""
        if self.preserved_in_eval:
            return "all"
        if self.heads is not None:
            return "all but the head"
        return "weights" if self.coverage else "nothing"

    def __str__(self) -> str:
        header = ("tensor", "shape", "status", "source", "why")
        rows = [
            (item.name, "x".join(map(str, item.shape)), item.status, item.source, item.why)
            for item in self.tensors
        ]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (header, *rows)
        ]
        lines.append(f"{self.coverage:.1%} of the parameters come from {self.parent}")
        return "\n".join([*lines, *self.verdicts()])

    def verdicts(self) -> Iterator[str]:
        """What of the function is kept in either mode: a line each."""
        for mode, lost in (("eval", self.lost_in_eval), ("train", self.lost_in_train)):
            verdict = f"not preserved: {'; '.join(lost)}" if lost else "preserved"
            if mode == "eval" and self.heads is not None:
                verdict = f"preserved but for the head ({_describe_heads(self.heads)})"
            yield f"function in {mode} mode: {verdict}"
        if self.verification is not None:
            yield f"run in eval mode: {self.verification}"


def _describe_heads(heads: Heads) -> str:
    parts = (("new", heads.child), ("of the parent alone", heads.parent))
    return "; ".join(f"{what}: {', '.join(layers)}" for what, layers in parts if layers)


class TensorNote(NamedTuple):
    """The status of a tensor, the reason for it, and the name of the parent's tensor."""

    status: Status = "left"
    why: str = "no tensor of the parent fits"
    source: str = ""


class ReportBuilder:
    """Collects notes on the child's tensors, and why the function is not preserved."""

    def __init__(self) -> None:
        self.notes: dict[str, TensorNote] = {}
        self.lost_in_eval: list[str] = []
        self.lost_in_train: list[str] = []  # in train mode alone
        self.losses = 0
        self.heads: Heads | None = None

    def lose_function(self, reason: str) -> None:
        """Add a reason why the function is not preserved in either mode."""
        self.losses += 1
        if reason not in self.lost_in_eval:
            self.lost_in_eval.append(reason)

    def build(self, parent: Program, child: Program) -> TransferReport:
        """The report; tensors without a note were left."""
        return TransferReport(
            parent=parent.name,
            child=child.name,
            tensors=tuple(
                TensorReport(
                    name=name,
                    shape=shape,
                    trained=name in child.trained,
                    **self.notes.get(name, TensorNote())._asdict(),
                )
                for name, shape in child.shapes.items()
            ),
            lost_in_eval=tuple(self.lost_in_eval),
            lost_in_train=(*self.lost_in_eval, *self.lost_in_train),
            heads=self.heads if self.lost_in_eval else None,
        )
