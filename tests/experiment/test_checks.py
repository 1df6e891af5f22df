"""What cannot work in a later step is said before the first one: by every command that runs, and nothing is made."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import forgetscope
from conftest import TINY
from forgetscope.cli.app import app
from forgetscope.errors import SpecError, StoreError
from forgetscope.spec import RunSpec

MEMORY = "memory = 3 images cannot hold one of each of the 4 past classes of step 3. Use at least 4. Nothing was started."
BYTES = "memory_bytes = 767 is too little for 4 past classes of step 3: one image of each, and what is kept besides, is 768"
BOUNDARY = "policy = 'boundary' needs two classes to have a boundary between, and the first step has one."


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 3}, MEMORY),
        ({"memory": 1}, "memory = 1 image cannot hold one of each of the 4 past classes of step 3. Use at least 4."),
        ({"memory_bytes": 767}, "memory_bytes = 767 is too little for 4 past classes of step 3: one image of each"),
        ({"memory_bytes": 767, "keepsake": "variance"}, "is 768 bytes. Use at least 768. Keepsakes come on top."),
        ({"memory_bytes": 800, "keepsake": "variance"}, "is 2816 bytes. Use at least 2816. Nothing was started."),
        ({"memory_bytes": 800, "forecast": True}, "is 4864 bytes. Use at least 4864. Nothing was started."),
        ({"memory_bytes": 768, "method": "dark-logits"}, "is 816 bytes. Use at least 816."),
        ({"policy": "boundary", "sequence": ((0,), (1,))}, BOUNDARY),
        (
            {"network": "resnet18", "sampling": "reshuffled-short", "first_batch": 57},
            "would leave it one: 400 images in batches of first_batch = 57. Use another first_batch or sampling.",
        ),
        (
            {"network": "resnet18", "sampling": "reshuffled-short", "first_batch": 359, "validation": 0.1},
            "would leave it one: 360 images in batches of first_batch = 359.",
        ),
    ],
)
def test_a_run_is_checked_whole(options: dict[str, object], message: str, tmp_path: Path) -> None:
    spec = RunSpec(**{**{name: value for name, value in TINY.items() if name != "retention"}, **options})
    with pytest.raises(SpecError) as error:
        forgetscope.run(spec, tmp_path / "store", device="cpu", threads=1, progress=False)
    assert message in str(error.value)
    assert not (tmp_path / "store").exists()


def test_a_precision_that_the_device_cannot_is_said_for_whichever_step_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.amp.is_autocast_available", lambda device: False)
    (tmp_path / "run.toml").write_text("image_size = 8\n")
    result = invoke("variants", tmp_path / "run.toml", "--vary", "precision=bfloat16", "--store", tmp_path / "store")
    assert result.exit_code == 2, result.output
    assert "precision = 'bfloat16': device cpu cannot" in result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("compare", "run.toml", "--set", "memory=3"), MEMORY),
        (("variants", "run.toml", "--vary", "memory=3"), MEMORY),
        (("variants", "run.toml", "--vary", "memory_bytes=767"), BYTES),
        (("compare", "run.toml", "--arm", "plain:", "--arm", "small: memory_bytes=767"), BYTES),
        (("variants", "run.toml", "--vary", "policy=boundary", "--set", "sequence=[[0],[1]]"), BOUNDARY),
        (("bench", "run", "space.toml"), BOUNDARY),
        (("controlled", "space.toml", "--runs", "2"), BOUNDARY),
    ],
)
def test_a_plan_is_checked_whole(
    command: tuple[str, ...], message: str, squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text('dataset = "squares"\nsequence = [[0, 1], [2, 3], [4, 5]]\n')
    Path("space.toml").write_text('dataset = "squares"\nincrements = [0.125]\npolicies = ["uniform", "boundary"]\n')
    result = invoke(*command, "--store", "store")
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
    assert not Path("store").exists()


def test_a_network_that_does_not_take_the_images_is_told_before_anything_starts(
    squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    monkeypatch.chdir(tmp_path)
    Path("flat_network.py").write_text(
        "from torch import nn\n"
        "class Flat(nn.Module):\n"
        "    def __init__(self, classes):\n"
        "        super().__init__()\n"
        "        self.head = nn.Linear(3 * 32 * 32, classes)\n"
        "    def features(self, images):\n"
        "        return images.flatten(1)\n"
        "    def forward(self, images):\n"
        "        return images.new_zeros(len(images), self.head.out_features)\n"
    )
    Path("space.toml").write_text('dataset = "squares"\nincrements = [0.25]\nnetwork = "flat_network:Flat"\n')
    result = invoke("bench", "run", "space.toml", "--store", "store")
    assert result.exit_code == 2, result.output
    assert "features of 2 images are (2, 192), but the head takes [2, 3072]" in " ".join(result.stderr.split())
    assert not Path("store").exists()


@pytest.mark.parametrize("folder", ["steps", "working"])
def test_a_store_that_cannot_be_written_is_told_before_anything_starts(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tempfile.TemporaryFile

    def refuse(*args: object, dir: Path, **more: object) -> object:
        if dir.name == folder:
            raise PermissionError(13, "Permission denied")
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StoreError, match=r"Cannot write to the store .*: Permission denied"):
        forgetscope.run(RunSpec(**TINY), tmp_path / "store", device="cpu", threads=1, progress=False)
    assert not list((tmp_path / "store" / "working").glob("*"))
