"""Markdown, LaTeX and CSV of a table whose numbers are set by hand."""

from __future__ import annotations

import csv
import io
import math

import pytest

from persona_agents.table import render
from persona_agents.table.render import Cell, Column, Row, Table

COLUMNS = (
    Column("up", "F1", 100, 1),
    Column("down", "ppl", 1, 1, "low"),
    Column("never", "nothing"),
    Column("length", "length", 1, 1, None),
)


def table(*rows, notes=("a note",)):
    return Table("t", "Caption & more", COLUMNS, rows, notes)


ROWS = (
    Row("gold", {"up": Cell(1.0), "length": Cell(9.0)}, 0, ranked=False),
    Row("系统|1", {"up": Cell(0.5, 0.0123, "†"), "down": Cell(10.0, 0.5), "length": Cell(7)}, 2, group=1),
    Row("w/o <x>", {"up": Cell(0.4996), "down": Cell(12.0), "length": Cell(8)}, 1, group=1),
    Row("failed_1", {}, 0, group=1),
)  # fmt: skip


class TestBest:
    def test_high_low_and_none(self):
        found = [render.best(table(*ROWS), column) for column in COLUMNS]
        assert found == [{1, 2}, {1}, set(), set()], "50.0 and 49.96 show the same number"

    def test_rows_that_are_not_ranked_do_not_count(self):
        assert 0 not in render.best(table(*ROWS), COLUMNS[0])

    def test_a_single_row_is_no_best(self):
        assert render.best(table(*ROWS[:2]), COLUMNS[0]) == set()

    def test_infinite_and_not_a_number_never_win(self):
        rows = [Row(str(v), {"down": Cell(v)}, 1) for v in (math.nan, -math.inf, 3.0, 4.0)]
        assert render.best(table(*rows), COLUMNS[1]) == {2}


def test_markdown():
    lines = render.markdown(table(*ROWS)).splitlines()
    assert lines[0] == "**Caption & more**"
    assert lines[2] == "|  | F1 | ppl | length | seeds |", "a column without values is left out"
    assert lines[4] == "| *gold* | 100.0 | – | 9.0 | – |"
    assert lines[5] == "| 系统\\|1 | **50.0 ± 1.2**† | **10.0 ± 0.5** | 7.0 | 2 |"
    assert lines[6] == "| w/o &lt;x> | **50.0** | 12.0 | 8.0 | 1 |"
    assert lines[7] == "| failed_1 | – | – | – | – |"
    assert lines[-1] == "- a note"


def test_latex():
    text = render.latex(table(*ROWS))
    assert r"\caption{Caption \& more}" in text
    assert (
        r"系统|1 & \textbf{50.0 $\pm$ 1.2}$\dagger$ & \textbf{10.0 $\pm$ 0.5} & 7.0 & 2 \\" in text
    )
    assert r"failed\_1 & -- & -- & -- & -- \\" in text
    assert text.count(r"\midrule") == 2, "after the heading, and between anchors and systems"
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    "text, wanted",
    [("50 % & $5_#", r"50 \% \& \$5\_\#"), (r"a\b{c}", r"a\textbackslash{}b\{c\}"), ("你好^~", r"你好\textasciicircum{}\textasciitilde{}")],
)  # fmt: skip
def test_tex(text, wanted):
    assert render.tex(text) == wanted


def test_csv_is_not_rounded():
    rows = list(csv.DictReader(io.StringIO(render.csv_text(table(*ROWS)))))
    assert rows[1]["system"] == "系统|1" and rows[1]["seeds"] == "2"
    assert (rows[1]["up"], rows[1]["up_deviation"]) == ("0.5", "0.0123")
    assert rows[2]["up"] == "0.4996" and rows[2]["up_deviation"] == ""
    assert rows[3]["up"] == ""


def test_no_minus_zero():
    text = render.markdown(table(Row("x", {"up": Cell(-0.00001)}, 1)))
    assert "| 0.0 |" in text
