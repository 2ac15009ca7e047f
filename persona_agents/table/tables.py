"""The paper's Tables 2, 3 and 6 from results, and two more that its numbers need."""

from __future__ import annotations

from persona_agents.table.config import Task, slug
from persona_agents.table.render import Cell, Column, Row, Table
from persona_agents.table.results import Results, SetResult, differences

SIGNIFICANT = 0.05
MAIN = (
    *(Column(f"corpus_bleu_{n}", f"BLEU-{n}") for n in (1, 2, 3, 4)),
    Column("char_f1", "F1", 100),
    Column("bert_score_f", "BERTScore", 1, 3),
    Column("p_cover", "P-Cover", 100),
    Column("p_em", "P-EM", 100),
)
BESIDE = (
    Column("word_f1", "word F1", 100),
    Column("c_score", "C-score", 1, 3),
    Column("ppl", "ppl", 1, 2, "low"),
    Column("char_ppl", "ppl per character", 1, 3, "low"),
    Column("corpus_distinct_1", "distinct-1", 100),
    Column("corpus_distinct_2", "distinct-2", 100),
    Column("verbatim_persona", "verbatim persona", 100, 1, None),
    Column("verbatim_query", "verbatim query", 100, 1, None),
    Column("length", "length", 1, 1, None),
)
SWAPPED = (
    Column("ppl", "ppl", 1, 2, None),
    Column("swapped_ppl", "ppl, swapped", 1, 2, None),
    Column("ppl_ratio", "ratio", 1, 3, None),
    Column("changed", "replies changed", 100, 1, None),
    Column("swapped_p_cover", "P-Cover, given persona", 100, 2, None),
    Column("own_p_cover", "P-Cover, own persona", 100, 2, None),
    Column("swapped_p_em", "P-EM, given persona", 100, 2, None),
    Column("own_p_em", "P-EM, own persona", 100, 2, None),
)
ITALICS = (
    "Rows in italics are no models: they say what a metric can tell. The best value of the other "
    "rows is bold."
)
BOOTSTRAP = (
    "95 % interval and p-value by paired bootstrap, 1,000 resamples: test samples are drawn, the "
    "same ones for both systems, and for each system seeds, whose mean is its value. A system with a "
    "single seed shows nothing of how much its trainings differ."
)
AFTERWARDS = (
    "The best of the others is chosen after the fact, and p-values are not corrected for the number "
    "of metrics."
)
PERPLEXITIES = (
    "Perplexities per token compare only between systems of the same vocabulary; those per character "
    "always do."
)
VERBATIM = (
    "Verbatim: the longest run of words that a reply shares with the persona (the query), by the "
    "reply's length; neither high nor low is good."
)
SOMEBODY_ELSE = (
    "Every query is asked of somebody else; labels stay. A system that uses personas has a higher "
    "perplexity then, changes its replies, and they fit the persona that was given and not the "
    "sample's own."
)
OUTPUTS = tuple(column.key for column in MAIN)
GROUPS = {"anchor": 0, "system": 1, "ablation": 2}


class Tables:
    """
    All tables of one task.

    :param results: a results.Results
    :param task: the task
    """

    def __init__(self, results: Results, task: Task):
        self.results, self.task, self.config = results, task, results.config

    def all(self) -> list[Table]:
        """The tables that there are results for, in the order of the page."""
        found = []
        for test_set in self.task.test_sets:
            rows = self.results.of(self.task, test_set.name)
            tested = self._against_best(rows)
            found += [
                self.systems(test_set.name, rows, tested),
                self.significance(test_set.name, rows, tested),
                self.ablations(test_set.name, rows),
                self.beside(test_set.name, rows),
            ]
        found.append(self.swapped(self.results.swapped(self.task)))
        return [table for table in found if table is not None]

    def _name(self, *parts: str) -> str:
        return "-".join(map(slug, (self.task.name, *parts)))

    def _about(self, test_set: str, rows) -> str:
        counts = {one.counts["replies"] for result in rows.values() for one in result.scores}
        return f"{self.task.name}, test set {test_set} ({max(counts, default=0):,} samples)"

    def _rows(self, rows, columns, kinds, marks=None) -> tuple[Row, ...]:
        shown = [result for kind in kinds for result in rows.values() if result.system.kind == kind]
        return tuple(
            row(result, columns, (marks or {}).get(result.system.name)) for result in shown
        )

    # -- Tables 2 and 3 --------------------------------------------------------------------------

    def systems(self, test_set: str, rows, tested) -> Table:
        """Systems by metrics, the anchors above them (the paper's Tables 2 and 3)."""
        signs = {key: sign(difference) for key, (_, difference) in tested.items()}
        notes = [ITALICS]
        if tested:
            notes.append(
                f"† {self._label(rows)} is significantly better than the best of the other systems "
                f"in this metric, ‡ significantly worse (paired bootstrap, p < {SIGNIFICANT:g})."
            )
        return Table(
            self._name(test_set, "systems"),
            f"Systems (as in the paper's Tables 2 and 3). {self._about(test_set, rows)}",
            MAIN,
            self._rows(rows, MAIN, ("anchor", "system"), {self.config.proposed: signs}),
            (*notes, *self._notes(rows)),
        )

    def _label(self, rows) -> str:
        return rows[self.config.proposed].system.label

    def _against_best(self, rows) -> dict:
        """By output, (best baseline, how the proposed system differs from it)."""
        proposed = rows.get(self.config.proposed)
        others = [
            result
            for result in rows.values()
            if result.system.kind == "system" and result is not proposed
        ]
        if proposed is None or not others:
            return {}
        chosen = {}
        for output in OUTPUTS:
            ranked = [result for result in others if result.mean(output) is not None]
            if ranked and proposed.mean(output) is not None:
                chosen[output] = max(ranked, key=lambda result: result.mean(output))
        found = {}
        for baseline in {id(result): result for result in chosen.values()}.values():
            outputs = [output for output, result in chosen.items() if result is baseline]
            for output, difference in differences(baseline, proposed, outputs).items():
                found[output] = (baseline, difference)
        return found

    def significance(self, test_set: str, rows, tested) -> Table | None:
        """The proposed system against the best of the others, metric by metric."""
        if not tested:
            return None
        titles = {
            "proposed": self._label(rows),
            "best": "best of the others",
            "difference": "difference",
            "low": "from",
            "high": "to",
            "p": "p",
        }
        columns = tuple(Column(key, title, 1, 3, None) for key, title in titles.items())
        lines = []
        for column in MAIN:
            if column.key in tested:
                baseline, d = tested[column.key]
                numbers = dict(zip(titles, (d.second, d.first, d.difference, d.low, d.high)))
                cells = {name: Cell(value * column.scale) for name, value in numbers.items()}
                cells["p"] = Cell(d.p_value)
                lines.append(Row(f"{column.title}, against {baseline.system.label}", cells, 0))
        return Table(
            self._name(test_set, "significance"),
            f"{self._label(rows)} against the best of the others in each metric. "
            f"{self._about(test_set, rows)}",
            columns,
            tuple(lines),
            (BOOTSTRAP, AFTERWARDS),
        )

    # -- Table 6 ---------------------------------------------------------------------------------

    def ablations(self, test_set: str, rows) -> Table | None:
        """The proposed system and what is left without its parts (the paper's Table 6)."""
        proposed = rows.get(self.config.proposed)
        ablations = {
            name: result for name, result in rows.items() if result.system.kind == "ablation"
        }
        if proposed is None or not ablations:
            return None
        marks = {}
        for name, result in ablations.items():
            found = differences(proposed, result, OUTPUTS)
            marks[name] = {output: sign(difference) for output, difference in found.items()}
        chosen = {self.config.proposed: proposed, **ablations}
        marked = (
            f"† significantly better than {self._label(rows)}, ‡ significantly worse (paired "
            f"bootstrap, p < {SIGNIFICANT:g})."
        )
        return Table(
            self._name(test_set, "ablations"),
            f"Ablation (as in the paper's Table 6). {self._about(test_set, rows)}",
            MAIN,
            self._rows(chosen, MAIN, ("system", "ablation"), marks),
            (marked, *self._notes(chosen)),
        )

    # -- beside the paper's ----------------------------------------------------------------------

    def beside(self, test_set: str, rows) -> Table:
        """What the paper's metrics do not see."""
        return Table(
            self._name(test_set, "beside"),
            f"What the metrics above do not see. {self._about(test_set, rows)}",
            BESIDE,
            self._rows(rows, BESIDE, GROUPS),
            (PERPLEXITIES, VERBATIM),
        )

    def swapped(self, rows) -> Table | None:
        """The main test set once more, each query under another sample's persona."""
        if not rows:
            return None
        return Table(
            self._name("swapped"),
            f"Under other samples' personas. {self.task.name}, test set "
            f"{self.task.test_sets[0].name}",
            SWAPPED,
            self._rows(rows, SWAPPED, GROUPS),
            (SOMEBODY_ELSE,),
        )

    def _notes(self, rows) -> list[str]:
        if any(len(result.seeds) > 1 for result in rows.values()):
            return ["± is the standard deviation over trainings with different seeds."]
        return []


def sign(difference) -> str:
    """† for a second system that is significantly better, ‡ for one that is worse."""
    if difference.p_value >= SIGNIFICANT:
        return ""
    return "†" if difference.difference > 0 else "‡"


def row(result: SetResult, columns, marks: dict[str, str] | None = None) -> Row:
    """A system's row of a table."""
    cells = {
        column.key: Cell(mean, result.deviation(column.key), (marks or {}).get(column.key, ""))
        for column in columns
        if (mean := result.mean(column.key)) is not None
    }
    system = result.system
    seeds = len(result.seeds) if system.train else 0
    return Row(system.label, cells, seeds, system.kind != "anchor", GROUPS[system.kind])
