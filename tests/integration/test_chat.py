"""The chat in the terminal: commands, colours, wide characters, and every way to end it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from conftest import subprocess_environment
from parlai.agents.local_human.local_human import LocalHumanAgent
from parlai.core.agents import create_agent
from parlai.core.worlds import create_task
from parlai.scripts.interactive import Interactive, setup_args
from parlai.scripts.self_chat import SelfChat

from persona_agents import chat

TASKS = {"zh": "cpc:mini", "en": "personachat_single_turn:mini"}
PERSONAS = {"en": "i have a cat.|i live in rome.", "zh": "我养了小猫。|我住在海南。"}
WHERE = {"en": "where do you live?", "zh": "你住哪里？"}
REPLY = {"en": "my home is in rome.", "zh": "我的家在海南。"}
GREEN, CYAN = "\033[32m", "\033[36m"


@pytest.fixture
def converse(monkeypatch, capsys, copying_model):
    """Chats in this process: ``converse("en", ["hi", "/why"])`` returns what is printed."""

    def run(language, lines, then=EOFError, **options):
        typed = iter(lines)

        def type_in(prompt):
            line = next(typed, then)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr("builtins.input", type_in)
        capsys.readouterr()
        given = {"model_file": copying_model, "task": TASKS[language]}
        Interactive.main(persona=PERSONAS[language], loglevel="error", **{**given, **options})
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("language", ["en", "zh"])
class TestCommands:
    def test_persona_is_shown_and_can_be_changed(self, converse, language):
        other = {"en": "i live in oslo.", "zh": "我住在武汉。"}[language]
        change = {"en": "/persona ", "zh": "/人设 "}[language] + other
        out = converse(language, [WHERE[language], change, WHERE[language]])
        begin, first = out.partition(REPLY[language])[0], REPLY[language]
        assert all(f"\n  {line}" in begin for line in PERSONAS[language].split("|"))
        second = out.split(change.split(" ", 1)[1], 1)[1]
        assert {"en": "my home is in oslo.", "zh": "我的家在武汉。"}[language] in second
        assert first not in second

    def test_why(self, converse, language):
        command = {"en": "/why", "zh": "／为什么"}[language]
        out = converse(language, [command, WHERE[language], command])
        nothing, _, table = out.partition(REPLY[language])
        assert chat.TEXTS[language]["nothing"] in nothing
        word, sentence = {"en": ("rome", "i live in rome."), "zh": ("海南", "我住在海南。")}[
            language
        ]
        (row,) = [line for line in table.splitlines() if word in line.partition("%")[0]]
        assert chat.TEXTS[language]["persona"] + " 2" in row and row.endswith(sentence)
        assert "\033" not in out, "no colour: this output is no terminal"
        rows = table.partition(chat.TEXTS[language]["why"])[2].splitlines()[1:3]
        assert len({chat.width(row[: row.index("%")]) for row in rows}) == 1, "columns agree"

    def test_reset_keeps_the_persona_and_forgets_the_rest(self, converse, language, tmp_path):
        commands = {"en": "/reset", "zh": "/重来"}
        lines = [WHERE[language], commands[language], WHERE[language]]
        out = converse(language, lines, outfile=str(tmp_path / "log"), history_size=5)
        assert out.count(REPLY[language]) == 2
        with open(tmp_path / "log.jsonl", encoding="utf-8") as file:
            dialogues = [json.loads(line)["dialog"] for line in file]
        assert [len(turns) for turns in dialogues] == [1, 1]
        assert dialogues[0][0][0]["text"] == dialogues[1][0][0]["text"], "the model is told again"

    def test_help_and_unknown_commands(self, converse, language):
        commands = {"en": ["/help", "/nothing"], "zh": ["/帮助", "/没有"]}[language]
        out = converse(language, commands)
        for word in {"en": ("/why", "/reset"), "zh": ("/为什么", "/重来")}[language]:
            assert out.count(word) == 2, "at the start and when asked for"
        assert commands[1] in out

    def test_empty_lines_are_no_messages(self, converse, language, tmp_path):
        lines = ["", "  ", "\u3000", WHERE[language], "", "\x00"]
        converse(language, lines, outfile=str(tmp_path / "log"))
        (dialogue,) = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(json.loads(dialogue)["dialog"]) == 1

    @pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt, "[EXIT]", "/exit"])
    def test_every_end_is_clean_and_keeps_the_log(self, converse, language, end, tmp_path):
        lines = [WHERE[language], *([end] if isinstance(end, str) else [])]
        then = end if not isinstance(end, str) else AssertionError
        out = converse(language, lines, then, outfile=str(tmp_path / "log"))
        done = {"en": "Chat done.", "zh": "对话结束。"}[language]
        assert out.rstrip().endswith(done)
        (dialogue,) = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
        ((_, answer),) = json.loads(dialogue)["dialog"]
        assert answer["text"] == REPLY[language]

    def test_provenance_line_and_legend(self, converse, language, tmp_path):
        lines = [WHERE[language], WHERE[language]]
        out = converse(language, lines, provenance=True, outfile=str(tmp_path / "log"))
        painted = {"en": "rome", "zh": "海南"}[language]
        from_persona = [part.partition("}")[0] for part in out.split("{")[1:]]
        assert any(painted in part for part in from_persona) and "\033" not in out
        meaning = chat.TEXTS[language]["legend persona"]
        assert out.count(f"{{{meaning}}}") == 1, "the legend stands once"
        (dialogue,) = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
        answer = json.loads(dialogue)["dialog"][0][1]
        assert any(span["from"] == "persona" for span in answer["provenance"]["spans"])


def test_ctrl_c_while_the_model_thinks(monkeypatch, capsys, converse, copying_model):
    from persona_agents.agents.hcm import HCMAgent

    def interrupted(self, observations):
        raise KeyboardInterrupt

    monkeypatch.setattr(HCMAgent, "batch_act", interrupted)
    out = converse("en", ["hi"], AssertionError)
    assert out.rstrip().endswith("Chat done.")


def test_agents_without_provenance_say_so(monkeypatch, capsys):
    lines = iter(["hi", "/why"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines, "[EXIT]"))
    opt = setup_args().parse_kwargs(task=TASKS["en"], model="fixed_response", persona="i sew.")
    opt["fixed_response"] = "hello"
    world = create_task(opt, [LocalHumanAgent(opt), create_agent(opt)])
    while not world.epoch_done():
        world.parley()
    out = capsys.readouterr().out
    assert "hello" in out and chat.TEXTS["en"]["cannot"] in out


def test_surrogates_do_not_stop_the_chat(converse):
    """A terminal that sends other bytes than UTF-8 gives Python lone surrogates."""
    assert "[HCM]" in converse("zh", ["\udce4你好\udcff", "\x1b[31m？"])


class TestTerminal:
    """The command in a pseudo-terminal."""

    @pytest.fixture
    def terminal(self, copying_model, tmp_path):
        """Starts `parlai interactive` in a terminal; ``say(text)`` and ``read(until)``."""
        started = []

        def start(language, **environment):
            master, slave = pty.openpty()
            arguments = ["interactive", "-mf", copying_model, "-t", TASKS[language]]
            arguments += ["--persona", PERSONAS[language], "--provenance", "true"]
            code = f"from parlai.core.script import superscript_main\nsuperscript_main({arguments})"
            base = {k: v for k, v in subprocess_environment().items() if k != "NO_COLOR"}
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=slave,
                stdout=slave,
                stderr=subprocess.DEVNULL,
                cwd=tmp_path,
                env={**base, "TERM": "xterm", **environment},
                start_new_session=True,
            )
            os.close(slave)
            started.append((process, master))
            return process, master

        yield start
        for process, master in started:
            process.kill()
            process.wait()
            os.close(master)

    @staticmethod
    def read(master, *until: str, seconds: float = 120) -> str:
        """What the terminal shows up to some texts, one after the other."""
        shown, end = b"", time.monotonic() + seconds
        pattern = re.compile(".*".join(map(re.escape, until)), re.DOTALL)
        while not pattern.search(shown.decode("utf-8", "ignore")):
            ready, _, _ = select.select([master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{until!r} never came; there was {shown.decode('utf-8', 'replace')!r}"
            try:
                shown += os.read(master, 65536)
            except OSError:  # the process has ended
                break
        return shown.decode("utf-8", "ignore")

    def test_colours_editing_and_ctrl_c(self, terminal):
        process, master = terminal("zh")
        prompt = "请输入："
        begin = self.read(master, prompt)
        assert all(line in begin for line in PERSONAS["zh"].split("|"))
        # two wide characters too many are deleted again, each with one key
        os.write(master, "你住哪里海南\x7f\x7f？\n".encode())
        shown = self.read(master, chat.TEXTS["zh"]["legend persona"], prompt)
        assert REPLY["zh"] in shown, "so the model was asked 你住哪里？"
        assert f"{GREEN}在海南" in shown or f"{GREEN}海南" in shown
        os.write(master, "/为什么\n".encode())
        assert GREEN in self.read(master, "我住在海南。", prompt)
        time.sleep(0.2)  # from the prompt to waiting for a key
        os.killpg(process.pid, signal.SIGINT)
        assert "Traceback" not in self.read(master, "对话结束。")
        assert process.wait(60) == 0

    def test_no_color(self, terminal):
        process, master = terminal("en", NO_COLOR="1")
        prompt = "Enter Your Message:"
        self.read(master, prompt)
        os.write(master, b"where do you live?\n")
        # Ctrl-D counts at the prompt alone: typed before, it is lost when the prompt changes modes
        shown = self.read(master, "copied from the persona}", prompt)
        assert GREEN not in shown and CYAN not in shown and "{" in shown
        os.write(master, b"\x04")
        assert "Traceback" not in self.read(master, "Chat done.")
        assert process.wait(60) == 0


class TestWidth:
    def test_wide_and_combining_characters(self):
        assert [chat.width(text) for text in ("abc", "你好", "é", "e\u0301", "，", "")] == [
            3,
            4,
            1,
            1,
            2,
            0,
        ]
        assert chat.width(chat.pad("你好", 7)) == 7 and chat.pad("abcdef", 3) == "abcdef"

    def test_clean(self):
        assert chat.clean("a\x00b\x1b[0m\tc\r\nd\ud83d\u200d") == "ab[0m\tc\nd\u200d"
        assert chat.clean("你好，😀") == "你好，😀"


def test_self_chat_paints_replies(copying_model, capsys):
    SelfChat.main(
        model_file=copying_model,
        task=TASKS["en"],
        persona="i live in rome.",
        partner_persona="i live in oslo.",
        num_self_chats=1,
        selfchat_max_turns=2,
        display_examples=True,
        provenance=True,
        seed=1,
        loglevel="error",
    )
    out = capsys.readouterr().out
    assert "{" in out and "\033" not in out
