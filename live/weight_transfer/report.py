"""What a transfer did to every tensor of the child."""

from __future__ import annotations

from math import prod
from typing import Literal

from pydantic import BaseModel, ConfigDict, computed_field

Status = Literal["copied", "widened", "narrowed", "inserted", "left"]

FROM_PARENT = ("copied", "widened", "narrowed")


class TensorReport(BaseModel):
    """What became of one tensor of the child.

    Attributes:
        name: Its name in the child's state.
        status: `copied`, `widened` or `narrowed` from the parent; `inserted` so that an added
            layer or block is the identity; `left` as it was.
        source: Name of the parent's tensor; empty if none.
        why: Reason.
        shape: Its shape.
        trained: Whether it is a parameter; a buffer is not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    status: Status
    source: str
    why: str
    shape: tuple[int, ...]
    trained: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class TransferReport(BaseModel):
    """What a transfer did; prints as a table and goes to JSON with `model_dump_json`.

    Attributes:
        parent: Name of the parent.
        child: Name of the child.
        tensors: What became of each tensor of the child.
        lost_in_eval: Why the child does not compute what the parent does in eval mode; empty if
            it does.
        lost_in_train: The same for train mode, apart from the draws of dropout.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: str
    child: str
    tensors: tuple[TensorReport, ...]
    lost_in_eval: tuple[str, ...]
    lost_in_train: tuple[str, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def coverage(self) -> float:
        """Share of the child's parameters that were filled from the parent, in [0, 1]."""
        trained = [tensor for tensor in self.tensors if tensor.trained]
        filled = sum(tensor.size for tensor in trained if tensor.status in FROM_PARENT)
        return filled / (sum(tensor.size for tensor in trained) or 1)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def preserved_in_eval(self) -> bool:
        """Whether the child computes what the parent does in eval mode."""
        return not self.lost_in_eval

    @computed_field  # type: ignore[prop-decorator]
    @property
    def preserved_in_train(self) -> bool:
        """Whether it does so in train mode, apart from the draws of dropout."""
        return not self.lost_in_train

    def __str__(self) -> str:
        head = ("tensor", "shape", "status", "source", "why")
        rows = [
            (item.name, "x".join(map(str, item.shape)), item.status, item.source, item.why)
            for item in self.tensors
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        ]
        lines.append(f"{self.coverage:.1%} of the parameters come from {self.parent}")
        for mode, lost in (("eval", self.lost_in_eval), ("train", self.lost_in_train)):
            verdict = "; ".join(lost) if lost else "kept"
            lines.append(f"function in {mode} mode: {verdict}")
        return "\n".join(lines)
