"""What processes of a training give each other is data."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from wattkeeper.live.host.plain_values import decode, encode
from wattkeeper.live.pipeline.reports import OperationTotals, Order, RankReport, ReplicaPace
from wattkeeper.live.weight_transfer.report import TensorReport, TransferReport
from wattkeeper.live.wire.messages import Assignment, Cause
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.policies.points.views import Slice

TENSOR = TensorReport(
    name="w", status="copied", source="v", why="same shape", shape=(2, 3), trained=True
)
FILLED = TransferReport(
    parent="p", child="c", tensors=(TENSOR,), lost_in_eval=("x",), lost_in_train=()
)
VALUES: list[tuple[Any, Any]] = [
    (Assignment("job", 1, 1, 8, 16, 9, profile_w=(250.0, 0.1), slice=Slice(0.3)), Assignment),
    (RankReport(0.1 + 0.2, 5e-324, math.inf, {3: OperationTotals(2, 0.5, 0.25)}), RankReport),
    (Order(((1200, 900), (1200,)), True, 4), Order),
    (ReplicaPace(1.5, None), ReplicaPace),
    (("reached", True), tuple[Cause | None, bool]),
    (FILLED, TransferReport | None),
    (None, TransferReport | None),
    ("left \x1b[0m", str),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=lambda each: type(each).__name__)
def test_a_value_comes_back_with_its_type(value: Any, kind: Any) -> None:
    again = decode(encode(value), kind)
    assert again == value
    assert type(again) is type(value)
    assert repr(again) == repr(value)


def test_what_another_process_wrote_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "run"),)

    for data in (pickle.dumps(Evil()), b"", b'{"a": 1}', b"[1, 2"):
        with pytest.raises(EnvironmentLacks, match=r"torch\.distributed"):
            decode(data, Assignment)
    assert not (tmp_path / "run").exists()
