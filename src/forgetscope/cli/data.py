"""`forgetscope data`: get, add, look at and remove data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import forgetscope as fs
from forgetscope.cli import options as option
from forgetscope.cli.console import command_group, echo, note, onward, print_json, print_view
from forgetscope.errors import DataError
from forgetscope.threads import available_cores

app = command_group("Get, add, look at and remove data sets.")

NameArgument = Annotated[str, typer.Argument(help="The data set's name.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Processes that decode images. Default: one per core.")
]


@app.command("list", epilog="Example: forgetscope data list")
def list_sets(as_json: option.JsonOfOne = False) -> None:
    """List the data sets that are here, and those that can be fetched."""
    from forgetscope.data.cache import cache_folder
    from forgetscope.data.known import KNOWN
    from forgetscope.data.library import described, disk_bytes, leftovers
    from forgetscope.report.terminal.experiments import data_view

    here, damaged = [], []
    for name in described():
        try:
            here.append((fs.load_data(name, verify=False), disk_bytes(name)))
        except DataError as error:  # one damaged set must not hide the others
            damaged.append(str(error))
    known = {name: known.summary for name, known in KNOWN.items() if name not in described()}
    if as_json:
        sets = [_facts(data) | {"bytes": size} for data, size in here]
        facts = {"cache": str(cache_folder()), "here": sets, "known": known, "embedded": ["glyphs"], "damaged": damaged}
        print_json(facts | {"left": [{"path": str(path), "bytes": size, "remark": text} for path, size, text in leftovers()]})
        return
    print_view(data_view(here, known, cache_folder()))
    for text in damaged:
        echo(text)
    for path, size, remark in leftovers():
        echo(f"{path} ({size / 1e6:,.1f} MB): {remark}")
    fetch = [("data", "get", name) for name in known][:1]
    onward(*fetch, ("data", "check", here[0][0].name) if here else ("data", "add", "birds", "~/birds", "--size", "64"))


@app.command(epilog="Example: forgetscope data get cifar100 --from ~/Downloads/cifar-100-python.tar.gz")
def get(
    name: Annotated[str, typer.Argument(help="cifar100 or tiny-imagenet.")],
    origin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PATH-or-URL", help="A local file or folder, or a mirror. Default: the official address."
        ),
    ] = None,
    workers: WorkersOption = None,
) -> None:
    """Fetch a public data set and convert it. An interrupted download goes on where it stopped."""
    from forgetscope.progress import counting

    with counting() as progress:
        data = fs.get_data(name, origin, workers=workers or available_cores(), progress=progress, note=note)
    _end_of_adding(data, name)


@app.command(epilog="Example: forgetscope data add birds ~/birds --size 64 --test-share 0.2")
def add(
    name: NameArgument,
    path: Annotated[
        Path, typer.Argument(help="train/<class>/* and test/<class>/* folders, <class>/* folders, or a .npz file.")
    ],
    test_share: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.9, help="Hold out this share of each class for testing, where there is no test/."),
    ] = None,
    size: Annotated[int | None, typer.Option(min=8, max=512, help="Bring all images to this many pixels squared.")] = None,
    fit: Annotated[Literal["crop", "stretch"], typer.Option(help="How, where an image is not square.")] = "crop",
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that cannot be read, and say which.")
    ] = False,
    workers: WorkersOption = None,
) -> None:
    """Convert your own images."""
    from forgetscope.progress import counting

    with counting() as progress:
        data = fs.add_data(
            name,
            path,
            test_share=test_share,
            size=size,
            fit=fit,
            skip_broken=skip_broken,
            workers=workers or available_cores(),
            progress=progress,
            note=note,
        )
    _end_of_adding(data, name)


@app.command(epilog="Example: forgetscope data check cifar100 -o sheet.png")
def check(
    name: NameArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to put the contact sheet. Default: NAME.png here.")
    ] = None,
    as_json: option.JsonOfOne = False,
) -> None:
    """Recompute a data set's digest, count its images per class, and make a contact sheet to look at."""
    from PIL.PngImagePlugin import PngInfo

    from forgetscope.data.images import contact_sheet
    from forgetscope.data.library import check_data
    from forgetscope.errors import WriteError
    from forgetscope.outputs import SHEET, refuse_foreign_file

    sheet, mark = output or Path(f"{name}.png"), PngInfo()
    data = check_data(name)
    facts = _facts(data)
    if not as_json:  # what was found does not depend on where the sheet can be put
        train, test = ([row[part] for row in facts["images_per_class"].values()] for part in ("train", "test"))
        echo(f"{data!r}: pixels and labels are as they were (digest {data.digest[:12]})")
        echo(f"Images per class: {_range(train)} to learn from, {_range(test)} to test on")
    refuse_foreign_file(sheet, SHEET, "contact sheet")
    mark.add_text("Software", "forgetscope")
    try:
        contact_sheet(data).save(sheet, pnginfo=mark)
    except (OSError, ValueError) as error:
        raise WriteError(f"Cannot write the contact sheet to {sheet}: {error}. Name another .png file with -o.") from None
    if as_json:
        print_json(facts | {"contact_sheet": str(sheet.resolve())})
    else:
        onward(("run", "my.toml", "--set", f"dataset={name}"), found=f"Contact sheet: {sheet.resolve()}")


@app.command(epilog="Example: forgetscope data remove birds")
def remove(name: NameArgument) -> None:
    """Delete a data set from the cache. Results are not touched."""
    from forgetscope.data.library import remove_data

    remove_data(name)
    onward(("data", "list"), found=f"Removed {name}.")


def _end_of_adding(data: fs.DataSet, name: str) -> None:
    commands = ("data", "check", name), ("config", "--set", f"dataset={name}")
    onward(*commands, found=f'{data!r} is ready: dataset = "{name}"')


def _facts(data: fs.DataSet) -> dict[str, Any]:
    import numpy as np

    train, test = (np.bincount(part.labels, minlength=len(data.classes)).tolist() for part in (data.train, data.test))
    return {
        "name": data.name,
        "digest": data.digest,
        "shape": list(data.shape),
        "images_per_class": {label: {"train": a, "test": b} for label, a, b in zip(data.classes, train, test, strict=True)},
    }


def _range(counts: list[int]) -> str:
    return f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
