"""Every exhibit is described once, and every writer writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forgetscope.analysis.exhibits.figures import FIGURES, course_figure, swarm_figure
from forgetscope.analysis.exhibits.tables import MORE, POLICIES, TABLES
from forgetscope.analysis.results import Analysis
from forgetscope.report.datafiles import write_analysis
from forgetscope.report.document import analysis_document
from forgetscope.report.exhibited import exhibited
from forgetscope.report.terminal.studies import exhibit_view
from forgetscope.report.typeset.figures import drawings


def test_an_exhibit_has_a_label_of_its_own_a_title_and_a_line_on_how_to_read_it() -> None:
    everything = [*TABLES.values(), *MORE.values(), *FIGURES.values(), POLICIES]
    assert (len(TABLES), len(FIGURES)) == (24, 7)
    assert len({exhibit.label for exhibit in everything}) == len(everything)
    assert all(exhibit.title and exhibit.how.endswith((".", "%.")) for exhibit in everything)
    assert [exhibit.columns != () for exhibit in TABLES.values()] == [True] * 24


def test_figures_of_other_data_are_called_as_those_of_the_paper() -> None:
    assert swarm_figure("cifar100", 2).label == "fig:swarm_plots_forgetting_cifar100_1"
    assert course_figure("cifar100").label == "fig:SIC_CIC_NIC_across_steps_cifar"
    own = swarm_figure("my-birds", 3), course_figure("my-birds")
    assert [one.label for one in own] == ["fig:swarm_plots_forgetting_mybirds_2", "fig:SIC_CIC_NIC_across_steps_my-birds"]
    assert all(one.title.endswith(", my-birds") for one in own)


def test_an_analysis_shows_all_that_was_computed_with_what_stands_beside_it(analysed: Analysis) -> None:
    found = {shown.exhibit.label: shown for shown in exhibited(analysed)}
    frames = {**analysed.tables, **analysed.more, **analysed.figures}
    assert list(found) == list(frames)
    assert all(shown.frame is frames[label] for label, shown in found.items())
    assert set(found) == {*TABLES, *FIGURES, *MORE} - {"joint_over_time"}
    beside = found["fig:controlled_exps_distributions"].beside
    assert beside is analysed.more["controlled_boxes"]
    printed = found["spearman_SIC"].beside
    assert printed is None or len(printed) == len(found["spearman_SIC"].frame)


def test_files_json_print_and_terminal_have_every_exhibit(analysed: Analysis, tmp_path: Path) -> None:
    found = exhibited(analysed)
    folder = write_analysis(analysed, tmp_path / "files")
    document = analysis_document(analysed)
    drawn = {drawing.name for drawing in drawings(analysed)}
    for shown in found:
        exhibit = shown.exhibit
        assert (folder / exhibit.part / f"{exhibit.label}.parquet").is_file()
        assert (folder / exhibit.part / f"{exhibit.label}.tex").is_file() == (exhibit.kind == "table")
        assert exhibit.part == "figures" or exhibit.label in document[exhibit.part]
        assert exhibit.part != "figures" or exhibit.name in drawn
        assert exhibit_view(shown)


@pytest.mark.parametrize("name", ["pages", "typeset", "terminal", "words"])
def test_no_writer_knows_a_figure_by_its_label(name: str) -> None:
    import forgetscope.report

    folder = Path(forgetscope.report.__path__[0]) / name
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    assert not [label for label in FIGURES if label in source]
    assert "across_steps" not in source
    assert "FIGURES[" not in source
