"""A store's results for papers: one PDF, a folder that LaTeX compiles, or the figures alone."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

from matplotlib.backends.backend_pdf import PdfPages

from forgetscope.analysis.results import Analysis
from forgetscope.errors import StoreError
from forgetscope.files import replacing, told
from forgetscope.outputs import PDF, Progress, refuse_foreign_file, refuse_foreign_folder, unheard, writing_folder
from forgetscope.report.exhibited import Shown, exhibited
from forgetscope.report.typeset.figures import WIDTH, Drawing, drawings
from forgetscope.report.typeset.ink import GREY, UNDATED, printing, save
from forgetscope.report.typeset.latex import BESIDE, latex_beside, latex_document, latex_table, table_inputs
from forgetscope.report.typeset.layout import lay_out, lay_out_beside
from forgetscope.report.typeset.sheets import Pages, PrintNotation
from forgetscope.report.words.captions import caption, caption_beside
from forgetscope.report.words.definitions import boxed
from forgetscope.report.words.methods import paragraphs
from forgetscope.report.words.notation import LATEX
from forgetscope.report.words.reading import claim_sentences, passages

Format = Literal["pdf", "latex", "png"]
WORDS = "What the words mean"
FORMATS: tuple[Format, ...] = get_args(Format)


def write_paper(
    analysis: Analysis, path: str | Path, format: Format = "pdf", *, width: float = WIDTH, progress: Progress = unheard
) -> Path:
    """Write the figures, and all but for `png` also the headline and the tables. The same results give the same bytes.

    pdf: a file. latex: a folder whose `report.tex` compiles with pdflatex. png: a folder of PNG and SVG files. width: of the
    figures in inches, for `latex` and `png`; 3.5 fits one column of most papers, 7.16 both.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> fs.write_paper(fs.analyse("results", resamples=10), "figures", "png").name
    'figures'
    """
    path = Path(path)
    refuse_foreign(path, format)
    found = drawings(analysis)
    if not found:
        reasons = " ".join(f"Missing: {text}" for text in analysis.more["missing"]["what"])
        raise StoreError(f"{analysis.store} has nothing to draw. {reasons}".rstrip())
    if format == "pdf":
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        _write_pdf(analysis, found, path, progress)
        return path
    with writing_folder(path) as building:
        if format == "latex":
            _write_latex(analysis, found, building, width, progress)
        else:
            _write_figures(found, building, ("png", "svg"), width, progress)
            captions = "\n".join(f"{drawing.name}\n{drawing.caption}\n" for drawing in found)
            (building / "captions.txt").write_text(captions, encoding="utf-8")
    return path


def refuse_foreign(path: Path, format: Format) -> None:
    """Before results are computed, too: what is there and was not written here is left as it is."""
    if format == "pdf":
        refuse_foreign_file(path, PDF, "PDF")
    else:
        refuse_foreign_folder(path)


def _write_pdf(analysis: Analysis, found: Sequence[Drawing], path: Path, progress: Progress) -> None:
    notation = PrintNotation()
    with printing():
        pages = Pages()
        pages.write(_title(analysis), 15, bold=True)
        pages.skip(0.05)
        pages.write(_made(analysis), color=GREY)
        for passage in passages(analysis):
            pages.skip(0.12)
            pages.write(passage.title, 8, bold=bool(passage.paragraphs))
            for told_together in passage.paragraphs:
                pages.skip(0.06)
                pages.write(" ".join(told_together), 8)
        pages.skip(0.2)
        pages.box(WORDS, [f"{one.term}: {one.short}" for one in boxed()])
        pages.turn()
        for number, drawing in enumerate(found, start=1):
            pages.draw(drawing, f"Figure {number}")
        pages.turn()
        for number, shown in enumerate(_tables(analysis), start=1):
            pages.tabulate(f"Table {number}. {caption(shown)}", lay_out(shown, notation))
            if shown.beside is not None:
                text = f"Table {number}, compared. {caption_beside(shown, shown.beside)}"
                pages.tabulate(text, lay_out_beside(shown, shown.beside, notation))
        pages.turn()
        for title, sentences in (("Methods", paragraphs(analysis)), ("Claims", claim_sentences(analysis))):
            pages.write(title, 9, bold=True)
            for sentence in sentences:
                pages.skip(0.06)
                pages.write(sentence)
            pages.skip(0.2)
        pages.number()
        metadata = UNDATED["pdf"] | {"Title": _title(analysis)}
        with replacing(path) as file, PdfPages(file, metadata=metadata) as document:
            for number, page in enumerate(pages.figures, start=1):
                document.savefig(page)
                progress("pages", number, len(pages.figures))


def _write_latex(analysis: Analysis, found: Sequence[Drawing], folder: Path, width: float, progress: Progress) -> None:
    _write_figures(found, folder / "figures", ("pdf",), width, progress)
    (folder / "tables").mkdir()
    written: list[str] = []
    for shown in _tables(analysis):
        for name, text in ((shown.exhibit.name, latex_table(shown)), (f"{shown.exhibit.name}{BESIDE}", latex_beside(shown))):
            if text:
                (folder / "tables" / f"{name}.tex").write_text(text, encoding="utf-8")
                written.append(name)
    body = "\n".join(_latex_body(analysis, found, written))
    (folder / "report.tex").write_text(latex_document(body), encoding="utf-8")


def _latex_body(analysis: Analysis, found: Sequence[Drawing], tables: Sequence[str]) -> Iterator[str]:
    yield f"\\title{{{LATEX.text(_title(analysis))}}}\n\\author{{{LATEX.text(_made(analysis))}}}\n\\date{{}}\n\\maketitle"
    for passage in passages(analysis):
        title = LATEX.text(passage.title)
        yield f"\\section*{{{title}}}" if passage.paragraphs else f"\n{title}\n"
        yield from (LATEX.text(" ".join(sentences)) + "\n" for sentences in passage.paragraphs)
    yield _latex_box()
    yield "\\clearpage"
    for drawing in found:
        image = f"\\includegraphics[width=\\linewidth]{{figures/{drawing.name}.pdf}}"
        ending = f"\\caption{{{LATEX.text(drawing.caption)}}}\n\\label{{fig:{drawing.name}}}\n\\end{{figure}}\n\\clearpage"
        yield f"\\begin{{figure}}[htbp]\n\\centering\n{image}\n{ending}"
    yield table_inputs(tables)
    for title, sentences in (("Methods", paragraphs(analysis)), ("Claims", claim_sentences(analysis))):
        yield f"\\section*{{{title}}}"
        yield from (LATEX.text(sentence) + "\n" for sentence in sentences)


def _latex_box() -> str:
    """Definitions in a frame."""
    lines = "\n\n".join(f"\\textbf{{{LATEX.text(one.term)}}}: {LATEX.text(one.short)}" for one in boxed())
    frame = "\\dimexpr\\linewidth-2\\fboxsep-2\\fboxrule\\relax"
    inner = f"\\textbf{{{WORDS}}}\n\n\\footnotesize {lines}"
    return f"\n\\medskip\\noindent\\fbox{{\\begin{{minipage}}{{{frame}}}\n{inner}\n\\end{{minipage}}}}\n"


def _write_figures(
    found: Sequence[Drawing], folder: Path, formats: Sequence[Literal["pdf", "svg", "png"]], width: float, progress: Progress
) -> None:
    folder.mkdir(exist_ok=True)
    for number, drawing in enumerate(found, start=1):
        figure = drawing.figure(width)
        for format in formats:
            with (folder / f"{drawing.name}.{format}").open("wb") as file, printing():
                save(figure, file, format)
        progress("figures", number, len(found))


def _tables(analysis: Analysis) -> Iterator[Shown]:
    return (shown for shown in exhibited(analysis) if shown.exhibit.kind == "table" or shown.exhibit.layout == "noise")


def _title(analysis: Analysis) -> str:
    names = list(dict.fromkeys(sample.benchmark for sample in analysis.collection.samples))
    made = "Simulated: imbalanced" if analysis.collection.simulated else "Imbalanced"
    return f"{made} forgetting in {' and '.join(names)}"


def _made(analysis: Analysis) -> str:
    coding = "sum-to-zero" if analysis.coding == "sum" else analysis.coding
    given = "" if analysis.controls == "others" else " overall partial correlations as in the paper,"
    return (
        f"forgetscope {version('forgetscope')}; {coding} coding of factors,{given} {analysis.resamples:,} bootstrap resamples"
    )
