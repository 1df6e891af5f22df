"""Files for papers: complete, the same every time, and never in place of something else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.errors import SpecError, StoreError, WriteError
from forgetscope.outputs import LISTING
from forgetscope.report.typeset.figures import Drawing, drawings
from forgetscope.report.typeset.papers import FORMATS, write_paper
from forgetscope.report.words.definitions import boxed
from forgetscope.report.words.headlines import headlines
from forgetscope.report.words.notation import LATEX

pytestmark = pytest.mark.slow  # a small suite of its own: whole documents are made and read
COMPILER, READER = shutil.which("pdflatex"), shutil.which("pdftotext")


@pytest.fixture(scope="module")
def small(tiny_store: Path) -> Analysis:
    """Of one experiment with two past classes in the second step and four in the third."""
    return analyse(tiny_store, resamples=200, cached=False)


@pytest.fixture(scope="module")
def pdf(small: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paper(small, tmp_path_factory.mktemp("pdf") / "new" / "report.pdf", "pdf")


def compiled(folder: Path) -> None:
    assert COMPILER is not None
    command = [COMPILER, "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:]


@pytest.mark.skipif(READER is None, reason="pdftotext is not installed")
def test_a_pdf_has_headline_figures_tables_and_page_numbers(pdf: Path, small: Analysis) -> None:
    text = subprocess.run([str(READER), "-layout", pdf, "-"], capture_output=True, text=True, check=True).stdout
    first, *_ = pages = text.rstrip("\f").split("\f")
    assert len(pages) == len(re.findall(rb"/Type /Page\b", pdf.read_bytes()))
    assert "Imbalanced forgetting in glyphs" in first
    assert "glyphs: 1 second step" in first
    assert "glyphs: 1 third step" in first
    assert "Missing: controlled experiments: none are in the store" in first
    words = " ".join(text.split())
    assert "What the words mean" in words
    for one in boxed():
        assert "".join(f"{one.term}: {one.short}".split()) in "".join(words.split())
    for number, page in enumerate(pages, start=1):
        assert page.rstrip().endswith(f"{number} of {len(pages)}")
    for number in range(1, len(drawings(small)) + 1):
        assert f"Figure {number}. " in text
    for number in range(1, len(TABLES) + 1):
        assert f"Table {number}. " in text


def test_a_pdf_has_the_same_bytes_every_time_and_no_date(pdf: Path, small: Analysis, tmp_path: Path) -> None:
    again = write_paper(small, tmp_path / "again.pdf", "pdf")
    assert again.read_bytes() == pdf.read_bytes()
    assert b"CreationDate" not in pdf.read_bytes()


@pytest.mark.skipif(COMPILER is None, reason="pdflatex is not installed")
def test_the_latex_folder_compiles(small: Analysis, tmp_path: Path) -> None:
    folder = write_paper(small, tmp_path / "out", "latex", width=3.5)
    assert {path.stem for path in (folder / "tables").iterdir()} == {*TABLES, "noise"}
    assert {path.stem for path in (folder / "figures").iterdir()} == {drawing.name for drawing in drawings(small)}
    compiled(folder)
    document = (folder / "report.tex").read_text(encoding="utf-8")
    box = document.partition("What the words mean")[2].partition("\\end{minipage}")[0]
    for one in boxed():
        assert f"{LATEX.text(one.term)}}}: {LATEX.text(one.short)}" in box


def test_figures_come_as_png_and_svg_with_their_captions(small: Analysis, tmp_path: Path) -> None:
    folder = write_paper(small, tmp_path / "out", "png", width=3.5)
    names = [drawing.name for drawing in drawings(small)]
    written = {f"{name}.{format}" for name in names for format in ("png", "svg")} | {"captions.txt"}
    assert {path.name for path in folder.iterdir()} == written | {LISTING}
    assert all(drawing.caption in (folder / "captions.txt").read_text() for drawing in drawings(small))
    write_paper(small, folder, "png", width=3.5)  # takes the place of its own


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_there_and_is_something_else_stays(small: Analysis, tmp_path: Path, format: str) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(SpecError, match=r"notes is there and is .*left as it is\. .*-o"):
        write_paper(small, tmp_path / "notes", format)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="left as it is"):
        write_paper(small, tmp_path, format)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    with pytest.raises(WriteError, match="Cannot write"):
        write_paper(small, tmp_path / "notes" / "below", format)  # type: ignore[arg-type]


def test_a_store_without_past_classes_says_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "empty" / "steps").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"empty has nothing to draw\. .*an experiment needs at least two steps"):
        write_paper(analyse(tmp_path / "empty", cached=False), tmp_path / "out.pdf", "pdf")
    assert not (tmp_path / "out.pdf").exists()


def test_a_file_that_is_not_finished_is_not_there(pdf: Path, small: Analysis, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "report.pdf"
    shutil.copy(pdf, target)
    with pytest.raises(KeyboardInterrupt):
        write_paper(small, target, "pdf", progress=stop)
    assert target.read_bytes() == pdf.read_bytes()
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(COMPILER is None or READER is None, reason="pdflatex or pdftotext is not installed")
def test_the_papers_values_stand_beside_ours_in_both_documents(same: Analysis, tmp_path: Path) -> None:
    folder = write_paper(same, tmp_path / "out", "latex")
    compiled(folder)
    for path in (folder / "report.pdf", write_paper(same, tmp_path / "report.pdf", "pdf")):
        text = subprocess.run([str(READER), "-layout", path, "-"], capture_output=True, text=True, check=True).stdout
        words = " ".join(text.split())
        assert "Simulated: imbalanced forgetting in C100" in words[:200]
        for verdict in ("confirmed (", "contested (", "undecided (", "Contested:"):
            assert verdict not in words
        assert "made up (simulated)" in words
        assert "By noise of the test images alone, FG-R and FG-HG would be" in words
        for sentence in (sentence for headline in headlines(same) for sentence in headline.sentences):
            assert "".join(sentence.split()) in "".join(words.replace("- ", "").split())  # lines are broken and hyphenated
        assert "simulated with a known truth, 8 second steps and 8 third steps; nothing was trained." in words
        assert words.count("Ours beside what the paper prints:") == 23
        found = re.search(r"FG-R (\S+) ± \S+ \((\S+), (\S+)\) 0.59 ± 0.15 \(0.57, 0.60\) (\S+) (yes|no)", words)
        assert found is not None
        mean, low, high, difference = (float(value.replace("−", "-")) for value in found.groups()[:4])
        assert difference == pytest.approx(mean - 0.59, abs=0.011)
        assert found[5] == ("yes" if low <= 0.60 and high >= 0.57 else "no")


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="pdflatex is not installed")
def test_the_paper_s_shape_compiles_and_fits(analysed: Analysis, tmp_path: Path) -> None:
    compiled(write_paper(analysed, tmp_path / "latex", "latex"))
    assert (tmp_path / "latex" / "report.pdf").stat().st_size < 2e6
    assert write_paper(analysed, tmp_path / "report.pdf", "pdf").stat().st_size < 2e6


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tiny_store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_store, tmp_path / "store")
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "forgetscope", "report", copy, "--format", "png", "-o", tmp_path / seed]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True, capture_output=True)
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes()


def test_nothing_of_this_is_loaded_for_help() -> None:
    code = "import sys, forgetscope.cli.app; assert not {'matplotlib', 'pandas', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_figures_can_be_taken_one_by_one(small: Analysis) -> None:
    for drawing in drawings(small):
        assert isinstance(drawing, Drawing)
        assert drawing.figure(3.5).get_size_inches()[0] == 3.5
