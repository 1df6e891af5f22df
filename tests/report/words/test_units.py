from __future__ import annotations

import pytest

from forgetscope.report.words.units import duration, size_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [(size_text(1), "1 byte"), (size_text(999), "999 bytes"), (duration(1.2), "1 second"), (duration(40), "40 seconds")],
)
def test_one_byte_or_second_is_not_called_many(text: str, expected: str) -> None:
    assert text == expected
