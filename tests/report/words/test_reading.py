from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from forgetscope.analysis.results import Analysis, analyse
from forgetscope.report.words.headlines import headlines
from forgetscope.report.words.reading import MADE_UP, UNLEARNED, _claims, claim_sentences, reading_lines


def test_a_contested_claim_is_told_in_the_symbols_of_the_tables() -> None:
    row = {"benchmark": "glyphs", "policy": "uniform", "subset": "2", "claim": "CIC ranks", "verdict": "contested"}
    detail = pd.DataFrame(
        [{**row, "what": what, "value": -0.5, "low": -0.6, "high": -0.4, "n": 9} for what in ("rho", "rho_p")]
    )
    analysis: Any = SimpleNamespace(
        more={"claims": detail, "claims_in_detail": detail}, collection=SimpleNamespace(simulated=False, samples=[])
    )
    ((*_, (told,)),) = (passage.paragraphs for passage in _claims(analysis))
    assert told == "Contested: CIC ranks (glyphs step 2: ρ −0.50 (−0.60, −0.40); glyphs step 2: ρₚ −0.50 (−0.60, −0.40))."


def test_made_up_results_get_no_verdict_on_the_paper_in_words(analysed: Analysis) -> None:
    assert len(analysed.more["claims"]["verdict"].unique()) > 1  # the functions that judge take them
    told = " ".join([*reading_lines(analysed), *claim_sentences(analysed)])
    assert MADE_UP in told
    for word in ("confirmed", "contested", "Contested", "undecided"):
        assert word not in told


def test_where_classes_were_barely_learned_no_claim_is_judged_in_words(tiny_store: Path) -> None:
    """Of two classes of squares, some are recognised no better than by guessing."""
    analysis = analyse(tiny_store, resamples=100, cached=False)
    caution = [
        headline.caution for headline in headlines(analysis) if "nothing is concluded from these steps" in headline.caution
    ]
    assert bool(caution) == (UNLEARNED in claim_sentences(analysis)) == (UNLEARNED in reading_lines(analysis))
