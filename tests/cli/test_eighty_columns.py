"""Every command on a terminal of 80 columns: no word is broken, lines fit, and the end says what comes next."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

import forgetscope
from conftest import SMALL, TINY
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.spec import RunSpec
from forgetscope.store import Store
from observed_steps import observe
from tiny_cifar100 import SPLITS, binary, write_tar

COLUMNS = 80
QUICK = "--threads 1 --no-estimate"
NEXT = re.compile(r"^#? ?(Next: |      )\S")
COMMANDS = {  # each as a user types it, in an order in which everything is there that it needs
    "demo": ["demo"],
    "replication": ["replication real"],
    "config": ["config"],
    "explain": ["explain", "explain SIC", "explain FG-R", "explain step"],
    "run": ["run tiny.toml --store one --threads 1", "run tiny.toml --store two --threads 1 --set all_layers_every=1"],
    "watch": ["watch one --once", "watch seen --once"],
    "show": [
        "show one",
        "show one --step 2",
        "show made",
        "show real",
        "show seen",
        "show seen --observed birds",
        "show mixed",
    ],
    "report": ["report one -o page.html", "report made --format latex -o tex", "report seen -o s.html"],
    "analyse": ["analyse one --resamples 100 --out a", "analyse made --resamples 100 --out a", "analyse seen --out b"]
    + [f"analyse made --resamples 100 --table {name}" for name in ("noise", "claims", "FG-R_FG-HSG_overall")],
    "lemma": [
        "lemma --data squares --hidden 4 --images 8 --draws 5 --threads 1 --set image_size=8 --set increment=0.5 "
        "--set epochs=2 --set first_batch=16 --set batch=16 -o lemma"
    ],
    "simulate": ["simulate glyphs --store made --set experiments=2 --set epochs=4 --reruns 2"],
    "compare": [
        f"compare tiny.toml --pairs 2 --store one {QUICK}",
        f"compare tiny.toml --arm plain: --arm few:retention=0.04 --pairs 2 --store one {QUICK}",
    ],
    "methods": ["methods one", "methods seen"],
    "approximations": ["approximations two"],
    "variants": [f"variants tiny.toml --vary sampling=reshuffled --pairs 2 --store one {QUICK}"],
    "controlled": [f"controlled small.toml --runs 2 --store bench {QUICK}"],
    "bench preset": ["bench preset", "bench preset glyphs"],
    "bench sample": ["bench sample glyphs", "bench sample small.toml"],
    "bench plan": ["bench plan small.toml --no-estimate --store bench"],
    "bench run": [f"bench run small.toml --store bench {QUICK}"],
    "bench status": ["bench status small.toml --store bench"],
    "bench retry": ["bench retry small.toml --failed --store bench --threads 1"],
    "data list": ["data list"],
    "data get": ["data get cifar100 --from tiny.tar.gz"],
    "data add": ["data add birds birds --size 16 --test-share 0.4"],
    "data check": ["data check squares -o sheet.png"],
    "data remove": ["data remove birds"],
    "store list": ["store list one", "store list seen"],
    "store verify": ["store verify one"],
    "store gc": ["store gc one", "store gc one --all"],
    "store export": ["store export one -o one.tar"],
    "store import": ["store import one.tar other"],
    "store sql": ["store sql 'SELECT * FROM classes LIMIT 5' one", "store sql 'SELECT * FROM observed' seen"],
}
ORDER = ("run", "simulate", "replication", "bench run", "store export", "data add")  # what others look at comes first


def all_commands() -> set[str]:
    root: Any = get_command(app)
    groups = {"": root, **{name: one for name, one in root.commands.items() if hasattr(one, "commands")}}
    return {f"{group} {name}".strip() for group, one in groups.items() for name in one.commands} - set(groups)


@pytest.fixture(scope="module")
def printed(squares: Path, tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], str]]:
    """What a command prints on a terminal so wide, in a folder with all that commands look at."""
    folder = tmp_path_factory.mktemp("eighty")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FORGETSCOPE_CACHE", str(shutil.copytree(squares, folder / "cache")))
        small = {"image_size": 8, "sequence": ((0, 1), (2, 3), (4, 5)), "epochs": 2, "first_batch": 16, "batch": 16}
        Path("tiny.toml").write_text(RunSpec(**{**TINY, **small, "dataset": "squares", "retention": 0.25}).to_toml())
        Path("small.toml").write_text(BenchmarkSpec(**{**SMALL, "experiments": 1, "increments": [0.25]}).to_toml())
        observe(Store("seen"))
        shutil.copytree(tiny_store, "mixed")
        observe(Store("mixed"))
        write_tar(folder / "tiny.tar.gz", {f"{name}.bin": binary(name) for name in SPLITS})
        for name in ("wren", "owl"):
            Path("birds", name).mkdir(parents=True)
            for i in range(5):
                Image.fromarray(np.full((20, 30, 3), 40 * i, np.uint8)).save(f"birds/{name}/{i}.png")
        patch.setattr(forgetscope, "run", _without_demo(forgetscope.run, tiny_store))

        def invoke(command: str, width: int) -> str:
            shutil.rmtree("cache/birds", ignore_errors=True) if command.startswith("data add") else None
            result = CliRunner().invoke(app, command, env={"COLUMNS": str(width)}, prog_name="forgetscope")
            assert result.exit_code == 0, f"{command}: {result.output}"
            return result.stdout + (result.stderr if command.startswith("store sql") else "")

        for name in ORDER:
            for command in COMMANDS[name]:
                invoke(command, 10_000)
        yield invoke


def _without_demo(run: Callable[..., object], store: Path) -> Callable[..., object]:
    """The demo shows an experiment that is there, for it takes a minute to train its own."""

    def either(wanted: object, where: object, **options: object) -> object:
        return forgetscope.open_experiment(store) if str(where) == "forgetscope-demo" else run(wanted, where, **options)

    return either


def words(text: str) -> set[str]:
    """With any digit as another: times and sizes differ from one time to the next."""
    return {re.sub(r"\d+", "0", word) for word in text.split()}


def test_no_command_is_left_out() -> None:
    assert set(COMMANDS) == all_commands()


@pytest.mark.slow  # all of them together: a minute and a half
@pytest.mark.parametrize("command", [command for every in COMMANDS.values() for command in every])
def test_a_command_fits_80_columns_without_a_broken_word_and_ends_with_the_next_one(
    command: str, printed: Callable[[str, int], str]
) -> None:
    if command == "data remove birds":
        printed(COMMANDS["data add"][0], COLUMNS)
    if command.startswith("analyse") and "--out" in command:
        printed(command, COLUMNS)  # so that both times files take the place of others, which is said
    narrow = printed(command, COLUMNS)
    if command == "data remove birds":
        printed(COMMANDS["data add"][0], COLUMNS)
    wide = printed(command, 10_000)
    assert words(narrow) <= words(wide), sorted(words(narrow) - words(wide))
    lines = narrow.rstrip().split("\n")
    long = [line for line in lines if len(line) > COLUMNS and not NEXT.match(line) and not whole(line)]
    assert [line for line in long if not line.startswith(("#", "sequence = "))] == []
    assert any(line.removeprefix("# ").startswith("Next: ") for line in lines[-4:]), lines[-4:]


def whole(line: str) -> bool:
    """One word or one command in backticks, which are there to be copied."""
    return len(line.split()) == 1 or bool(re.fullmatch(r"\s*`[^`]+`\S*", line))


def test_an_empty_cache_says_how_to_get_data(empty_cache: Path) -> None:
    told = CliRunner().invoke(app, ["data", "list"], env={"COLUMNS": "80"}).stdout
    assert "None yet." in told
    assert "forgetscope data get cifar100" in told
    assert "forgetscope data add" in told


def test_show_names_the_experiment_that_it_shows(tiny_store: Path) -> None:
    told = CliRunner().invoke(app, ["show", str(tiny_store)], env={"COLUMNS": "80"}).stdout
    id = Store(tiny_store).experiments()[0][-1].id[:8]
    assert f"The classes above are of experiment {id}" in " ".join(told.split())
