"""A table as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """
    A column of numbers.

    Attributes:
        key: name of the value that it shows.
        title: its heading.
        scale: what values are multiplied with to be shown.
        digits: after the decimal point.
        best: 'high' or 'low', which value is marked; None: neither is better.
    """

    key: str
    title: str
    scale: float = 1.0
    digits: int = 2
    best: str | None = "high"


@dataclass(frozen=True)
class Cell:
    """
    A value of a row.

    Attributes:
        mean: over the seeds; None where there is no value.
        deviation: standard deviation over the seeds; None for a single one.
        marks: signs that follow the number.
    """

    mean: float | None
    deviation: float | None = None
    marks: str = ""


@dataclass(frozen=True)
class Row:
    """
    A row of a table.

    Attributes:
        label: what stands in its first column.
        cells: values by the columns' keys.
        seeds: how many trainings stand behind it; 0 for a row without a model.
        ranked: whether it competes for the best value.
        group: rows of different groups are kept apart by a line.
    """

    label: str
    cells: dict[str, Cell]
    seeds: int
    ranked: bool = True
    group: int = 0


@dataclass(frozen=True)
class Table:
    """A table with its caption, and notes that stand below it."""

    name: str  # of its files
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def columns_with_values(self) -> list[Column]:
        """The columns in which some row has a value."""
        return [c for c in self.columns if any(c.key in row.cells for row in self.rows)]


def _shown(column: Column, value: float) -> str:
    text = f"{value * column.scale:.{column.digits}f}"
    return text[1:] if text.startswith("-") and not float(text) else text  # no -0.00


def best(table: Table, column: Column) -> set[int]:
    """The numbers of the rows that show the best value of a column; more than one if they tie."""
    if column.best is None:
        return set()
    shown = {
        i: float(_shown(column, cell.mean))
        for i, row in enumerate(table.rows)
        if row.ranked and (cell := row.cells.get(column.key)) and cell.mean is not None
        if math.isfinite(cell.mean)
    }
    if len(shown) < 2:
        return set()
    wanted = (max if column.best == "high" else min)(shown.values())
    return {i for i, value in shown.items() if value == wanted}


def _number(column: Column, cell: Cell | None, plus_minus: str) -> str:
    if cell is None or cell.mean is None or math.isnan(cell.mean):
        return "–"
    text = "inf" if math.isinf(cell.mean) else _shown(column, cell.mean)
    if cell.deviation is not None and math.isfinite(cell.deviation):
        text += f" {plus_minus} {_shown(column, cell.deviation)}"
    return text


def _seeds(table: Table, cell: str) -> list[str]:
    """The cell of the last column, which tells the seeds; none in a table that is about none."""
    return [cell] if any(row.seeds for row in table.rows) else []


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, with caption and notes."""
    columns = table.columns_with_values()
    bests = {column.key: best(table, column) for column in columns}
    lines = [
        f"**{table.caption}**",
        "",
        "| " + " | ".join(["", *(_md(c.title) for c in columns), *_seeds(table, "seeds")]) + " |",
        "|---" * (len(columns) + 1 + len(_seeds(table, ""))) + "|",
    ]
    for i, row in enumerate(table.rows):
        cells = []
        for column in columns:
            cell = row.cells.get(column.key)
            text = _number(column, cell, "±")
            text = f"**{text}**" if i in bests[column.key] else text
            cells.append(text + (cell.marks if cell else ""))
        label = _md(row.label) if row.ranked else f"*{_md(row.label)}*"
        lines.append(
            "| " + " | ".join([label, *cells, *_seeds(table, str(row.seeds or "–"))]) + " |"
        )
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]).rstrip() + "\n"


def _md(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def tex(text: str) -> str:
    """Text with LaTeX's special characters written so that they show as they are."""
    return "".join(_LATEX.get(character, character) for character in text)


def latex(table: Table) -> str:
    """The table for LaTeX with booktabs; Chinese needs xelatex or lualatex and a font for it."""
    columns = table.columns_with_values()
    bests = {column.key: best(table, column) for column in columns}
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(columns) + len(_seeds(table, '')))}}}",
        r"\toprule",
        " & ".join(["", *(tex(c.title) for c in columns), *_seeds(table, "seeds")]) + r" \\",
    ]
    group = None
    for i, row in enumerate(table.rows):
        if row.group != group:
            lines.append(r"\midrule")
            group = row.group
        cells = []
        for column in columns:
            cell = row.cells.get(column.key)
            text = tex(_number(column, cell, "±"))
            text = rf"\textbf{{{text}}}" if i in bests[column.key] else text
            cells.append(text + (tex(cell.marks) if cell else ""))
        label = tex(row.label) if row.ranked else rf"\textit{{{tex(row.label)}}}"
        lines.append(" & ".join([label, *cells, *_seeds(table, str(row.seeds or "--"))]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {tex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def csv_text(table: Table) -> str:
    """The table's numbers unrounded and unscaled, two columns a value: mean and deviation."""
    columns = table.columns_with_values()
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(
        ["system", "seeds", *(f"{c.key}{part}" for c in columns for part in ("", "_deviation"))]
    )
    for row in table.rows:
        values = []
        for column in columns:
            cell = row.cells.get(column.key) or Cell(None)
            values += ["" if v is None else repr(v) for v in (cell.mean, cell.deviation)]
        writer.writerow([row.label, row.seeds, *values])
    return output.getvalue()
