from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from forgetscope.report.words.reading import _claims


def test_a_contested_claim_is_told_in_the_symbols_of_the_tables() -> None:
    row = {"benchmark": "glyphs", "policy": "uniform", "subset": "2", "claim": "CIC ranks", "verdict": "contested"}
    detail = pd.DataFrame(
        [{**row, "what": what, "value": -0.5, "low": -0.6, "high": -0.4, "n": 9} for what in ("rho", "rho_p")]
    )
    analysis: Any = SimpleNamespace(more={"claims": detail, "claims_in_detail": detail})
    ((*_, (told,)),) = (passage.paragraphs for passage in _claims(analysis))
    assert told == "Contested: CIC ranks (glyphs step 2: ρ −0.50 (−0.60, −0.40); glyphs step 2: ρₚ −0.50 (−0.60, −0.40))."
