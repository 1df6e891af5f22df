"""Images in a page, pixel by pixel: a browser draws of a class its own image, and those that were kept of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page

import forgetscope as fs
from forgetscope.data.images import DataSet
from forgetscope.data.library import recorded_data
from forgetscope.store import StoredStep

PIXELS = """boxes => boxes.map(box => [...box.getContext('2d').getImageData(0, 0, box.width, box.height).data])"""
DRAWN = f"""() => {{ const all = ({PIXELS})([...document.querySelectorAll('#class canvas')]);
    return all.length && all.every(pixels => pixels.some(Boolean)); }}"""


@pytest.mark.browser
def test_a_class_shows_its_own_image_and_the_images_that_were_kept_of_it(
    tiny_store: Path, tmp_path: Path, browser: Browser
) -> None:
    experiment = fs.open_experiment(tiny_store)
    step = experiment.steps[2]  # the last, which the page shows first
    data = recorded_data(step.info["data"])
    assert data is not None
    file = fs.write_report(experiment, tmp_path / "report.html")
    page = browser.new_page()
    page.goto(file.as_uri())
    buttons = page.locator("#classes button")
    buttons.first.wait_for()
    kept, names = images_kept(step), {name: id for id, name in enumerate(data.classes)}
    assert buttons.count() == len(kept) == 4
    for i in range(len(kept)):
        buttons.nth(i).click()
        thumbnail, *rehearsed = drawn(page)
        id = names[page.locator("#class h3").inner_text()]
        firsts = [int(np.flatnonzero(data.train.labels == label)[0]) for label in range(len(data.classes))]
        assert nearest(thumbnail, data, firsts) == firsts[id]
        everything = [image for images in kept.values() for image in images]
        assert [nearest(one, data, everything) for one in rehearsed] == kept[id][: len(rehearsed)]
        assert len(rehearsed) == len(kept[id]) == 16  # all: as many as 40 are shown where a page is of one experiment


def drawn(page: Page) -> list[NDArray[np.float64]]:
    """Per canvas of the chosen class: its colours, line by line."""
    page.wait_for_function(DRAWN)
    found = page.locator("#class canvas").evaluate_all(PIXELS)
    return [np.array(pixels, np.float64).reshape(-1, 4)[:, :3] for pixels in found]


def nearest(shown: NDArray[np.float64], data: DataSet, candidates: list[int]) -> int:
    """The training image that is most like what is shown, which is compressed and so not quite the same."""
    images = np.asarray(data.train.images)[candidates].reshape(len(candidates), len(shown), -1).astype(np.float64)
    return candidates[int(np.abs(images - shown).mean(axis=(1, 2)).argmin())]


def images_kept(step: StoredStep) -> dict[int, list[int]]:
    """By class, in the order of selection."""
    rows = step.table("rehearsal").to_pandas().sort_values(["class_id", "position"])
    return {int(str(id)): own["image"].tolist() for id, own in rows.groupby("class_id")}
