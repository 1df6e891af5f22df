from __future__ import annotations

import os
from pathlib import Path

import pytest
from own_data import own

from forgetscope.data.cache import cache_folder
from forgetscope.data.library import load_data
from forgetscope.errors import DataError


def test_a_relative_cache_is_seen_from_the_working_folder_and_a_tilde_from_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, folder in {"sets": tmp_path / "sets", "~/sets": tmp_path / "home" / "sets", "~": tmp_path / "home"}.items():
        monkeypatch.setenv("FORGETSCOPE_CACHE", given)
        assert cache_folder() == folder
        own()
        assert (folder / "mine" / "manifest.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "sets"]


@pytest.fixture
def _homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has a number and no name."""

    def nobody(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("HOME", "XDG_CACHE_HOME", "FORGETSCOPE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_homeless")
def test_without_a_home_one_message_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"Cannot tell where the cache is \(.*HOME.*\)\. Set FORGETSCOPE_CACHE to the whole path"
    ):
        load_data("glyphs", 8)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_homeless")
def test_a_tilde_without_a_home_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("~/sets", "~nobody-of-that-name/sets"):
        monkeypatch.setenv("FORGETSCOPE_CACHE", given)
        with pytest.raises(
            DataError, match=rf"Cannot tell where the cache {given} is .* Set FORGETSCOPE_CACHE to the whole path"
        ):
            cache_folder()


def test_a_cache_that_cannot_be_written_is_named_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # tests may run as root, who may write anywhere
    with pytest.raises(DataError, match=rf"Cannot write to the cache {tmp_path}: Permission denied. Set FORGETSCOPE_CACHE to"):
        own()
    assert list(tmp_path.iterdir()) == []
