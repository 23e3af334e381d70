"""Draws a benchmark's samples: every sample a dot, the median a line."""

from __future__ import annotations

import statistics

from benchmarks.form import Result


def draw(name: str, result: Result, path: str) -> None:
    """Writes the picture; its kind follows from the path's ending. Series that share a unit share an axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    units: dict[str, list[str]] = {}
    for series in result.samples:
        units.setdefault(_unit(series), []).append(series)
    figure, rows = pyplot.subplots(
        len(units),
        1,
        figsize=(9, 1.1 + sum(0.5 + 0.45 * len(group) for group in units.values())),
        squeeze=False,
        gridspec_kw={"height_ratios": [0.5 + 0.45 * len(group) for group in units.values()]},
        layout="constrained",
    )
    figure.suptitle(name)
    for axes, (unit, group) in zip(rows[:, 0], units.items(), strict=True):
        for row, series in enumerate(reversed(group)):
            values = list(result.samples[series])
            offsets = [row + 0.22 * ((i * 0.618034) % 1 - 0.5) for i in range(len(values))]
            axes.plot(values, offsets, "o", markersize=3, alpha=0.45, color=f"C{row}", markeredgewidth=0)
            median = statistics.median(values)
            axes.plot([median, median], [row - 0.3, row + 0.3], "-", color="black", linewidth=1.5)
            axes.annotate(f"{median:.4g}", (median, row + 0.32), ha="center", va="bottom", fontsize=8)
        axes.set_yticks(range(len(group)), list(reversed(group)))
        axes.set_ylim(-0.6, len(group) - 0.3)
        axes.set_xlabel(unit)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if all(value > 0 for series in group for value in result.samples[series]) and unit == "µs":
            axes.set_xscale("log")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _unit(series: str) -> str:
    if series.endswith("_us"):
        return "µs"
    if series.endswith("_per_s"):
        return "tokens/s"
    return "ratio" if series.endswith("ratio") or series.startswith("kept") else "value"
