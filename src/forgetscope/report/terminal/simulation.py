"""What a simulation wrote, and the truth behind it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from forgetscope.benchmark.simulation import Simulated
from forgetscope.benchmark.truth import Truth
from forgetscope.report.terminal.tables import make_table, titled
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.quantities import counted


def simulation_document(result: Simulated, seed: int, truth: Truth) -> dict[str, Any]:
    return {
        **asdict(result),
        "seed": seed,
        "truth": truth.model_dump(),
        "expected_correlations": truth.expected_correlations(),
    }


def simulation_view(result: Simulated, store: str, seed: int, truth: Truth) -> RenderableType:
    table = make_table(("truth",), ("value",))
    table.add_column("")
    for name, info in Truth.model_fields.items():
        table.add_row(name, f"{getattr(truth, name):g}", info.description)
    expected = ", ".join(
        f"{name.upper().replace('_', '-')} {PLAIN.number(value)}" for name, value in truth.expected_correlations().items()
    )
    written = f"{counted(result.written, 'step')} written to {store}, {result.present} were there already"
    damaged = f", {result.quarantined} damaged ones are in quarantine" if result.quarantined else ""
    return titled(
        f"Simulated with seed {seed}: {written}{damaged}",
        table,
        f"{counted(result.reruns, 'step')} of these repeat another with other new classes",
        f"Correlation with forgetting that follows: {expected}",
        f"Plans: {', '.join(result.plans)}",
    )
