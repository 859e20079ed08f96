"""Numbers and times as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollbook.times import from_ns

if TYPE_CHECKING:
    from rollbook.metrics.outliers import Threshold

__all__ = ["amount", "clock_span", "duration", "number", "ratio_text", "times"]

BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TIMES = ("ns", "us", "ms", "s")
SHORT_NS = 300 * 10**9
RATIO_FROM = 0.5  # of the negligible difference: a multiple of a smaller value means nothing


def number(value: float) -> str:
    """Up to three significant digits: `0.0041`, `0.41`, `9.1`, `27`, `1234`."""
    size = abs(value)
    if 0 < size < 0.0995:
        return f"{value:.2g}"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def amount(value: float, unit: str) -> str:
    """A value with its unit: `1.5 GiB/s`, `34 %`, `9306/s`."""
    if unit.startswith("B"):
        power = 0
        while abs(value) >= 1023.95 and power < len(BYTES) - 1:
            value /= 1024
            power += 1
        return f"{number(value)} {BYTES[power]}{unit[1:]}"
    if unit in TIMES:
        scale = TIMES.index(unit)
        while abs(value) >= 1000 and scale < len(TIMES) - 1:
            value, scale = value / 1000, scale + 1
        return f"{number(value)} {TIMES[scale]}"
    if unit == "1/s":
        factor, prefix = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k") if abs(value) >= 1e4 else (1.0, "")
        return f"{number(value / factor)}{prefix}/s"
    return f"{number(value)} {unit}".rstrip()


def ratio_text(value: float, usual: float, threshold: Threshold) -> str:
    """The value as a multiple of the usual one: `9.1 ×`; empty if the usual value is close to zero."""
    if abs(usual) < RATIO_FROM * threshold.negligible:
        return ""
    return times(value / usual)


def duration(seconds: float) -> str:
    """A length of time in its two largest units: `0.25 s`, `12.4 s`, `3 min 5 s`, `1 d 1 h`."""
    if seconds < 59.95:
        return f"{number(seconds)} s"
    whole = int(seconds + 0.5)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def times(ratio: float) -> str:
    """A multiple: `0.41 ×`, `9.1 ×`, `27 ×`."""
    return f"{ratio:.2f} ×" if ratio < 1 else f"{ratio:.1f} ×" if ratio < 10 else f"{ratio:.0f} ×"


def clock_span(start_ns: int, end_ns: int) -> str:
    """`12:04–12:19`, in UTC; with seconds if it is short."""
    form = "%H:%M:%S" if end_ns - start_ns < SHORT_NS else "%H:%M"
    return "–".join(from_ns(ns).strftime(form) for ns in (start_ns, end_ns))
