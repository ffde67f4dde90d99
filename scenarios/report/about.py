"""What was simulated, on what input, and with what: the facts on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.spec.wording import count

ORIGINS = {
    "recorded": "recorded",
    "synthetic": "synthetic: made by a model, measured by nobody",
}


def basis(manifest: Json) -> Element:
    """What was run, on what input, and what of it nobody recorded, in a few lines."""
    facts: list[tuple[str, Sequence[Element | str]]] = [("run", [_ran(manifest)])]
    inputs = [input_of(one) for one in manifest["inputs"]]
    facts.append(("input", inputs or ["none: everything was trained for real"]))
    if manifest["modelled"]:
        facts.append(("modelled, not measured", [tag("span", "; ".join(manifest["modelled"]))]))
    return listed(facts)


def listed(facts: Sequence[tuple[str, Sequence[Element | str]]]) -> Element:
    """Facts by name."""
    lines = []
    for name, values in facts:
        lines += [tag("dt", name), *(tag("dd", value) for value in values)]
    return tag("dl", *lines, class_="basis")


def _ran(manifest: Json) -> str:
    seeds, variants = len(manifest["seeds"]), len(manifest["scenario"]["variants"])
    runs = seeds * variants
    each = manifest["jobs"] // runs if runs else 0
    cluster = _cluster(manifest["scenario"]["cluster"])
    what = f"{count(variants, 'variant')} × {count(seeds, 'seed')}, {count(each, 'job')} each"
    if manifest["backend"] == "sim":
        return f"Simulated: {what}, on {cluster}."
    of_live = manifest.get("live") or {}
    devices = ", ".join(of_live.get("devices", ()) or ("cpu",))
    where = "rehearsed on synthetic devices" if devices == "synthetic" else f"run live on {devices}"
    return f"{where.capitalize()}: {what}."


def _cluster(cluster: Json) -> str:
    if isinstance(cluster.get("nodes"), list):
        return ", ".join(
            f"{int(one['count']) * int(one['gpus'])} × {one['gpu']}" for one in cluster["nodes"]
        )
    if "gpus" in cluster:
        return f"{cluster['gpus']} × {cluster.get('gpu', 'GPU')}"
    return f"the cluster of trace {cluster.get('nodes')}"


def input_of(one: Json) -> Element:
    """A trace, and whether anybody recorded it."""
    synthetic = one["origin"] != "recorded"
    origin = ORIGINS.get(one["origin"], one["origin"])
    name = "" if one["trace"] == one["origin"] else f" {one['trace']}"
    source = one.get("source") if not (synthetic and name == "") else None
    return tag(
        "span",
        f"{one['kind']}{name}: ",
        tag("b", origin, class_="warn" if synthetic else "good"),
        f". {source}" if source else "",
    )


def details(manifest: Json) -> Element:
    """What is needed to repeat it: policies, seeds, versions, and digests."""
    return tag(
        "div",
        facts(
            {
                "scenario": manifest["scenario"]["name"],
                "seeds": seeds_text(manifest["seeds"]),
                "digest of the results": manifest["results_digest"],
                "digest of the scenario": manifest["scenario_digest"],
            }
            | sources(manifest)
        ),
        resolved(manifest),
    )


def sources(manifest: Json) -> dict[str, str]:
    """Versions of software and of inputs."""
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    inputs = {f"input {one['trace']}": _provenance(one) for one in manifest["inputs"]}
    return {"versions": versions} | inputs


def facts(known: Mapping[str, str]) -> Element:
    """Facts as a table."""
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", tag("code", value)))
            for name, value in known.items()]  # fmt: skip
    return tag("table", tag("tbody", *rows), class_="facts")


def resolved(manifest: Json, where: str = "") -> Element:
    """The whole scenario, folded."""
    text = json.dumps(manifest["scenario"], indent=2, ensure_ascii=False)
    return tag("details", tag("summary", f"The scenario as it was resolved{where}"),
               tag("pre", text))  # fmt: skip


def seeds_text(seeds: list[int]) -> str:
    """Seeds in words."""
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _provenance(one: Json) -> str:
    return "; ".join(
        filter(None, (one.get("format"), f"licence: {one['licence']}" if one.get("licence") else "",
                      f"content {one['content']}"))
    )  # fmt: skip
