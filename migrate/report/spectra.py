"""Singular values of several stitches as lines on a logarithmic scale, an inline picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

from migrate.report.heat_map import shorten

_WIDTH, _HEIGHT = 640, 240
_LEFT, _TOP, _BOTTOM, _RIGHT = 44, 12, 36, 150
_DECADES = 4
_POINTS = 160
_COLOURS = 6
_DASHES = ("", "6 3", "2 3")


def spectra(series: Mapping[str, Sequence[float]]) -> str:
    """An SVG element with a line for each series, its values in units of its first; what is below 10⁻⁴ is left out."""
    most = max(map(len, series.values()))
    names = "".join(_key(place, name) for place, name in enumerate(series))
    lines = "".join(_line(place, values, most) for place, values in enumerate(series.values()))
    height = max(_HEIGHT, _TOP + 18 * len(series) + _BOTTOM)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" style="max-width:{_WIDTH + 160}px" role="img" '
        f'aria-label="Singular values of the stitches">{_axes(most)}{lines}{names}</svg>'
    )


def _x(place: float, most: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (place - 1) / max(most - 1, 1)


def _y(share: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * min(-log10(share) / _DECADES, 1)


def _axes(most: int) -> str:
    right, bottom = _x(most, most), _y(10**-_DECADES)
    parts = []
    for decade in range(_DECADES + 1):
        y = _y(10.0**-decade)
        label = "1" if decade == 0 else f"{10.0**-decade:g}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="muted" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for place in sorted({1, (most + 1) // 2, most}):
        x = _x(place, most)
        parts.append(f'<text class="muted" x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{place}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="muted" x="{middle:.1f}" y="{bottom + 31:.1f}" text-anchor="middle">'
        "singular value, by rank</text>"
    )
    return "".join(parts)


def _style(place: int) -> str:
    dash = _DASHES[place // _COLOURS % len(_DASHES)]
    return f'stroke="var(--series-{place % _COLOURS + 1})" stroke-width="2"' + (
        f' stroke-dasharray="{dash}"' if dash else ""
    )


def _line(place: int, values: Sequence[float], most: int) -> str:
    step = max(len(values) // _POINTS, 1)
    shares = [(rank, value / values[0]) for rank, value in enumerate(values, 1) if values[0] > 0]
    points = [(rank, share) for rank, share in shares if share >= 10**-_DECADES]
    kept = [*points[::step], *points[-1:]]
    path = " ".join(f"{_x(rank, most):.1f},{_y(share):.1f}" for rank, share in kept)
    return f'<polyline points="{path}" fill="none" {_style(place)}/>'


def _key(place: int, name: str) -> str:
    x, y = _WIDTH - _RIGHT + 14, _TOP + 6 + 18 * place
    return (
        f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" {_style(place)}/>'
        f'<text x="{x + 24}" y="{y + 4}">{escape(shorten(name, 18))}</text>'
    )
