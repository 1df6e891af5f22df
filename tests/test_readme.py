"""Every example in the README is run, as it stands there; only its size is reduced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from conftest import TINY
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.learning.networks import build_network
from forgetscope.spec import RunSpec
from tiny_cifar100 import SPLITS, binary, write_tar

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def example_with(text: str) -> str:
    (found,) = (code for code in blocks("python") if text in code)
    return found


def test_the_readme_has_the_examples_that_these_tests_know() -> None:
    assert {kind for kind, _ in BLOCKS} == {"toml", "sh", "python", "text"}
    assert [len(blocks(kind)) for kind in ("toml", "sh", "python", "text")] == [1, 5, 2, 1]


def test_the_configuration_is_valid_and_the_same_as_in_the_examples() -> None:
    (text,) = blocks("toml")
    shipped = tomllib.loads((ROOT / "examples" / "glyphs.toml").read_text(encoding="utf-8"))
    assert RunSpec(**tomllib.loads(text)) == RunSpec(**shipped) == RunSpec()


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(RunSpec(**{**TINY, "sequence": TINY["sequence"][:2], "epochs": 1}).to_toml())
    for name in ("wren", "owl"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (20, 30), (40 * i, 0, 0)).save(tmp_path / "birds" / name / f"{i}.png")
    archive = write_tar(tmp_path / "tiny.tar.gz", {f"{name}.bin": binary(name) for name in SPLITS})
    script = "set -e\n" + "\n".join(blocks("sh")).replace("data get cifar100 ", f"data get cifar100 --from {archive} ")
    script = script.replace("--pairs 5", "--pairs 2 --no-estimate")
    small = ("epochs=1", "experiments=1", "image_size=8", "increments=[0.5]", "retentions=[0.4]")
    small_run = f"bench run glyphs --no-estimate {' '.join(f'--set {option}' for option in small)}"
    script = script.replace("bench run glyphs --store results", f"{small_run} --store bench")
    assert script.count("--no-estimate") == 3
    changes = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "FORGETSCOPE_CACHE": str(tmp_path / "cache"),
    }
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={**os.environ, **changes}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "DataSet('birds', 2 classes, 8 + 2 images, 64x64) is ready" in ran.stdout
    assert (tmp_path / "report.html").is_file()
    assert "Means over experiments that differ in seed and classes only" in ran.stdout
    assert len(list((tmp_path / "results" / "steps").iterdir())) == 2 + 2 + 2 + 2 + 6  # other policies share the first steps
    assert "Most even first" in ran.stdout
    assert "paired difference to uniform" in ran.stdout
    assert "steps imported into replication" in ran.stdout


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = example_with("fs.RunSpec(").replace(
        "steps=2, epochs=2", f"**{ ({**TINY, 'sequence': TINY['sequence'][:2], 'epochs': 1})!r}"
    )
    assert code.count("sequence") == 2
    code = code.replace('["uniform", "herding"], pairs=2', '["uniform", "herding"], pairs=1')
    names: dict[str, object] = {}
    exec(code, names)
    assert (tmp_path / "report.html").is_file()
    assert list(names["result"].classes["step"].unique()) == [1, 2]  # type: ignore[attr-defined]
    assert len(list((tmp_path / "results" / "steps").iterdir())) == 3  # the comparison shares what was run


def test_the_example_of_a_benchmark_in_python_runs(
    small: BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arms, code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), re.DOTALL)
    planned: dict[str, Any] = {}
    exec(arms, planned)
    assert len(planned["fs"].plan(planned["spec"]).jobs) == 2 + 6
    (tmp_path / "small.toml").write_text(small.to_toml())
    exec(code.replace('"glyphs"', '"small.toml"').replace("jobs=2", "jobs=1"), {})
    assert re.fullmatch(r"(Experiment\(\w{8}: squares, resnet8, \d steps, seed \d+\)\n){2}", capsys.readouterr().out)


def own_data() -> dict[str, object]:
    """What somebody's own loop has: three past classes, two new ones."""
    generator = torch.Generator().manual_seed(0)
    past = (torch.randn(30, 3, 8, 8, generator=generator), torch.arange(30) % 3)
    new = (torch.randn(20, 3, 8, 8, generator=generator), 3 + torch.arange(20) % 2)
    return {
        "network": build_network("resnet8", 5, None),
        "epochs": 1,
        "past_images": past[0],
        "past_labels": past[1],
        "rehearsed": torch.arange(6),
        "new_images": new[0],
        "new_labels": new[1],
        "past_data": TensorDataset(*past),
        "memory": (past[0][:6], past[1][:6]),
        "new_data": DataLoader(TensorDataset(*new), 7, shuffle=True),
        "test_data": past,
        "batches": [(torch.cat([past[0][:4], new[0][:4]]), torch.cat([past[1][:4], new[1][:4]]))],
        "train_one_epoch": lambda network: network.train(),
        "train_on_batch": lambda network, images, labels: network.train(),
    }


def test_the_monitor_example_runs_in_a_plain_loop_and_prints_what_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = own_data()
    code = example_with("fs.Monitor(")
    assert len(code.strip().splitlines()) <= 10
    exec(code, names)
    number = r"-?\d[\d.e-]*"
    cause = rf"(own memory \(SIC {number}\)|(new classes|other classes' memory) \([NC]IC {number}\): .+|nothing interferes .*)"
    shown = rf"Epoch \d. Most at risk of \d past classes:\n(  \d\. [\w ]+  (same|up \d|down \d) +{cause}\n)+"
    assert re.fullmatch(shown, capsys.readouterr().out)
    assert re.fullmatch(shown, blocks("text")[0])
    (step,) = names["monitor"].steps  # type: ignore[attr-defined]
    assert step.info["status"] == "done"


def test_the_example_of_the_probe_runs_in_a_plain_loop(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measuring, saving, cheaper = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "probe.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names = own_data()
    exec(measuring, names)
    assert re.fullmatch(r"(class \d: SIC [+-]\d\.\d{3}, NIC [+-]\d\.\d{3}\n){3}", capsys.readouterr().out)
    exec(saving, {**names, "torch": torch})
    assert re.match(r"\s+sic\s+cic\s+nic\s+all_nic\s+log_sim\nnode", capsys.readouterr().out)
    exec(cheaper, names)
    assert "sic_se" in capsys.readouterr().out


def test_the_examples_of_the_monitor_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those in which somebody's own loop stands; the sections on frameworks have tests of their own."""
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "monitor.md").read_text(encoding="utf-8"), re.DOTALL)
    own = [code for code in found if "monitor.step(" in code]
    assert len(own) == 4
    killed = "import shutil; shutil.rmtree('results/observed/finches')  # a step that was killed is not there\n"
    for code in own:
        exec(code.replace("# where the training goes on", f"{killed}# where"), {**own_data(), "torch": torch})
        assert "forgetscope:" not in capsys.readouterr().err  # nothing was warned of


def test_the_first_screen_says_what_it_is_shows_it_and_gives_two_commands() -> None:
    """In this order: a title, three lines for somebody who has never heard of rehearsal, a diagram, two commands; then ten
    lines for an engineer, before the researcher's."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    title, lines, diagram, heading, commands, *_ = text.split("\n\n")
    assert title == "# forgetscope"
    assert len(lines.splitlines()) == 3
    assert diagram.endswith("(docs/images/how-it-works.svg)")
    assert heading == "## Two commands"
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == ["make demo", "make test"]
    assert 0 < text.index("fs.Monitor(") < text.index("fs.RunSpec(")


def test_every_picture_is_there_and_the_diagram_has_colours_for_the_dark() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).is_file(), f"{page.name}: {picture}"
    diagram = (ROOT / "docs" / "images" / "how-it-works.svg").read_text(encoding="utf-8")
    for word in ("prefers-color-scheme: dark", "Step 1", "Memory", "Probe", ">SIC<", ">CIC<", ">NIC<"):
        assert word in diagram
