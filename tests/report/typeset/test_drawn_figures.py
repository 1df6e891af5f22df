"""What is drawn is what is in the frames."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import FillBetweenPolyCollection, PathCollection
from matplotlib.figure import Figure

import forgetscope
from forgetscope.analysis.exhibits.exhibit import THREE
from forgetscope.analysis.exhibits.figures import CONTROLLED, FIGURES
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.rows import matching
from forgetscope.report.typeset.figures import Boxes, Curves, Drawing, Swarms, drawings
from forgetscope.report.typeset.ink import LINES, printing, save, shown

HOSTILE = "$\\frac{1</text><script>alert(1)</script> 字\x1b[31m %_&"


@pytest.fixture(scope="module")
def found(analysed: Analysis) -> dict[str, Drawing]:
    return {drawing.name: drawing for drawing in drawings(analysed)}


def dots(figure: Figure) -> list[PathCollection]:
    return [c for axes in figure.axes for c in axes.collections if isinstance(c, PathCollection)]


def saved(drawing: Drawing, format: str, width: float = 7.16) -> bytes:
    file = io.BytesIO()
    with printing():
        save(drawing.figure(width), file, format)  # type: ignore[arg-type]
    return file.getvalue()


def test_the_paper_s_seven_figures_come_in_its_order(found: dict[str, Drawing]) -> None:
    assert [f"fig:{name}" for name in found] == list(FIGURES)
    assert [type(drawing) for drawing in found.values()] == [Swarms] * 4 + [Curves] * 2 + [Boxes]
    assert all(drawing.caption.endswith("Simulated: nothing was trained.") for drawing in found.values())


@pytest.mark.parametrize("width", [3.5, 7.16])
def test_every_past_class_is_a_dot_at_its_forgetting_and_no_two_overlap(found: dict[str, Drawing], width: float) -> None:
    drawing = found["swarm_plots_forgetting_cifar100_1"]
    figure = drawing.figure(width)
    swarms = dots(figure)
    assert len(figure.axes) == 9
    assert len(swarms) == 9 * 3  # three experiments per partition
    heights = np.concatenate([np.asarray(swarm.get_offsets())[:, 1] for swarm in swarms])
    assert sorted(heights) == sorted(drawing.frame["forgetting"])
    for axes in figure.axes:
        drawn = [c for c in axes.collections if isinstance(c, PathCollection)]
        points = np.concatenate([axes.transData.transform(c.get_offsets()) for c in drawn]) * 72 / figure.dpi
        apart = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))[np.triu_indices(len(points), 1)]
        assert apart.min() >= np.sqrt(drawn[0].get_sizes()[0])


def test_classes_that_were_never_learned_are_not_drawn_but_told(found: dict[str, Drawing], analysed: Analysis) -> None:
    label = next(iter(FIGURES))
    frame = analysed.figures[label].copy()
    frame.loc[frame.index[:7], "forgetting"] = np.nan
    changed = dataclasses.replace(analysed, figures={label: frame})
    (drawing,) = drawings(changed)
    assert sum(len(c.get_offsets()) for c in dots(drawing.figure())) == len(frame) - 7
    assert "7 classes that were never learned are not drawn" in drawing.caption


def test_lines_and_bands_are_the_frame_s_means_deviations_and_intervals(found: dict[str, Drawing]) -> None:
    drawing = found["SIC_CIC_NIC_across_steps_cifar"]
    figure = drawing.figure()
    assert [axes.get_title() for axes in figure.axes[:3]] == list(THREE)
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["step 2", "step 2\nincrements 10, 20\u202f%", "step 3"]
    panels = [(subset, name) for subset in ("2", "2_10_20", "3") for name in THREE]  # the paper's three rows
    for axes, (subset, name) in zip(figure.axes, panels, strict=True):
        bands = [c for c in axes.collections if isinstance(c, FillBetweenPolyCollection)]
        assert len(bands) == 4
        for i, (statistic, label) in enumerate((("rho", "ρ"), ("rho_p", "ρₚ"))):
            curve = matching(drawing.frame, subset=subset, quantity=name, statistic=statistic)
            (line,) = [line for line in axes.lines if line.get_label() == label]
            np.testing.assert_array_equal(line.get_xydata(), np.column_stack([100 * curve["share"], curve["mean"]]))
            ends = (curve["mean"] - curve["sd"], curve["mean"] + curve["sd"]), (curve["mean_lo"], curve["mean_hi"])
            for band, pair in zip(bands[2 * i : 2 * i + 2], ends, strict=True):
                corners = {tuple(corner) for corner in band.get_paths()[0].vertices.round(9)}
                for bound in pair:
                    assert corners >= set(zip((100 * curve["share"]).round(9), bound.round(9), strict=True))


def test_a_caption_names_lines_as_they_are_drawn(found: dict[str, Drawing]) -> None:
    drawing = found["SIC_CIC_NIC_across_steps_cifar"]
    lines = drawing.figure().axes[0].lines
    assert [line.get_linestyle() for line in lines if line.get_label() == "ρₚ"] == ["--"]
    assert [line.get_linestyle() for line in lines if len(set(line.get_xdata())) == 1] == [":"]
    assert "of partial ρₚ (dashed)" in drawing.caption
    assert "Dotted, upright: a quarter of training." in drawing.caption


def test_boxes_have_the_estimated_medians_and_a_dot_per_class(found: dict[str, Drawing]) -> None:
    drawing = found["controlled_exps_distributions"]
    assert isinstance(drawing, Boxes)
    assert drawing.beside is not None
    figure = drawing.figure()
    assert [axes.get_title() for axes in figure.axes] == ["C100, step 2", "C100, step 3", "TIN, step 2", "TIN, step 3"]
    medians = [line.get_ydata()[0] for axes in figure.axes for line in axes.lines if line.get_linewidth() == 1.4]
    assert sorted(medians) == sorted(drawing.beside["median"])
    heights = np.concatenate([np.asarray(c.get_offsets())[:, 1] for c in dots(figure)])
    assert sorted(heights) == sorted(drawing.frame["rho"].dropna())


def test_names_stay_text(found: dict[str, Drawing], analysed: Analysis) -> None:
    figures = {label: frame.assign(benchmark=HOSTILE) for label, frame in analysed.figures.items() if label == CONTROLLED.label}
    more = {"controlled_boxes": analysed.more["controlled_boxes"].assign(benchmark=HOSTILE)}
    (drawing,) = drawings(dataclasses.replace(analysed, figures=figures, more=more))
    tree = ElementTree.fromstring(saved(drawing, "svg"))
    texts = ["".join(element.itertext()) for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert any("$\\frac{1</text><script>alert(1)</script> U+5B57\\x1b[31m %_&, step 2" in text for text in texts)
    assert not list(tree.iter("{http://www.w3.org/2000/svg}script"))


def test_a_name_is_shown_with_the_characters_that_the_font_has() -> None:
    assert shown("ρₚ ± 5 %, é") == "ρₚ ± 5 %, é"
    assert shown("字\u202e") == "U+5B57\\u202e"


@pytest.mark.parametrize("format", ["png", "svg", "pdf"])
def test_the_same_numbers_give_the_same_bytes_whatever_the_user_s_settings(found: dict[str, Drawing], format: str) -> None:
    drawing = found["SIC_CIC_NIC_across_steps_tinyin"]
    first = saved(drawing, format, 3.5)
    with matplotlib.rc_context({"font.size": 20, "text.usetex": True, "svg.hashsalt": "x", "savefig.dpi": 50}):
        assert saved(drawing, format, 3.5) == first


def test_several_policies_are_several_figures(analysed: Analysis) -> None:
    label = next(iter(FIGURES))
    frame = analysed.figures[label]
    both = pd.concat([frame, frame.assign(policy="herding")])
    names = [(d.name, d.caption.split(".")[0]) for d in drawings(dataclasses.replace(analysed, figures={label: both}))]
    assert names == [
        ("swarm_plots_forgetting_cifar100_1", "Forgetting FG of past classes in steps 2 of C100"),
        ("swarm_plots_forgetting_cifar100_1-2", "Forgetting FG of past classes in steps 2 of C100, herding"),
    ]


def test_a_picture_says_itself_that_it_is_simulated(found: dict[str, Drawing]) -> None:
    for drawing in found.values():
        assert "Simulated" in {text.get_text() for text in drawing.figure(3.5).texts}
        trained = dataclasses.replace(drawing, simulated=False).figure(3.5)
        assert "Simulated" not in {text.get_text() for text in trained.texts}


def test_lines_have_the_colours_of_pages(found: dict[str, Drawing]) -> None:
    assets = Path(forgetscope.__file__).parent / "report" / "pages" / "assets"
    css = (assets / "explorer.css").read_text()
    light = dict(re.findall(r"--(one|two|three|four): (#\w{6})", css.partition("@media")[0]))
    assert [colour.lower() for colour in LINES] == [light[name] for name in ("one", "two", "three", "four")]
    figure = found["SIC_CIC_NIC_across_steps_cifar"].figure()
    drawn = {line.get_color() for axes in figure.axes for line in axes.lines if len(np.atleast_1d(line.get_xdata())) > 2}
    assert drawn == {LINES[0], LINES[2]}
    assert "series(look, 2 * q)" in (assets / "charts.js").read_text()  # the first and the third there, too
