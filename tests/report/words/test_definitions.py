"""Definitions: whole, short enough for a tooltip, and found by what people type."""

import pytest

from forgetscope.report.words.definitions import defined, definitions, explained, legend


@pytest.mark.parametrize("term", ["SIC", "CIC", "NIC", "FG", "FG-R", "FG-HG", "ρ", "step", "partition"])
def test_what_pages_are_full_of_is_defined(term: str) -> None:
    found = definitions()[term]
    assert found.text
    assert found.short.endswith(".")


def test_short_definitions_fit_a_tooltip_and_no_name_is_given_twice() -> None:
    every = list(explained().values())
    assert max(len(one.short) for one in every) <= 160
    names = [name.casefold() for one in every for name in (one.term, *one.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("word", "term"), [("sic", "SIC"), (" rho ", "ρ"), ("Forgetting", "FG"), ("ceiling", "at most")])
def test_a_word_is_found_as_people_type_it(word: str, term: str) -> None:
    found = defined(word)
    assert found is not None
    assert found.term == term


@pytest.mark.parametrize("word", ["mean FG", "barely learned", "worst", "variance", "policy", "alpha", "chance", "claims"])
def test_what_tables_and_options_are_called_is_explained(word: str) -> None:
    found = defined(word)
    assert found is not None
    assert found.reading
    assert found.formula or found.acting


def test_an_unknown_word_has_no_definition() -> None:
    assert defined("SICK") is None


def test_a_legend_has_the_order_of_definitions_and_passes_over_other_words() -> None:
    told = legend(["FG", "SIC", "class"])
    assert told.index("SIC: ") < told.index("FG: ")
    assert "class:" not in told
