"""What people write down as options, clumsily: every limit has a message, and the message blames who is to blame."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import forgetscope as fs
from conftest import TINY
from forgetscope.benchmark.pairs import parse_variant
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.errors import ForgetscopeError, SpecError
from forgetscope.options import LONGEST_FILE, parse_setting
from forgetscope.scenario import class_sequence
from forgetscope.spec import RunSpec, StepSpec

LARGEST = {
    "steps": 1000,
    "memory": 10**9,
    "memory_bytes": 10**15,
    "epochs": 100_000,
    "first_batch": 65_536,
    "batch": 65_536,
    "learning_rate": 100.0,
    "weight_decay": 10.0,
    "probe_every": 100_000,
    "probe_images": 10**6,
    "all_layers_every": 100_000,
    "seed": 2**63 - 1,
    "sequence_seed": 2**63 - 1,
    "crop": 128,
    "image_size": 256,
}


@pytest.mark.parametrize(("name", "limit"), LARGEST.items())
def test_the_largest_value_is_accepted_and_the_next_is_refused_by_name(name: str, limit: float) -> None:
    assert getattr(RunSpec(**{name: limit}), name) == limit
    above = limit + 1
    with pytest.raises(SpecError, match=re.escape(f"{name} = {above} is not valid: it should be less than or equal to ")):
        RunSpec(**{name: above})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": 8}, "retention = 8 is not valid: it should be less than or equal to 1. Did you mean 0.08?"),
        ({"retention": "8 %"}, "Did you mean 0.08?"),
        ({"increment": 10}, "Did you mean 0.1?"),
        ({"alpha": 50}, "alpha = 50 is not valid: it should be less than 1. Did you mean 0.5?"),
        ({"alpha": [0.5, 25]}, "alpha = 25 is not valid: it should be less than 1. Did you mean 0.25?"),
        ({"validation": 10}, "Did you mean 0.1?"),
        ({"brightness": 2}, "brightness = 2 is not valid: it should be less than or equal to 1."),
        ({"learning_rate": float("inf")}, "learning_rate = inf is not valid: it should be a finite number."),
        ({"learning_rate": float("nan")}, "learning_rate = nan is not valid: it should be a finite number."),
        ({"retention": True}, "retention = 'True' is not valid: it should be a valid number"),
        ({"crop": 17, "image_size": 32}, "crop = 17 pixels around images of 32 x 32: use at most 16."),
        ({"self": 1}, "There is no option 'self'."),
        ({"dataset": list(range(10_000))}, "dataset = [0, 1, 2, 3, 4, 5, ...] is not valid"),
    ],
)
def test_a_wrong_value_is_named_with_its_limit_and_what_was_probably_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        RunSpec(**options)


@pytest.mark.parametrize("value", [1.5, 0, -8, 250])
def test_what_is_no_likely_percentage_gets_no_hint(value: float) -> None:
    with pytest.raises(SpecError, match=r"to 1\.$|than 0\.$"):
        RunSpec(retention=value)


def test_benchmarks_have_the_hints_and_limits_too() -> None:
    with pytest.raises(SpecError, match=r"retentions = 8 is not valid: .* Did you mean 0.08\?"):
        BenchmarkSpec(name="x", retentions=[8])
    with pytest.raises(SpecError, match=r"seed = 9223372036854775808 is not valid"):
        BenchmarkSpec(name="x", seed=2**63)
    with pytest.raises(
        SpecError, match=r"name = 'a b' is not valid: At most 60 letters, digits, dots, hyphens and underscores\.$"
    ):
        BenchmarkSpec(name="a b")
    with pytest.raises(SpecError, match=r"There is no option 'run'"):
        BenchmarkSpec(name="x", run={"epochs": 5})


def test_what_a_store_holds_is_read_without_those_limits() -> None:
    recorded = {
        "step": 1,
        "seed": 2**70,
        "classes": [0],
        "network": "resnet8",
        "rehearsal": None,
        "training": {"epochs": 10**9, "batch": 1, "learning_rate": 1e9, "momentum": 5.0, "weight_decay": 99.0}
        | {"augmentation": {"crop": 500}},
    }
    assert StepSpec(**recorded).seed == 2**70


def test_more_steps_than_classes_are_told_how_many_can_be() -> None:
    with pytest.raises(SpecError, match=r"999 steps of 10 classes need 9990 classes, but .* 100. Use at most 10 steps\.$"):
        class_sequence(100, 0.1, 999, seed=0)


def test_a_crop_is_compared_with_the_images_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="crop = 100 pixels around images of 16 x 16: use at most 8"):
        fs.run(RunSpec(crop=100), tmp_path / "store", device="cpu", threads=1)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b" \n\n", "it is empty"),
        (b"\x89PNG\r\n\x1a\n\xff\xd8", "it is not text in UTF-8"),
        (b"epochs: 5\n", "it is not TOML: Expected '=' after a key"),
        (b"epochs = 5\nepochs = 6\n", "it is not TOML: Cannot overwrite a value"),
        (b"epochs = " + b"9" * 5000, "it is not TOML: Exceeds the limit"),
        (b"sequence = " + b"[" * 100_000, "it is not TOML: "),
        (b"#" * (LONGEST_FILE + 1), "it has more than 1,000,000 characters"),
    ],
    ids=["empty", "blank", "binary", "yaml", "twice", "number", "nested", "endless"],
)
def test_a_file_that_is_no_configuration_says_why(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(content)
    for load in (RunSpec.from_toml, BenchmarkSpec.load):
        with pytest.raises(SpecError) as caught:
            load(path)
        assert str(caught.value).startswith(f"Cannot read {path}: {reason}")
        assert str(caught.value).endswith("to start from.")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xef\xbb\xbfepochs = 7\r\n")
    assert RunSpec.from_toml(path).epochs == 7


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    for load in (RunSpec.from_toml, BenchmarkSpec.load):
        with pytest.raises(SpecError, match=r"Cannot read .*: Is a directory\. `forgetscope"):
            load(tmp_path)


@pytest.mark.parametrize("table", ["[training]\nepochs = 5\n", "[run]\nepochs = 5\n"])
def test_a_table_is_not_an_option(table: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(table)
    with pytest.raises(SpecError, match=r"^my.toml: There is no option '(training|run)'"):
        RunSpec.from_toml(path)
    with pytest.raises(SpecError, match=r"^my.toml: There is no option '(training|run)'"):
        BenchmarkSpec.load(path)


@pytest.mark.parametrize(
    ("text", "overrides", "start"),
    [
        ("epochs = 0", {}, "my.toml: epochs = 0"),
        ("epochs = 0", {"seed": 1}, "my.toml: epochs = 0"),
        ("epochs = 5", {"seed": 1, "retention": 8}, "--set retention=8: retention = 8"),
        ("epochs = 5", {"epoch": "x"}, '--set epoch="x": There is no option'),
        ("epochs = 5", {"batch": 5, "alpha": 0.25}, "--set batch=5: alpha * batch"),
        ("epochs = 5", {"memory": 5, "retention": 0.1}, "--set memory=5 --set retention=0.1: memory and retention"),
        ("memory = 50", {"retention": 0.1}, "--set retention=0.1: memory and retention exclude each other"),
        ("epochs = 0", {"epochs": -3, "seed": 1}, "--set epochs=-3: epochs = -3"),
        ("epochs = 0", {"epochs": 5, "seed": -1}, "--set seed=-1: seed = -1"),
        ("alpha = 0.2\nbatch = 5", {"alpha": 0.4, "seed": -1}, "--set seed=-1: seed = -1"),
    ],
)
def test_an_error_blames_the_file_or_the_override(text: str, overrides: dict[str, object], start: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        RunSpec.from_toml(path, overrides)
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize("load", [RunSpec.from_toml, BenchmarkSpec.load])
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"batch": -1}, "--set batch=-1: batch = -1 is not valid: it should be greater than or equal to 2."),
        ({"epoch": 3}, "--set epoch=3: There is no option 'epoch'. Did you mean 'epochs'?"),
        ({"seed": 1, "crop": 1000}, "--set crop=1000: crop = 1000 is not valid: it should be less than or equal to 128."),
    ],
)
def test_the_file_and_the_override_are_blamed_for_what_is_theirs(
    load: Any, overrides: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "my.toml"
    path.write_text("epochs = 0")
    with pytest.raises(SpecError) as caught:
        load(path, overrides)
    assert str(caught.value) == f"my.toml: epochs = 0 is not valid: it should be greater than or equal to 1. {message}"


def test_only_a_near_name_is_suggested() -> None:
    with pytest.raises(SpecError, match=r"policy = 'entrpy' is not known. Did you mean 'entropy'\?"):
        RunSpec(policy="entrpy")
    with pytest.raises(SpecError, match=r"policy = 'nope' is not known. Known: .*entropy.*\.$"):
        RunSpec(policy="nope")


def test_a_benchmark_s_override_is_blamed_too() -> None:
    with pytest.raises(SpecError, match=r"^--set learning_rate=1000000000.0: learning_rate = 1000000000.0 is not valid"):
        BenchmarkSpec.load("glyphs", {"learning_rate": 1e9})


def test_a_setting_of_two_lines_is_not_half_read() -> None:
    assert parse_setting("epochs=5\nseed=3") == ("epochs", "5\nseed=3")
    assert parse_setting("epochs=" + "9" * 5000)[1] == "9" * 5000
    assert parse_setting("sequence=" + "[" * 100_000)[1] == "[" * 100_000


def test_a_variant_has_the_same_limits() -> None:
    with pytest.raises(ForgetscopeError, match=r"learning_rate = 1000000000.0 is not valid"):
        parse_variant("learning_rate=1e9", RunSpec(**TINY))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 2}, r"fs.run takes a RunSpec, .* or Plan, not a dict: make one with fs.RunSpec\(\*\*options\)"),
        ("my.toml", r"fs.run takes a RunSpec, .* or Plan, not a str: make one with fs.RunSpec.from_toml\(path\)"),
    ],
)
def test_run_says_what_it_takes(given: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fs.run(given)


def test_run_and_write_report_say_which_types_they_take(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="store = None is not the path of a folder"):
        fs.run(RunSpec(), None)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="not a str"):
        fs.write_report(str(tmp_path), tmp_path / "page.html")  # type: ignore[arg-type]


def test_a_named_pipe_is_not_waited_for_and_one_of_the_shell_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.toml")
    for read in (RunSpec.from_toml, BenchmarkSpec.load):
        with pytest.raises(SpecError, match=r"Cannot read .*run.toml: it is a named pipe\."):
            read(tmp_path / "run.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    with pytest.raises(SpecError, match=r"Cannot read .*loop.toml: Too many levels of symbolic links"):
        RunSpec.from_toml(tmp_path / "loop.toml")
    reading, writing = os.pipe()
    os.write(writing, b"epochs = 7")
    os.close(writing)
    assert RunSpec.from_toml(Path(f"/dev/fd/{reading}")).epochs == 7
    os.close(reading)


def test_one_value_in_the_place_of_a_list_is_told_how_to_be_one() -> None:
    with pytest.raises(SpecError, match=r"increments = 0.25 is not valid: it is a list. Write increments = \[0.25\]\."):
        BenchmarkSpec.load("glyphs", {"increments": 0.25})
    with pytest.raises(SpecError, match=r'policies = .herding. is not valid: it is a list. Write policies = \["herding"\]\.'):
        BenchmarkSpec.load("glyphs", {"policies": "herding"})
