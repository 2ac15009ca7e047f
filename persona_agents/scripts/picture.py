"""The distributions of lengths as a picture, drawn with matplotlib if it is installed."""

from __future__ import annotations

import contextlib

from persona_agents.errors import PersonaAgentsError

# Fonts with Chinese characters, as the systems and distributions name them.
CJK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Noto Serif CJK SC",
    "Noto Serif CJK JP",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Heiti SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)
CHINESE = {
    "persona sentence": "人设句子",
    "query": "问句",
    "response": "回复",
    "characters": "字数",
    "share": "比例",
}


def require_matplotlib() -> None:
    """Raise one message that says what to install when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise PersonaAgentsError(
            "--picture-file needs matplotlib: pip install matplotlib. Text and --json-file do not."
        ) from error


def cjk_font() -> str | None:
    """The name of an installed font that has Chinese characters, None if there is none."""
    from matplotlib import font_manager

    def find() -> str | None:
        known = {font.name for font in font_manager.fontManager.ttflist}
        return next((name for name in CJK_FONTS if name in known), None)

    found = find()
    if found is None:  # matplotlib remembers the fonts that there were when it was first used
        known_files = {font.fname for font in font_manager.fontManager.ttflist}
        for path in set(font_manager.findSystemFonts()) - known_files:
            with contextlib.suppress(Exception):  # a file that is no font that it can draw
                font_manager.fontManager.addfont(path)
        found = find()
    return found


def draw(statistics: dict, path: str) -> None:
    """
    Write a picture: one panel a field, one line a split, the share of samples by length.

    The labels are Chinese for a Chinese task if a font for it is installed, else English.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    unit, font = statistics["unit of length"], None
    if unit == "characters":
        font = cjk_font()

    def label(text: str) -> str:
        return CHINESE.get(text, text) if font else text

    fields = list(next(iter(statistics["histograms"].values())))
    figure = Figure(figsize=(4 * len(fields), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    text = {"family": [font, "sans-serif"]} if font else {}
    for axes, field in zip(figure.subplots(1, len(fields)), fields):
        for split, histograms in statistics["histograms"].items():
            counts = {int(length): count for length, count in histograms[field].items()}
            total = sum(counts.values())
            if total:
                lengths = range(max(counts) + 1)
                axes.plot(lengths, [counts.get(n, 0) / total for n in lengths], label=split)
        axes.set_title(label(field), **text)
        axes.set_xlabel(label(unit), **text)
        axes.set_ylabel(label("share"), **text)
        axes.legend()
    figure.suptitle(statistics["task"])
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # a folder that is not there, an unknown ending
        raise PersonaAgentsError(f"--picture-file {path}: {error}.") from None
