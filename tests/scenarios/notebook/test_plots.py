"""Plots of results: the data and colours of the page's charts, on matplotlib's axes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text

from tests.conftest import run_command
from wattkeeper import scenarios
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.document.study import draw_study
from wattkeeper.scenarios.notebook.colours import VariantStyle, variant_colours
from wattkeeper.scenarios.run.run import ScenarioResult

NAMES = ("front", "energy", "power", "regret", "completion", "gantt")
ORACLE = {"policies": {"configure": "oracle"}}
FEW = ["workload.recurrences=6", "workload.workloads=[image,language]"]


@pytest.fixture(scope="module")
def done() -> ScenarioResult:
    return scenarios.load("quickstart", FEW, seeds=2).run()


@pytest.mark.parametrize("name", NAMES)
def test_a_plot_takes_and_returns_axes(name: str, done: ScenarioResult) -> None:
    plot = getattr(done.plot, name)
    new = plot()
    assert isinstance(new, Axes)
    assert pyplot.gcf() is new.figure
    _, (_, given) = pyplot.subplots(1, 2)
    assert plot(ax=given) is given
    assert len(pyplot.get_fignums()) == 2
    for axes in (new, given):
        axes.figure.canvas.draw()
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.has_data()


@pytest.mark.parametrize(("name", "chart"), [("regret", "regret"), ("completion", "jct")])
def test_lines_are_those_of_the_page(name: str, chart: str, done: ScenarioResult) -> None:
    axes = getattr(done.plot, name)()
    data = next(each.data for each in draw_study(done) if each.id == chart)
    (panel,) = data["panels"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (panel["x"]["name"], panel["y"]["name"])
    variants = list(done.summary["variants"])
    drawn = axes.get_lines()
    for line, expected in zip(drawn, panel["lines"], strict=True):
        assert line.get_label() == variants[expected["v"]]
        assert line.get_color() == variant_colours()[expected["v"]]
        x = expected.get("x") or data["xs"]
        np.testing.assert_array_equal(line.get_xdata(), np.array(x, dtype=float))
        np.testing.assert_array_equal(line.get_ydata(), np.array(expected["y"], dtype=float))


@pytest.mark.parametrize("workload", [None, "image"])
def test_regret_of_a_workload_adds_up_to_its_metric(
    workload: str | None, done: ScenarioResult
) -> None:
    axes = done.plot.regret(workload)
    assert (workload or "") in axes.get_title()
    scale = {"J": 1.0, "kJ": 1e3, "MJ": 1e6}[axes.get_ylabel().rpartition(", ")[2]]
    chosen = done.regret if workload is None else done.regret.query("workload == @workload")
    part = "by == ''" if workload is None else "by == 'workload' and part == @workload"
    whole = done.metrics.query(f"metric == 'regret' and {part}").groupby("variant")["value"].mean()
    by_recurrence = chosen.groupby(["variant", "recurrence"])["regret"].sum() / 2  # seeds
    for line in axes.get_lines():
        variant = str(line.get_label()).removesuffix(" (a bound)")
        y = np.asarray(line.get_ydata(), float)
        assert y[-1] * scale == pytest.approx(whole[variant], rel=1e-3)
        np.testing.assert_allclose(y * scale, by_recurrence[variant].cumsum(), rtol=1e-3)
    assert chosen.groupby(["variant", "seed"])["jobs"].sum().eq(6 if workload else 12).all()


def test_the_front_leaves_out_what_knows_the_future(done: ScenarioResult) -> None:
    axes = done.plot.front()
    front = axes.get_lines()[0]
    assert front.get_linestyle() == "--"
    means = {
        name: (about["metrics"]["time_s"]["mean"], about["metrics"]["energy_j"]["mean"])
        for name, about in done.summary["variants"].items()
        if name != "oracle"
    }
    best = sorted(
        own
        for own in means.values()
        if not any(t <= own[0] and e <= own[1] and (t, e) != own for t, e in means.values())
    )
    drawn = np.array(front.get_xydata())
    ratio = drawn / np.array(best)
    np.testing.assert_allclose(ratio, ratio[:1].repeat(len(best), axis=0), rtol=1e-4)
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [*means, "oracle (a bound)"]


def test_variants_are_chosen_in_an_order_and_keep_their_looks(done: ScenarioResult) -> None:
    for name in ("front", "power", "regret", "completion"):
        plot = getattr(done.plot, name)
        whole, part = plot(), plot(variants=["zeus", "default"])
        assert part.get_legend_handles_labels()[1] == ["zeus", "default"]
        for label in ("zeus", "default"):
            lines = [
                markers(axes)[label] if name == "front" else by_label(axes)[label]
                for axes in (whole, part)
            ]
            assert lines[0].get_color() == lines[1].get_color()
            assert lines[0].get_marker() == lines[1].get_marker()
            assert lines[0].get_linestyle() == lines[1].get_linestyle()
    bars = done.plot.energy(variants=["oracle", "zeus"])
    assert [text.get_text() for text in bars.get_yticklabels()] == ["oracle", "zeus"]
    with pytest.raises(InputError, match=r"variants: found zeuss; .* default, .*oracle"):
        done.plot.power(variants=["zeuss", "default"])
    for wrong, found in (("zeus", "zeus"), ([], "none")):
        with pytest.raises(InputError, match=f"variants: found {found}; "):
            done.plot.front(variants=wrong)


def test_variants_look_different_without_colours() -> None:
    looks = {(style.line, style.marker) for style in (VariantStyle("", n) for n in range(8))}
    assert len(looks) == 8
    every = [VariantStyle("", number) for number in range(64)]
    assert len({(style.colour, style.marker) for style in every}) == 64


def test_markers_in_the_same_place_are_rings(done: ScenarioResult) -> None:
    assert len({marker.get_markersize() for marker in markers(done.plot.front()).values()}) == 1
    variants: dict[str, Any] = {"default": {}, "same": {}, "too": {}, "oracle": ORACLE}
    settings = [*FEW, f"variants={json.dumps(variants)}"]
    twice = scenarios.load("quickstart", settings, seeds=1).run()
    axes = twice.plot.front()
    sizes = {label: marker.get_markersize() for label, marker in markers(axes).items()}
    assert sizes["default"] > sizes["same"] + 2 > sizes["too"] + 4
    assert sizes["oracle (a bound)"] == sizes["too"]
    legend = axes.get_legend()
    assert legend is not None
    shown_sizes = {line.get_markersize() for line in legend.get_lines()}
    assert len(shown_sizes) == 1
    alike = json.dumps({name: {} for name in ("default", *"abcdefghijk")})
    many = scenarios.load("quickstart", [*FEW, f"variants={alike}"], seeds=1).run()
    axes = many.plot.front(size=(3.3, 2.5))
    wide = [marker.get_markersize() for marker in markers(axes).values()]
    assert wide == sorted(wide, reverse=True)
    assert len(set(wide)) == 4
    (names,) = (text.get_text() for text in axes.texts)
    assert names.replace("\n", " ") == ", ".join(["default", *"abcdefghijk"])


def by_label(axes: Axes) -> dict[str, Line2D]:
    """The lines of variants."""
    return {str(line.get_label()): line for line in axes.lines}


def markers(axes: Axes) -> dict[str, Any]:
    """The marker of each variant."""
    return {str(each.get_label()): each[0] for each in axes.containers}


def test_what_cannot_be_plotted_is_said(done: ScenarioResult) -> None:
    with pytest.raises(InputError, match=r"variant none with seed any; variants: default, .*1, 2"):
        done.plot.gantt("none")
    with pytest.raises(InputError, match=r"variant any with seed 0; "):
        done.plot.gantt(seed=0)
    with pytest.raises(InputError, match=r"ax: found ndarray; must be one matplotlib Axes"):
        done.plot.front(ax=pyplot.subplots(2)[1])
    with pytest.raises(InputError, match=r"workload: found 'img'; .* image, language"):
        done.plot.regret("img")
    for name in ("queue_delay", "queue_delay_by_size"):
        with pytest.raises(InputError, match=r"no job that waited"):
            getattr(done.plot, name)()
    once = scenarios.load("quickstart", [*FEW, "workload.recurrences=1"], seeds=1).run()
    with pytest.raises(InputError, match=r"no cost of jobs that recur"):
        once.plot.regret()


def test_without_matplotlib_the_extra_is_named(
    done: ScenarioResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in NAMES:
        with pytest.raises(EnvironmentLacks, match=r"pip install 'wattkeeper\[plots\]'"):
            getattr(done.plot, name)()


def test_a_study_is_displayed_without_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom wattkeeper import scenarios\n"
        f"study = scenarios.load('quickstart', {FEW!r}, seeds=1).run()\n"
        "study.plot, study._repr_html_(), repr(study)\nassert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_the_front_of_a_sweep_has_its_values(tmp_path: Path) -> None:
    few = [word for setting in FEW for word in ("--set", setting)]
    arguments = ("run", "quickstart", *few, "--seeds", "1", "--sweep", "objective.eta=0,0.5,1")
    run_command(*arguments, "--out", "eta", traces=tmp_path / "library", cwd=tmp_path)
    axes = scenarios.read(tmp_path / "eta").plot.front()
    texts = [text.get_text() for text in axes.texts]
    assert "0–1" in texts  # the default does not depend on eta
    assert {"0", "0.5", "1"} <= set(texts)
    some = scenarios.read(tmp_path / "eta").plot.front(variants=["zeus"], title=False)
    assert some.get_title() == ""
    assert {text.get_text() for text in some.texts} >= {"0", "0.5", "1"}


def test_names_are_no_tex_and_stay_in_the_legend() -> None:
    names = ["$\\frac{", "_hidden", "a$b$c", "50% of \\$"]
    variants: dict[str, Any] = {"default": {}} | {name: {} for name in names}
    done = scenarios.load("quickstart", [*FEW, f"variants={json.dumps(variants)}"], seeds=1).run()
    for name in NAMES:
        axes = getattr(done.plot, name)() if name != "gantt" else done.plot.gantt(names[0])
        axes.figure.canvas.draw()  # raises where TeX is wrong
        if name == "gantt":
            assert names[0] in shown(axes.title)
            continue
        if name == "energy":
            assert {shown(text).strip() for text in axes.get_yticklabels()} == {"default", *names}
            continue
        legend = axes.get_legend()
        assert legend is not None
        assert {shown(text).strip() for text in legend.get_texts()} >= {"default", *names}


def shown(text: Text) -> str:
    """A text as it is drawn; it has no TeX."""
    drawn, tex = text._preprocess_math(text.get_text())  # type: ignore[attr-defined]
    assert not tex
    return str(drawn)
