"""Sizes and times in units to read. Imports next to nothing, so that commands which only plan or look answer at once."""

from forgetscope.characters import counted


def size_text(size: int) -> str:
    """A size to read: 12 bytes, 3.4 kB, 1.2 MB, 800 MB, 12 GB."""
    if size < 1000:
        return counted(size, "byte")
    value, unit = (size / 1e3, "kB") if size < 1e6 else (size / 1e6, "MB") if size < 1e10 else (size / 1e9, "GB")
    return f"{value:,.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def duration(seconds: float) -> str:
    """A time to read: 40 seconds, 12 minutes, 3.4 hours, 12 days."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            value = seconds / length
            return f"{value:.1f} {unit}" if value < 10 and unit != "minutes" else f"{value:,.0f} {unit}"
    return counted(round(seconds), "second")
