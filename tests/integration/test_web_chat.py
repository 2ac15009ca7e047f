"""The web chat with a trained model: personas, searches, sources, and the command itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import chatting
import pytest
import tiny
from conftest import subprocess_environment
from parlai.core.agents import create_agent, create_agent_from_model_file
from parlai.scripts.train_model import TrainModel
from serving import Client, serving

from persona_agents.web import batcher, server
from persona_agents.web.sessions import Service

ENGLISH = ["i live in rome.", "i have a cat."]
CHINESE = ["我养了小猫。", "我住在海南。"]
WHERE, WO = "where do you live?", "你住哪里？"


@pytest.fixture(scope="module")
def client(copying_model):
    with serving(lambda: Service(create_agent_from_model_file(copying_model))) as client:
        yield client


class TestChat:
    @pytest.mark.parametrize(
        ("persona", "query", "replies", "other"),
        [
            (ENGLISH, WHERE, ("my home is in rome.", "my home is in oslo."), ["i live in oslo."]),
            (CHINESE, WO, ("我的家在海南。", "我的家在武汉。"), ["我住在武汉。"]),
        ],
    )
    def test_another_persona_in_the_middle(self, client, persona, query, replies, other):
        session = client.post("session", persona=persona).data["session"]
        first = client.post("chat", session=session, message=query).data
        changed = client.post("persona", session=session, persona=other).data
        second = client.post("chat", session=session, message=query).data
        assert (first["reply"], second["reply"]) == replies
        assert changed["reset"] is False, "the chat goes on"
        third = client.post("chat", session=session, message=query, persona=persona).data
        assert third["reply"] == replies[0] and third["persona"] == persona

    def test_sources(self, client):
        answer = client.post("chat", message=WO, persona=CHINESE).data
        copied = [s for s in answer["provenance"]["spans"] if "海南" in s["text"]]
        assert [(span["from"], span["sentence"]) for span in copied] == [("persona", 1)]
        assert copied[0]["share"] > 0.9

    def test_the_persona_can_be_taken_away(self, client):
        session = client.post("session", persona=ENGLISH).data["session"]
        assert client.post("persona", session=session, persona=[]).data["persona"] == []
        answer = client.post("chat", session=session, message=WHERE).data
        assert answer["persona"] == [] and answer["provenance"]["persona"] == []
        assert "rome" not in answer["reply"]

    def test_history_counts_until_reset(self, copying_model):
        agent = create_agent_from_model_file(copying_model, {"history_size": 3})
        with serving(lambda: Service(agent)) as client:
            session = client.post("session", persona=ENGLISH).data["session"]
            for message in ("hi", WHERE):
                answer = client.post("chat", session=session, message=message).data
            assert answer["provenance"]["query"][::2] == ["hi", WHERE]
            client.post("reset", session=session)
            answer = client.post("chat", session=session, message=WHERE).data
            assert answer["provenance"]["query"] == [WHERE]
            assert answer["provenance"]["persona"] == ENGLISH

    def test_many_visitors_at_once(self, client):
        """Each gets the place of their own persona, in batches that hold both languages."""
        samples = chatting.corpus(40, seed=11)

        def ask(sample):
            return client.post("chat", message=sample.query, persona=sample.persona).data["reply"]

        with ThreadPoolExecutor(len(samples)) as pool:
            assert list(pool.map(ask, samples)) == [sample.response for sample in samples]
        assert max(client.service.batcher.sizes) > 1


class TestSearch:
    def test_is_chosen_for_each_message(self, client, monkeypatch):
        agent, used = client.service.batcher.agent, []
        generate = agent._generate

        def note(batch, beam_size, *args, **kwargs):
            used.append((agent.opt["inference"], agent.opt["beam_size"], beam_size))
            return generate(batch, beam_size, *args, **kwargs)

        monkeypatch.setattr(agent, "_generate", note)
        assert client.post("session").data["searches"] == ["greedy", "beam"]
        for wanted in ("greedy", "beam", None):
            data = {} if wanted is None else {"search": wanted}
            answer = client.post("chat", message=WHERE, persona=ENGLISH, **data).data
            assert answer["reply"] == "my home is in rome."
        size = batcher.BEAM_SIZE
        assert used == [("greedy", 1, 1), ("beam", size, size), ("greedy", 1, 1)]

    def test_at_the_same_time(self, client):
        """A batch whose visitors want different searches is answered search by search."""

        def ask(search):
            return client.post("chat", message=WHERE, persona=ENGLISH, search=search).data["reply"]

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(ask, ["greedy", "beam"] * 4)) == {"my home is in rome."}

    def test_own_search_comes_first(self, copying_model):
        options = {"inference": "beam", "beam_size": 3, "beam_min_length": 0}
        agent = create_agent_from_model_file(copying_model, options)
        assert batcher.searches(agent) == ["beam", "greedy"]
        with batcher.searching(agent, "beam"):
            assert agent.beam_size == 3
        with batcher.searching(agent, "greedy"):
            assert (agent.opt["inference"], agent.beam_size) == ("greedy", 1)
        assert (agent.opt["inference"], agent.beam_size) == ("beam", 3)


class TestOtherAgents:
    def test_without_copying(self, tmp_path):
        corpus = tiny.write_corpus(tmp_path, chatting.corpus(8))
        agent = tiny.new_agent(**corpus, model_file=str(tmp_path / "model"), copy="none")
        agent.set_interactive_mode(True, False)
        with serving(lambda: Service(agent)) as client:
            answer = client.post("chat", message=WHERE, persona=ENGLISH)
            assert answer.status == 200 and answer.data["provenance"] is None

    def test_parlais_own_generator(self, tmp_path):
        corpus = tiny.write_corpus(tmp_path, chatting.corpus(8))
        model_file = str(tmp_path / "model")
        sizes = {"embedding_size": 16, "ffn_size": 16, "n_heads": 1, "n_layers": 1}
        TrainModel.main(
            model="transformer/generator",
            model_file=model_file,
            num_epochs=1,
            batchsize=4,
            validation_every_n_epochs=-1,
            skip_generation=True,
            **{**corpus, **tiny.QUIET, **sizes},
        )
        agent = create_agent_from_model_file(model_file, {"interactive_mode": True})
        with serving(lambda: Service(agent)) as client, ThreadPoolExecutor(6) as pool:
            post = client.post
            chats = list(
                pool.map(lambda i: post("chat", message=f"hi {i}", persona=[f"p{i}"]), range(6))
            )
            assert {chat.status for chat in chats} == {200}
            first = chats[0].data["session"]
            clone = client.service.sessions.chats[first].clone
            assert clone.history.history_strings[0] == "your persona: p0\nhi 0"
            assert post("chat", session=first, message="and?", search="beam").status == 200

    def test_repeat_label(self):
        agent = create_agent({"model": "repeat_label"})
        with serving(lambda: Service(agent)) as client:
            answer = client.post("chat", message="hi").data
            assert answer["provenance"] is None and "reply" in answer


class TestCommand:
    def test_serves_draws_and_ends_on_ctrl_c(self, copying_model, tmp_path):
        arguments = ["persona_web", "-mf", copying_model, "-t", "cpc:mini", "--port", "0"]
        code = f"from parlai.core.script import superscript_main\nsuperscript_main({arguments})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env=subprocess_environment(),
            text=True,
            encoding="utf-8",
        )
        try:
            shown = ""
            while "Chat at" not in shown:
                line = process.stdout.readline()
                assert line, shown
                shown += line
            client = Client(int(re.search(r"http://127\.0\.0\.1:(\d+)/", shown)[1]))
            begun = client.post("session").data
            assert begun["language"] == "zh" and begun["can_draw"] and len(begun["persona"]) == 4
            drawn = client.post("persona", session=begun["session"], draw=True).data["persona"]
            assert drawn != begun["persona"]
            answer = client.post("chat", session=begun["session"], message=WO, persona=CHINESE)
            assert answer.data["reply"] == "我的家在海南。" and answer.data["provenance"]
            os.kill(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
            assert process.returncode == 0 and "Traceback" not in rest
        finally:
            process.kill()
            process.wait()

    def test_without_data_nothing_is_drawn(self, copying_model):
        from persona_agents.scripts.persona_web import PersonaWeb

        opt = PersonaWeb.setup_args().parse_kwargs(
            model_file=copying_model, task="cpc", cpc_path="nowhere", loglevel="error"
        )
        agent = create_agent(opt)
        assert server.drawing(opt, agent) is None
        opt["task"] = "interactive"
        assert server.drawing(opt, agent) is None
