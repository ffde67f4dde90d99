"""What jobstats writes into ``AdminComment`` of a job: the GPUs that it had on each node.

``JS1:`` and JSON, compressed by gzip, in base64: ``{"nodes": {NODE: {"gpu_utilization": {INDEX:
PERCENT}}}}``; ``JS1:Short`` and ``JS1:None`` for jobs without. Source: docs/setup/summaries.md of
PrincetonUniversity/jobstats.
"""

import base64
import binascii
import json
import zlib
from typing import Any, Final

import pyarrow as pa

from wattkeeper.traces.power.hosts import write_gpu_ids
from wattkeeper.traces.readers.columns import parse_texts

MARK: Final = "JS1:"
MOST_BYTES: Final = 1 << 20
GZIP_BITS: Final = 31


def parse_gpu_ids(table: pa.Table) -> pa.Array:
    """The GPUs of each job by node, null where no payload of jobstats tells them."""
    comments = parse_texts(table, "AdminComment").to_pylist()
    return pa.array([text and _gpu_ids(text) for text in comments], pa.string())


def _gpu_ids(comment: str) -> str | None:
    if not comment.startswith(MARK):
        return None
    try:
        packed = base64.b64decode(comment.removeprefix(MARK), validate=True)
        data = zlib.decompressobj(GZIP_BITS).decompress(packed, MOST_BYTES)
        payload: Any = json.loads(data)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None  # of a job without figures, or of another tool
    nodes = payload.get("nodes") if isinstance(payload, dict) else None
    by_node = {
        str(node): [str(gpu) for gpu in figures["gpu_utilization"]]
        for node, figures in (nodes if isinstance(nodes, dict) else {}).items()
        if isinstance(figures, dict) and isinstance(figures.get("gpu_utilization"), dict)
    }
    return write_gpu_ids(by_node) or None
