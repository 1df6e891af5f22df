"""How a number, an interval and a missing value are written, for every writer; the pages' `core.js` does the same.

A minus sign is one, what rounds to zero has no sign, an interval is `(0.43, 0.59)`, and a dash stands for what is missing. An
interval of no width is not written: where no value differs from another, it cannot be said how sure their mean is."""

import math
from collections.abc import Mapping
from typing import ClassVar

from forgetscope.analysis.statistics.estimates import Estimate

RAISED = str.maketrans("−0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "ρ": r"$\rho$",
    "ₚ": "$_p$",
    "−": "$-$",
    "–": "--",
    "’": "'",
    "\u202f": r"\,",
}


class Notation:
    """Plain text."""

    missing = "–"
    symbols: ClassVar[Mapping[str, str]] = {
        "rho": "ρ",
        "rho_p": "ρₚ",
        "rho_p_SIC": "ρₚ given SIC",
        "rho_p_CIC": "ρₚ given CIC",
        "rho_p_all": "ρₚ given all others",
        "rho-rho_p": "ρ − ρₚ",
        "mae": "MAE",
        "value": "",
        "F": "F",
        "p": "p",
        "eta2p": "η²ₚ",
    }

    def text(self, text: str) -> str:
        """Text of any origin, to be read as it is."""
        return text

    strong = text  # nothing is

    def symbol(self, statistic: str) -> str:
        """Of a statistic, or of a column of an ANOVA; empty for a plain value."""
        return self.symbols.get(statistic, self.text(statistic))

    def number(self, value: float, decimals: int = 2, *, signed: bool = False) -> str:
        """`0.51`, or with its sign `+0.51`."""
        text = f"{value:{'+' if signed else ''}.{decimals}f}"
        return self._known(value, text.lstrip("+-") if float(text) == 0 else text)

    def significant(self, value: float, digits: int = 3) -> str:
        """As many digits as given, wherever they begin."""
        return self._known(value, f"{value:.{digits}g}")

    def percent(self, share: float) -> str:
        whole = f"{100 * share:.0f}"
        return self.missing if math.isnan(share) else self.text(f"{whole.replace('-', '' if whole == '-0' else '−')}\u202f%")

    def interval(self, low: float, high: float, decimals: int = 2, *, signed: bool = False) -> str:
        """`(0.43, 0.59)`; nothing where an end is unknown, or both are the same."""
        if not low < high:
            return ""
        return f"({self.number(low, decimals, signed=signed)}, {self.number(high, decimals, signed=signed)})"

    def estimate(self, estimate: Estimate, decimals: int = 2, *, signed: bool = False) -> str:
        """`0.51 (0.43, 0.59)`. signed: of a difference. A mean of two has no interval: it would leave what is possible."""
        if estimate.n == 2 and not signed:
            return self.number(estimate.value, decimals)
        interval = self.interval(estimate.low, estimate.high, decimals, signed=signed)
        value = self.number(estimate.value, decimals, signed=signed)
        return f"{value} {interval}" if interval and not math.isnan(estimate.value) else value

    def spread(self, mean: float, sd: float) -> str:
        """`0.51 ± 0.12`, or the mean alone."""
        return self.number(mean) + ("" if math.isnan(sd) else f" {self.text('±')} {self.number(sd)}")

    def stacked(self, above: str, below: str) -> str:
        """A cell of two lines, the second one small."""
        return f"{above}\n{below}"

    def probability(self, p: float) -> str:
        if math.isnan(p):
            return self.missing
        mantissa, exponent = f"{p:.2e}".split("e")
        return self.mathematics(mantissa) if exponent == "+00" else self.power(mantissa, int(exponent))

    def power(self, mantissa: str, exponent: int) -> str:
        """Times a power of ten."""
        return f"{mantissa} · 10{self.mathematics(str(exponent)).translate(RAISED)}"

    def mathematics(self, text: str) -> str:
        return text.replace("-", "−")

    def _known(self, value: float, text: str) -> str:
        return self.missing if math.isnan(value) else self.mathematics(text)


class LatexNotation(Notation):
    missing = "--"
    symbols: ClassVar[Mapping[str, str]] = {
        "rho": r"$\rho$",
        "rho_p": r"$\rho_p$",
        "rho_p_SIC": r"$\rho_p^{\mathrm{SIC}}$",
        "rho_p_CIC": r"$\rho_p^{\mathrm{CIC}}$",
        "rho_p_all": r"$\rho_p^{\mathrm{all}}$",
        "rho-rho_p": r"$\rho - \rho_p$",
        "mae": "MAE",
        "value": "",
        "F": "$F$",
        "p": "$p$",
        "eta2p": r"$\eta_p^2$",
    }

    def text(self, text: str) -> str:
        """A character that LaTeX's fonts may lack is named by its number."""
        return "".join(SPECIAL.get(c, c if c.isascii() and c.isprintable() else f"U+{ord(c):04X}") for c in text)

    def strong(self, text: str) -> str:
        return f"\\textbf{{{text}}}"

    def stacked(self, above: str, below: str) -> str:
        return f"\\begin{{tabular}}{{@{{}}c@{{}}}}{above} \\\\[-3pt] {{\\tiny {below}}}\\end{{tabular}}"

    def power(self, mantissa: str, exponent: int) -> str:
        return f"${mantissa} \\cdot 10^{{{exponent}}}$"

    def mathematics(self, text: str) -> str:
        return f"${text}$"


PLAIN, LATEX = Notation(), LatexNotation()
