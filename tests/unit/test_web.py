"""The web chat's server with stand-in agents: its endpoint, batches, limits, and hostile requests."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from parlai.core.agents import Agent
from parlai.core.message import Message
from serving import serving

from persona_agents.errors import PersonaAgentsError
from persona_agents.web import handlers, server, sessions
from persona_agents.web.sessions import Service


def mark(reply: str) -> str:
    """What a parrot remembers of its own reply."""
    return f"({len(reply)})"


class Parrot(Agent):
    """Says all that its clone was told so far; batches take a while, so that messages gather."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.batches = shared["batches"] if shared else []
        self.heard = []

    def share(self):
        return {**super().share(), "batches": self.batches}

    def reset(self):
        self.heard = []

    def observe(self, message):
        if "unobservable" in message["text"]:
            raise ValueError("cannot be observed")
        self.heard.append(message["text"])
        return {"heard": list(self.heard)}

    def self_observe(self, message):
        self.heard.append(mark(message["text"]))

    def batch_act(self, observations):
        self.batches.append(len(observations))
        time.sleep(0.05)
        if any("poison" in observation["heard"][-1] for observation in observations):
            raise RuntimeError("this message breaks the model")
        return [Message(id="Parrot", text=" / ".join(o["heard"])) for o in observations]


@pytest.fixture(scope="module")
def client():
    """A server of parrots that draws personas."""
    number = iter(range(10**6))
    with serving(lambda: Service(Parrot({}), draw=lambda: (f"i am number {next(number)}.",))) as c:
        yield c


def said(client, session, message, **data) -> str:
    answer = client.post("chat", session=session, message=message, **data)
    assert answer.status == 200, answer
    return answer.data["reply"]


class TestEndpoint:
    def test_a_chat(self, client):
        begun = client.post("session", persona=["i sew.", " i ski. ", ""]).data
        assert begun["persona"] == ["i sew.", "i ski."]
        assert begun["can_draw"] is True and begun["searches"] == [] and begun["language"] == "en"
        session = begun["session"]
        first = client.post("chat", session=session, message="hi")
        told = "your persona: i sew.\nyour persona: i ski.\nhi"
        assert first.data == {
            "session": session,
            "persona": ["i sew.", "i ski."],
            "reply": told,
            "provenance": None,
        }
        assert said(client, session, "ok") == f"{told} / {mark(told)} / ok", (
            "it knows the chat so far"
        )

    def test_without_a_session_one_begins(self, client):
        answer = client.post("chat", message="hi", persona=["i sew."])
        assert answer.data["reply"] == "your persona: i sew.\nhi"
        assert said(client, answer.data["session"], "ok").endswith("/ ok")

    def test_personas_are_drawn(self, client):
        begun = client.post("session").data
        (first,) = begun["persona"]
        assert re.fullmatch(r"i am number \d+\.", first)
        (second,) = client.post("persona", session=begun["session"], draw=True).data["persona"]
        assert second != first and second in said(client, begun["session"], "hi")

    def test_another_persona_begins_a_new_chat_where_agents_mix_it_with_turns(self, client):
        session = client.post("session", persona=["i sew."]).data["session"]
        said(client, session, "hi")
        same = client.post("persona", session=session, persona=["i sew."]).data
        assert same == {"session": session, "persona": ["i sew."], "reset": False}
        assert client.post("persona", session=session, persona=["i ski."]).data["reset"] is True
        assert said(client, session, "hello") == "your persona: i ski.\nhello"

    def test_a_message_may_bring_the_persona(self, client):
        answer = client.post("chat", message="your persona: i sew.\nhi\nyou").data
        assert answer["persona"] == ["i sew."]
        assert answer["reply"] == "your persona: i sew.\nhi\nyou"

    def test_reset_keeps_the_persona(self, client):
        session = client.post("session", persona=["i sew."]).data["session"]
        said(client, session, "hi")
        assert client.post("reset", session=session).data["persona"] == ["i sew."]
        assert said(client, session, "hello") == "your persona: i sew.\nhello"

    def test_no_persona(self, client):
        session = client.post("session", persona=[]).data["session"]
        assert said(client, session, "hi") == "hi"


class TestBatches:
    def test_messages_that_arrive_together_are_one_batch(self, client):
        names = [client.post("session", persona=[f"p{i}"]).data["session"] for i in range(12)]
        batches = client.service.batcher.agent.batches
        batches.clear()
        with ThreadPoolExecutor(12) as pool:
            replies = list(pool.map(lambda i: said(client, names[i], f"m{i}"), range(12)))
        assert replies == [f"your persona: p{i}\nm{i}" for i in range(12)]
        assert sum(batches) == 12 and len(batches) <= 4

    def test_fifty_visitors_are_never_mixed(self, client):
        """Each reply holds all that its visitor said, in order, and nothing of another's."""

        def visit(i):
            rng = random.Random(i)
            session = client.post("session", persona=[f"persona{i}."]).data["session"]
            told, known = [], f"your persona: persona{i}.\n"
            for turn in range(3):
                time.sleep(rng.random() / 50)
                message = f"visitor{i} turn{turn}"
                told.append(known * (turn == 0) + message)
                reply = said(client, session, message)
                if reply != " / ".join(told):
                    return f"visitor {i} got {reply!r}"
                told.append(mark(reply))
            return None

        with ThreadPoolExecutor(50) as pool:
            assert [wrong for wrong in pool.map(visit, range(50)) if wrong] == []
        assert max(client.service.batcher.sizes) <= 32

    def test_one_chats_messages_are_answered_in_turn(self, client):
        session = client.post("session", persona=[]).data["session"]
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(lambda i: said(client, session, f"<{i}>"), range(6)))
        longest = max(replies, key=len)
        assert all(f"<{i}>" in longest for i in range(6)), "none was lost"

    def test_a_message_that_breaks_the_model_spoils_no_other(self, client):
        good, bad = (client.post("session", persona=[]).data["session"] for _ in range(2))
        texts = {good: "hello", bad: "poison"}
        with ThreadPoolExecutor(2) as pool:
            answers = list(
                pool.map(lambda s: client.post("chat", session=s, message=texts[s]), texts)
            )
        assert [answer.status for answer in answers] == [200, 500]
        assert answers[0].data["reply"] == "hello"
        assert answers[1].data["error"]["code"] == "failed"
        assert "breaks" not in json.dumps(answers[1].data), "no inner workings are told"
        assert said(client, bad, "and now?") == "and now?", "the chat has begun anew"
        assert client.error("chat", session=bad, message="unobservable") == (500, "failed")

    def test_agents_without_batches(self):
        class Single(Agent):
            def act(self):
                return Message(text=f"yes, {self.observation['text']}")

        with serving(lambda: Service(Single({}))) as client, ThreadPoolExecutor(4) as pool:
            chats = pool.map(lambda i: client.post("chat", message=f"m{i}").data, range(4))
            assert [chat["reply"] for chat in chats] == [f"yes, m{i}" for i in range(4)]


class TestHostileRequests:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"", "json"),
            (b"{", "json"),
            (b"[]", "json"),
            (b'"hi"', "json"),
            (b"null", "json"),
            (b'{"message": "\xff"}', "json"),
            (b"[" * 60000, "json"),
            (b'{"message": 1}', "field"),
            (b'{"message": null}', "field"),
            (b'{"message": ["hi"]}', "field"),
            (b'{"message": "hi", "persona": "i sew."}', "field"),
            (b'{"message": "hi", "persona": [1]}', "field"),
            (b'{"message": "hi", "persona": {"0": "i sew."}}', "field"),
            (b'{"message": "hi", "session": 7}', "field"),
            (b'{"message": "hi", "__class__": "x"}', "field"),
            (b'{"session": "x"}', "field"),
            (b"{}", "field"),
            (b'{"message": ""}', "empty"),
            (b'{"message": " \\u3000\\n\\u0000\\u001b "}', "empty"),
            (b'{"message": "your persona: i sew."}', "empty"),
            (b'{"message": "\\ud800"}', "empty"),
            (b'{"message": "hi", "search": "beam"}', "search"),
        ],
    )
    def test_malformed(self, client, body, code):
        answer = client.post_raw("chat", body)
        assert (answer.status, answer.data["error"]["code"]) == (400, code)

    def test_long_ones(self, client):
        session = client.post("session", persona=[]).data["session"]
        post = client.error
        assert post("chat", session=session, message="字" * 2001) == (413, "message_too_long")
        assert post("chat", session=session, message="a" * 2**20) == (413, "too_large")
        assert post("session", persona=["a" * 301]) == (413, "persona_too_long")
        assert post("session", persona=["a"] * 21) == (413, "persona_too_long")
        brought = "\n".join(["your persona: a"] * 21 + ["hi"])
        assert post("chat", session=session, message=brought) == (413, "persona_too_long")
        assert said(client, session, "字" * 2000) == "字" * 2000

    def test_three_megabytes_are_cut_off(self, client):
        with pytest.raises((ConnectionError, json.JSONDecodeError)):
            client.post("chat", message="a" * (3 * 2**20))
        assert client.post("session").status == 200, "the server lives on"

    def test_unknown_chats(self, client):
        for path, data in (
            ("chat", {"message": "hi"}),
            ("persona", {"persona": []}),
            ("reset", {}),
        ):
            assert client.error(path, session="x" * 22, **data) == (404, "session")
            assert client.error(path, session="", **data) == (404, "session")

    @pytest.mark.parametrize(
        "text",
        ['<img src=x onerror="alert(1)">', "</script><script>1</script>", "a\u202eb 😀", "'\"&"],
    )
    def test_markup_is_text(self, client, text):
        answer = client.post("chat", message=text, persona=[text])
        assert answer.data["persona"] == [text]
        assert answer.data["reply"] == f"your persona: {text}\n{text}"
        assert answer.headers["Content-Type"].startswith("application/json")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"

    def test_control_characters_go(self, client):
        answer = client.post("chat", message="a\x00b\x1b[31mc\r\nd", persona=["i\nsew\x07."])
        assert answer.data["persona"] == ["i sew."]
        assert answer.data["reply"] == "your persona: i sew.\nab[31mc\nd"

    def test_other_sites_are_refused(self, client):
        body = b'{"message": "hi"}'
        for headers in (
            {"Host": "evil.example"},
            {"Host": f"evil.example:{client.port}"},
            {"Origin": "http://evil.example"},
            {"Origin": "http://["},
            {"Origin": "null"},
        ):
            answer = client.post_raw("chat", body, **headers)
            assert (answer.status, answer.data["error"]["code"]) == (403, "forbidden")
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            assert client.post_raw("chat", body, Content_Type=kind).status == 415
        own = f"http://127.0.0.1:{client.port}"
        assert client.post_raw("chat", body, Origin=own).status == 200
        assert client.post_raw("chat", body, Host=f"localhost:{client.port}").status == 200

    def test_paths_and_methods(self, client):
        for method, path, status in (
            ("GET", "/api/chat", 405),
            ("PUT", "/api/chat", 405),
            ("OPTIONS", "/api/chat", 405),
            ("POST", "/api/nothing", 404),
            ("GET", "/static/../server.py", 403),
            ("GET", "/static/%2e%2e/server.py", 403),
            ("GET", "/static/nothing.js", 404),
            ("GET", "/static/a%00b", 404),
            ("GET", f"/static/{'a' * 300}", 404),
            ("POST", "/", 405),
        ):
            found, body, _ = client.request(method, path)
            assert found == status and "error" in json.loads(body), (method, path)

    def test_half_a_request_holds_nobody_up(self, client):
        with socket.create_connection(("127.0.0.1", client.port)) as lazy:
            lazy.sendall(
                b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            assert client.post("chat", message="hi").status == 200

    def test_without_content_length(self, client):
        with socket.create_connection(("127.0.0.1", client.port)) as plain:
            request = "POST /api/chat HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json"
            plain.sendall(f"{request}\r\n\r\n".encode())
            assert b"400" in plain.recv(100)

    def test_a_visitor_who_leaves(self, client):
        """A closed connection loses its reply and nothing else."""
        body = b'{"message": "hi"}'
        head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", client.port)) as leaving:
            leaving.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        assert client.post("chat", message="hi").status == 200


class TestLimits:
    def test_too_many_chats(self):
        with serving(lambda: Service(Parrot({}))) as client:
            client.service.sessions.most = 2
            names = [client.post("session").data["session"] for _ in range(2)]
            assert client.error("session") == (503, "full")
            assert client.error("chat", message="hi") == (503, "full")
            assert said(client, names[0], "hi") and said(client, names[1], "hi")
            client.service.sessions.chats[names[0]].used -= sessions.LIFETIME + 1
            assert client.error("chat", session=names[0], message="hi") == (404, "session")
            assert client.post("session").status == 200, "the forgotten one made room"
            assert said(client, names[1], "hi")

    def test_unused_chats_are_swept(self, monkeypatch):
        monkeypatch.setattr(sessions, "SWEEP", 0.05)
        with serving(lambda: Service(Parrot({}))) as client:
            session = client.post("session").data["session"]
            client.service.sessions.chats[session].used -= sessions.LIFETIME + 1
            end = time.monotonic() + 10
            while client.service.sessions.chats and time.monotonic() < end:
                time.sleep(0.02)
            assert not client.service.sessions.chats

    def test_an_impatient_visitor(self, client):
        """Forty messages of one chat at once: some are refused, none is lost or said twice."""
        session = client.post("session", persona=[]).data["session"]
        with ThreadPoolExecutor(40) as pool:
            answers = list(
                pool.map(
                    lambda i: client.post("chat", session=session, message=f"<{i}>"), range(40)
                )
            )
        heard = said(client, session, "end")
        for i, answer in enumerate(answers):
            assert answer.status in (200, 503)
            assert (f"<{i}>" in heard) is (answer.status == 200)
        assert {a.data["error"]["code"] for a in answers if a.status == 503} == {"busy"}

    def test_too_many_waiting_messages(self):
        busy = threading.Event()

        class Slow(Parrot):
            def batch_act(self, observations):
                busy.wait(20)
                return super().batch_act(observations)

        def make():
            service = Service(Slow({}), limit=1)
            service.batcher.jobs._maxsize = 3
            return service

        with serving(make) as client, ThreadPoolExecutor(8) as pool:
            names = [client.post("session", persona=[]).data["session"] for _ in range(8)]
            waiting = [pool.submit(client.post, "chat", session=s, message="hi") for s in names]
            end = time.monotonic() + 10
            while sum(f.done() for f in waiting) < 3 and time.monotonic() < end:
                time.sleep(0.02)
            busy.set()
            answers = [future.result() for future in waiting]
        refused = [a.data["error"]["code"] for a in answers if a.status == 503]
        assert refused and set(refused) == {"busy"}
        assert {a.status for a in answers} == {200, 503}


class TestPage:
    def test_needs_nothing_from_elsewhere(self, client):
        status, page, headers = client.request("GET", "/")
        assert status == 200 and headers["Content-Type"].startswith("text/html")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        names = re.findall(r'(?:src|href)="([^"]+)"', page.decode())
        assert names and all(name.startswith("/static/") for name in names)
        for name in names:
            status, found, _ = client.request("GET", name)
            assert status == 200 and found
            addresses = set(re.findall(r"https?://[^\s\"']+", found.decode()))
            assert addresses <= {"http://www.w3.org/2000/svg"}
            assert b"innerHTML" not in found and b"eval(" not in found
        assert b"<style" not in page and b"style=" not in page

    def test_both_languages_say_the_same(self):
        source = (handlers.STATIC / "texts.js").read_text(encoding="utf-8")
        english, chinese = source.split("  zh: {")
        keys = [re.findall(r"(\w+): [\"{]", part) for part in (english, chinese)]
        assert keys[0][1:] == keys[1] and len(keys[1]) > 30


class TestStart:
    def test_a_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(PersonaAgentsError, match=f"--port {port}: cannot listen"):
                server.listen(None, "127.0.0.1", port)
        with pytest.raises(PersonaAgentsError, match="--port 99999"):
            server.listen(None, "127.0.0.1", 99999)
        with pytest.raises(PersonaAgentsError, match="--host no.such.host.invalid"):
            server.listen(None, "no.such.host.invalid", 0)

    @pytest.mark.parametrize(
        ("host", "local"),
        [
            ("127.0.0.1", True),
            ("localhost", True),
            ("::1", True),
            ("0.0.0.0", False),
            ("::", False),
            ("example.org", False),
        ],
    )
    def test_which_addresses_are_local(self, host, local):
        assert server.is_local(host) is local
        names = server.application(None, host).settings["host_names"]
        assert (names is not None) is local
