"""Files of objects of Kubernetes: one object a line, or JSON documents with lists of objects."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wattkeeper.traces.readers.json_window import JsonWindow
from wattkeeper.traces.readers.textfile import Layout, head_lines, text_batches

LAYOUT: Final = Layout(delimiter="\x01", columns=("object",), quotes=False)
"""JSON has no such character, so each line is one value."""
ADVICE: Final = "kubectl ... -o json writes such objects, or jq -c '.items[]' one of them a line"
LIST: Final = re.compile(
    r'\s*(\{\s*("(apiVersion|kind|metadata)"\s*:\s*("[^"]*"|\{[^{}]*\})'
    r'\s*,\s*)*("items"\s*:|$)|\[)'
)
"""Beginning of a list, or of a document over several lines."""
KIND: Final = re.compile(r'"kind"\s*:\s*"(Pod|Workload)(List)?"')


def read_objects(path: Path) -> Iterator[tuple[int, object]]:
    """The objects of a file with their first lines; a `ValueError` stands for one that is none.

    Raises:
        TraceError: If the file cannot be read, or is a document that is damaged.
    """
    if _is_document(path):
        yield from _document(path)
        return
    for batch in text_batches(path, LAYOUT):
        yield from ((line, ValueError(text)) for line, text in batch.wrong.items())
        for line, text in zip(batch.lines.tolist(), batch.rows["object"], strict=True):
            yield line, _decode(text.as_py())


def looks_right(path: Path) -> bool:
    """Whether a file begins with a pod or a workload, or a list of them."""
    texts = [text for _, text in head_lines(path)]
    return bool(texts) and texts[0].lstrip().startswith(("{", "[")) and _names_kind(texts)


def _names_kind(texts: list[str]) -> bool:
    record = _decode(texts[0])
    if isinstance(record, dict) and "items" not in record:
        return record.get("kind") in ("Pod", "Workload")
    return bool(LIST.match(texts[0]) and KIND.search("\n".join(texts)))


def _is_document(path: Path) -> bool:
    first = next((text for _, text in head_lines(path)), "")
    return LIST.match(first) is not None


def _decode(text: str) -> object:
    """The value of a line, or what is wrong with it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = getattr(error, "msg", "too deep")
        column = getattr(error, "colno", 1)
        return ValueError(f"column {column}: is no JSON ({fault}); {ADVICE}")


def _document(path: Path) -> Iterator[tuple[int, object]]:
    """The objects of documents that follow each other, each an object, a list or an array."""
    text = JsonWindow(path, "object", advice=f"; {ADVICE}")
    for line, record, members in text.records("items"):
        yield line, _with_kind(record, members.get("kind"))


def _with_kind(record: object, kind: object) -> object:
    """An object of a ``PodList``, whose objects need not name their kind."""
    if not isinstance(record, dict) or "kind" in record or not isinstance(kind, str):
        return record
    return record | {"kind": kind.removesuffix("List")}
