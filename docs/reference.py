"""The pages that are made from what the code declares: `python docs/reference.py [FOLDER]`.

It writes them into `docs/reference`, where links to them lead in a checkout, too; the site has them
as they are when it is made. Each function gives the Markdown of one page; `PAGES` names them. The
texts are the docstrings and the metadata of the schemas.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import protocol
import pyarrow as pa

from wattkeeper.policies.registry import POINTS, policies
from wattkeeper.scenarios.spec.json_schema import json_schema
from wattkeeper.sim.cluster_results.schemas import TABLES
from wattkeeper.sim.results.summary import VALUES
from wattkeeper.traces.formats import registry
from wattkeeper.traces.schema import KINDS, OPTIONAL

Json = Mapping[str, Any]

QUESTIONS = {
    "configure": "How shall this job run? Batch size, parent model, cost bound. Asked once, before "
    "it starts.",
    "tune": "Which knobs of what runs change now? Power limit. Asked when an attempt starts and "
    "when profiling is done.",
    "select": "Which of the waiting and the running jobs run now? Asked on each scheduling pass.",
    "place": "On which GPUs? Asked for each job that was selected.",
    "replan": "What shape does an elastic job take after it gained or lost nodes?",
    "retain": "What does a zoo of bounded size admit and evict? Asked for each finished model.",
}

GUIDES = {
    "configure": {
        "frugal": "frugal",
        **dict.fromkeys(("none", "lineage", "random-parent", "modelkeeper"), "zoo"),
    },
    "tune": {
        **dict.fromkeys(("chase", "deadline", "static-limit"), "chase"),
        **dict.fromkeys(("perseus", "pipeline-exact", "fixed-clock"), "perseus"),
    },
    "select": {"carbon-aware": "carbon-queue"},
    "place": {"steady": "losses"},
    "replan": {
        **dict.fromkeys(("oobleck", "varuna", "in-memory", "on-notice", "bamboo"), "elastic"),
        "adaptive": "elastic-policy",
    },
    "retain": dict.fromkeys(("keep-all", "lru", "lfu", "gdsf", "modelkeeper"), "zoo"),
}
"""Pages that explain policies, by decision point and kind."""


def scenario() -> str:
    """Every key of a scenario file."""
    schema = json_schema()
    parts = {
        name: part
        for name, part in schema["$defs"].items()
        if not name.endswith("Config") or name == "PolicyConfig"
    }
    lines = [
        "# Scenario reference",
        "",
        "Made from the JSON schema (`wattkeeper schema`). A scenario is a YAML file with these "
        "keys.",
        "",
        *_keys(schema, parts),
    ]
    for name, part in sorted(parts.items()):
        lines += ["", f"## {name}", ""]
        lines += [_prose(part.get("description", "")), "", *_keys(part, parts)]
    return "\n".join(lines) + "\n"


def _keys(part: Json, parts: Json) -> Iterator[str]:
    needed = part.get("required", ())
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for key, of in part["properties"].items():
        default = "needed" if key in needed else f"`{json.dumps(of.get('default'))}`"
        yield f"| `{key}` | {_type(of, parts)} | {default} | {_meaning(of, parts)} |"


def _meaning(of: Json, parts: Json) -> str:
    text = of.get("description", "")
    if not text and "const" in of:
        text = "This word."
    for ref in _refs(of):
        text = text or parts.get(ref, {}).get("description", "")
    if not text and any(ref.endswith("Config") for ref in _refs(of)):
        text = "See [policies](policies.md)."
    return _cell(text)


def _refs(of: object) -> list[str]:
    """The definitions that a type names, in order."""
    if isinstance(of, Mapping):
        here = [str(of["$ref"]).rpartition("/")[2]] if "$ref" in of else []
        return here + [
            ref for key, each in of.items() if key != "discriminator" for ref in _refs(each)
        ]
    return [ref for each in of for ref in _refs(each)] if isinstance(of, list) else []


def _type(of: Json, parts: Json) -> str:
    """A type in words."""
    refs = _refs(of)
    if refs and all(ref.endswith("Config") for ref in refs):
        one = "a policy's name, or a mapping with its `kind`"
        return f"{one}; or a list of these" if '"array"' in json.dumps(of) else one
    if "$ref" in of:
        return f"[{refs[0]}](#{refs[0].lower()})" if refs[0] in parts else refs[0]
    for union in ("anyOf", "oneOf"):
        if union in of:
            kinds = dict.fromkeys(_type(each, parts) for each in of[union])
            return " or ".join(kind for kind in kinds if kind != "null")
    if "enum" in of or "const" in of:
        return ", ".join(f"`{word}`" for word in of.get("enum", [of.get("const")]))
    if of["type"] == "array":
        return f"list of {_type(of['items'], parts) if 'items' in of else 'values'}"
    if of["type"] == "object":
        inner = of.get("additionalProperties")
        return f"mapping of {_type(inner, parts)}" if isinstance(inner, Mapping) else "mapping"
    words = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "`true` or `false`",
        "null": "null",
    }
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {of[key]:,g}" for key, sign in signs.items() if key in of]
    return " ".join([words[of["type"]], ", ".join(bounds)]).strip()


def policy_kinds() -> str:
    """Every policy with its parameters and sources."""
    lines = [
        "# Policies",
        "",
        "Made from the registry: every policy that is installed, by decision point. "
        "[Scenarios](../scenarios.md#policies) shows how one is named and which are the defaults.",
    ]
    for point in POINTS:
        lines += ["", f"## `{point}`", "", QUESTIONS[point], "", *_overview(point)]
        for kind, config in policies(point).items():
            schema = config.model_json_schema()
            lines += ["", f"### `{point}: {kind}`", "", _prose(inspect.getdoc(config) or ""), ""]
            fields = {key: of for key, of in schema["properties"].items() if key != "kind"}
            if fields:
                part = {"properties": fields, "required": schema.get("required", ())}
                lines += _keys(part, schema.get("$defs", {}))
    return "\n".join(lines) + "\n"


def _overview(point: str) -> Iterator[str]:
    """A row a policy of a decision point: what it does, and the page that explains it."""
    guides = GUIDES.get(point, {})
    yield from ("| policy | what it does | guide |", "|---|---|---|")
    for kind, config in policies(point).items():
        does = (inspect.getdoc(config) or "").partition("\n")[0]
        guide = f"[{guides[kind]}](../{guides[kind]}.md)" if kind in guides else ""
        yield f"| [`{kind}`](#{point}-{kind}) | {_cell(does)} | {guide} |"


def files() -> str:
    """The files of results and of traces, with all columns."""
    lines = ["# File formats", "", "Made from the schemas; the Parquet files carry the same texts."]
    lines += ["", "## Results", ""]
    for name, schema in {**TABLES, "metrics": VALUES}.items():
        lines += [f"### `{name}.parquet`", "", *_columns(schema), ""]
    lines += ["## Traces", "", "A trace is a folder with `trace.json` and these tables."]
    for kind, tables in KINDS.items():
        for name, schema in (tables | OPTIONAL[kind]).items():
            more = ", where there is one" if name in OPTIONAL[kind] else ""
            key = (schema.metadata or {}).get(b"key", b"").decode().replace(",", ", ")
            lines += ["", f"### `{name}.parquet` of {kind}{more}", ""]
            lines += [f"Unique: {key}." if key else "Rows may repeat.", "", *_columns(schema)]
    return "\n".join(lines) + "\n"


def _columns(schema: pa.Schema) -> Iterator[str]:
    yield from ("| column | type | unit | meaning | allowed |", "|---|---|---|---|---|")
    for column in schema:
        meta = {key.decode(): _cell(text.decode()) for key, text in column.metadata.items()}
        allowed = [meta.get("rule", ""), "or null" if column.nullable else ""]
        rule = " ".join(filter(None, allowed))
        yield f"| `{column.name}` | `{column.type}` | {meta['unit']} | {meta['doc']} | {rule} |"


def imports() -> str:
    """Every format that traces can be imported from."""
    lines = [
        "# Registry of import formats",
        "",
        "Made from the registry: `wattkeeper traces import FORMAT PATH...`. "
        "[Import formats](../formats.md) and [job logs of clusters](../formats-clusters.md) say "
        "more of some.",
        "",
        "| format | holds | takes | origin |",
        "|---|---|---|---|",
    ]
    for known in registry().values():
        cells = (f"`{known.name}`", known.summary, known.takes, getattr(known, "origin", ""))
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    """A docstring as Markdown: reST literals become Markdown's."""
    return re.sub(r"``([^`]+)``", r"`\1`", text).replace("\n::\n", "\n")


def _cell(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", r"\|")


PAGES: dict[str, Callable[[], str]] = {
    "scenario.md": scenario,
    "policies.md": policy_kinds,
    "files.md": files,
    "imports.md": imports,
    "protocol.md": protocol.protocol,
}


def write_pages(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "reference")
