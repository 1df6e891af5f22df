"""A user's own code that goes wrong: one line with its place everywhere, and everything with --traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import forgetscope
from conftest import TINY
from forgetscope import cli
from forgetscope.cli.app import app
from forgetscope.errors import TRACEBACK, OwnCodeFailed

OWN = """import torch

def raises(candidates, quota, rng):
    return explain(candidates)

def explain(candidates):
    raise ValueError(f"no such image\\nof {len(candidates)}")

def leaves(candidates, quota, rng):
    raise SystemExit(0)

def nothing(candidates, quota, rng):
    pass

def factory(classes):
    raise KeyError("layers")

class Late(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = torch.nn.Linear(3, classes)

    def features(self, images):
        return images.mean(dim=(2, 3))

    def forward(self, images):
        if self.training:
            raise RuntimeError("not while training")
        return self.head(self.features(images))
"""
RAISED = "Error: own.py:7: ValueError: no such image of 200. It is your own code; --traceback shows all.\n"


@pytest.fixture(autouse=True)
def folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(TRACEBACK, raising=False)
    Path("own.py").write_text(OWN)
    Path("own.toml").write_text(forgetscope.RunSpec(**TINY | {"epochs": 1}).to_toml())


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["run", "own.toml", "--device", "cpu", "--threads", "1", *options])


def told(result: Result) -> str:
    return "".join(line for line in result.stderr.splitlines(keepends=True) if line.startswith("Error"))


def test_a_policy_that_raises_is_one_line_with_its_place() -> None:
    result = run("--set", "policy=own:raises")
    assert result.exit_code == 1
    assert told(result) == RAISED
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("setting", "code", "message"),
    [
        ("policy=own:leaves", 1, "own.py:10: SystemExit: 0."),
        (
            "policy=own:nothing",
            2,
            "Class 'digit 0': policy own:nothing returned object of shape (), expected 16 whole numbers.",
        ),
        ("policy=own:missing", 2, "own:missing: own has no function 'missing'."),
        ("network=own:factory", 1, "own.py:16: KeyError: 'layers'."),
        ("network=own:Late", 1, "own.py:28: RuntimeError: not while training."),
    ],
)
def test_whatever_goes_wrong_is_one_line(setting: str, code: int, message: str) -> None:
    result = run("--set", setting, "--set", "sequence=[[0],[1]]")
    assert told(result).removeprefix("Error: ").startswith(message), result.output
    assert result.exit_code == code
    assert "Traceback" not in result.stderr


def test_what_cannot_be_loaded_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    assert run("--set", "policy=own:missing").exit_code == 2
    assert not (tmp_path / "forgetscope-store").exists()


@pytest.mark.parametrize("where", ["first", "last", "environment"])
def test_all_is_shown_on_request(where: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["run", "own.toml", "--device", "cpu", "--set", "network=own:factory"]
    arguments = {"first": ["--traceback", *command], "last": [*command, "--traceback"], "environment": command}[where]
    monkeypatch.setenv(TRACEBACK, "1" if where == "environment" else "")
    monkeypatch.setattr(sys, "argv", ["forgetscope", *arguments])
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))  # the command puts its own in their place
    with pytest.raises(SystemExit):
        cli.main()
    shown = capfd.readouterr().err
    assert 'raise KeyError("layers")' in shown
    assert "direct cause of the following exception" in shown
    assert shown.endswith("Error: own.py:16: KeyError: 'layers'. It is your own code; --traceback shows all.\n")


def test_in_python_it_is_an_error_of_ours_with_the_cause() -> None:
    with pytest.raises(OwnCodeFailed, match=r"own.py:16: KeyError: 'layers'") as error:
        forgetscope.run(forgetscope.RunSpec(network="own:factory"), "store", progress=False)
    assert isinstance(error.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("policy=wrong:policy", "wrong:policy cannot be called with (Candidates, int, Generator): TypeError: policy() takes 1"),
        ("network=wrong:network", "wrong:network cannot be called with (int): TypeError: network() takes 0 positional"),
        ("network=wrong:Silent", "network wrong:Silent has no method forward(images) that returns [n, classes]"),
    ],
)
def test_code_that_does_not_take_its_arguments_or_lacks_a_part_is_told_so_in_a_line(setting: str, message: str) -> None:
    Path("wrong.py").write_text(
        "import torch\n\ndef policy(candidates):\n    return []\n\ndef network():\n    return None\n\n"
        "class Silent(torch.nn.Module):\n    def __init__(self, classes):\n        super().__init__()\n"
        "        self.head = torch.nn.Linear(3, classes)\n\n    def features(self, images):\n        return images\n"
    )
    result = run("--set", setting)
    assert result.exit_code in (1, 2)
    assert told(result).startswith(f"Error: {message}")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("message", ["libtorch_cpu.so: failed to map segment from shared object", "cannot import name 'x'"])
def test_a_library_that_cannot_be_loaded_is_one_sentence_and_a_bug_shows_itself(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*args: object, **options: object) -> None:
        raise ImportError(message)

    monkeypatch.setattr("forgetscope.cli.app.app", command)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    with pytest.raises(SystemExit if "shared" in message else ImportError, match=message):
        cli.main()
