"""Small raw files of CPC for the tests of the data side."""

from __future__ import annotations

import json
import zipfile

from parlai.core.params import ParlaiParser
from parlai.core.worlds import create_task

GOOD = {
    "p1_persona": ["我 喜欢 钓鱼", "我 在 海滩 做 救生员"],
    "p2_persona": ["我 养 了 一只 猫", "我 爱听 rap"],
    "conversation": [
        "p1 : 你好 ， 你 喜欢 什么 ？",
        "p2 : 我 爱听 rap 音乐 。",
        "p1 : 我 每天 钓鱼 。",
    ],
}


def variant(**changes) -> str:
    """The dialogue GOOD with some keys changed, as a line."""
    return json.dumps({**GOOD, **changes}, ensure_ascii=False)


def numbered(count: int, start: int = 0) -> list[str]:
    """Lines of different dialogues, each of which says its number first."""
    return [
        variant(conversation=[f"p1 : 第 {number} 个", "p2 : 我 养 猫"])
        for number in range(start, start + count)
    ]


def write(folder, lines, name="Persona_dev.json") -> str:
    """Write a raw file and return its folder."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(folder)


def write_zip(path, mode="w", **files) -> str:
    """Write a zip file with the lines of some members; `__` in a name stands for a slash."""
    path.parent.mkdir(exist_ok=True, parents=True)
    with zipfile.ZipFile(path, mode, zipfile.ZIP_DEFLATED) as archive:
        for name, lines in files.items():
            member = name.replace("__", "/") + ".json"
            archive.writestr(member, "".join(line + "\n" for line in lines))
    return str(path)


def teacher(task="cpc:raw", datatype="valid", **settings):
    """The teacher that ParlAI makes for a task."""
    opt = ParlaiParser(True, False).parse_kwargs(task=task, datatype=datatype, **settings)
    return create_task(opt, []).get_agents()[0]
