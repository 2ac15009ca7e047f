"""Bars of the main metrics and curves of the trainings, drawn with matplotlib if it is there."""

from __future__ import annotations

import math
from pathlib import Path

from persona_agents.scripts.picture import cjk_font
from persona_agents.table.render import Table
from persona_agents.text import has_cjk

BARS = ("corpus_bleu_4", "char_f1", "bert_score_f", "p_cover", "p_em")


def available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _figure(width: float, height: float):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _text(labels) -> dict:
    """Keywords for texts: a font with Chinese characters if some label needs one."""
    font = cjk_font() if any(map(has_cjk, labels)) else None
    return {"family": [font, "sans-serif"]} if font else {}


def bars(table: Table, path: Path) -> bool:
    """A panel for each main metric, a bar for each row; lines are deviations over seeds.

    :return: False if the table has none of these metrics, and nothing was drawn
    """
    columns = [column for column in table.columns_with_values() if column.key in BARS]
    if not columns:
        return False
    labels = [row.label for row in table.rows]
    figure, text = _figure(2.6 * len(columns) + 1.5, 0.32 * len(labels) + 1.2), _text(labels)
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    places = range(len(labels))
    for axes, column in zip(panels, columns):
        cells = [row.cells.get(column.key) for row in table.rows]
        means = [_scaled(cell and cell.mean, column.scale) for cell in cells]
        spread = [_scaled(cell and cell.deviation, column.scale) for cell in cells]
        colours = ["tab:blue" if row.ranked else "lightgrey" for row in table.rows]
        axes.barh(places, means, xerr=spread, color=colours, capsize=2)
        axes.set_title(column.title)
    panels[0].set_yticks(list(places), labels, **text)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)  # the first row on top, rows without a value too
    figure.suptitle(table.caption, fontsize="medium", **text)
    figure.savefig(path)
    return True


def _scaled(value: float | None, scale: float) -> float:
    """What is drawn of a value; nothing (NaN) of none."""
    return math.nan if value is None or not math.isfinite(value) else value * scale


def curves(trainings: dict[str, list[list[dict]]], title: str, path: Path) -> bool:
    """
    Perplexity on the valid split over epochs, one colour a system, one line a seed.

    :param trainings: by the system's label, the validations of each of its trainings
    :return: False if no training was validated, and nothing was drawn
    """
    from matplotlib import ticker

    drawn = {label: [points for points in seeds if points] for label, seeds in trainings.items()}
    drawn = {label: seeds for label, seeds in drawn.items() if seeds}
    if not drawn:
        return False
    figure, text = _figure(7, 4.2), _text([title, *drawn])
    axes = figure.subplots()
    for number, (label, seeds) in enumerate(drawn.items()):
        for i, points in enumerate(seeds):
            axes.plot(
                [point["epochs"] for point in points],
                [point["ppl"] for point in points],
                color=f"C{number % 10}",
                linestyle="-" if number < 10 else "--",
                marker=".",
                label=label if i == 0 else None,
            )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel("epochs")
    axes.set_ylabel("perplexity, valid split")
    axes.legend(fontsize="small", prop={"size": "small", **text})
    axes.set_title(title, **text)
    figure.savefig(path)
    return True
