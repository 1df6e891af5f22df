"""What a store lacks, in sentences."""

from __future__ import annotations

from forgetscope.analysis.questions.advice import Lack
from forgetscope.report.words.lacks import lack_sentence


def test_what_is_missing_in_several_benchmarks_names_them() -> None:
    said = {n: lack_sentence(Lack("ranking", tuple("ABCDE"[:n]), step=2)).partition(", step")[0] for n in (1, 2, 3, 5)}
    assert said == {1: "A", 2: "A and B", 3: "A, B and C", 5: "A, B and 3 others"}
