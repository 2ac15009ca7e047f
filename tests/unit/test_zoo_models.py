"""`zoo:persona_agents/NAME/model`: from the package, or from a server (on the loopback)."""

from __future__ import annotations

import http.server
import importlib
import os
import re
import shutil
import threading
import time
from pathlib import Path

import parlai.zoo.model_list
import pytest
import tiny
from parlai.core.agents import create_agent_from_model_file
from parlai.core.build_data import modelzoo_path
from persona_agents.tasks import download
from persona_agents.tasks.mini import is_right
from persona_agents.zoo.model_list import PREFIX, SYSTEMS, TASKS, model_list

import persona_agents
from persona_agents import compat_presets, packing, plugin, zoo_models
from persona_agents.errors import PersonaAgentsError
from tests.unit.test_download import Handler

BUNDLED = ["hcm_mini_zh", "hcm_mini_en"]
LANGUAGES = {"hcm_mini_zh": "zh", "hcm_mini_en": "en"}
NAME = "hcm_cpc"  # a model that does not come with the package
PATH = f"{PREFIX}{NAME}/model"


def folder_of(datapath, name=NAME) -> Path:
    return Path(datapath) / "models" / "persona_agents" / name


def without_locks(folder) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.endswith(".lock"))


class TestList:
    def test_fields_are_those_of_parlai(self):
        needed = set.intersection(*map(set, parlai.zoo.model_list.model_list))
        assert {"title", "id", "path", "description", "example"} <= needed
        for entry in model_list:
            assert needed | {"agent", "task", "project", "result"} <= set(entry)
            texts = {key: value for key, value in entry.items() if key != "sha256"}
            assert all(isinstance(value, str) and value for value in texts.values())
            assert "?" not in entry["title"] and entry["path"] in entry["example"]
            agent = entry["agent"].partition(":")[2]
            assert agent in persona_agents.AGENTS

    def test_one_module_for_each_model(self):
        folder = Path(importlib.import_module("persona_agents.zoo.persona_agents").__file__).parent
        modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "build"}
        assert len(zoo_models.names()) == len(set(zoo_models.names())) == len(modules)
        assert set(zoo_models.names()) == modules
        presets = {name.partition("/")[2] for name in compat_presets.names()}
        assert modules - presets == set(BUNDLED) and presets < modules
        assert len(presets) == len(SYSTEMS) * len(TASKS)

    @pytest.mark.parametrize("name", zoo_models.names())
    def test_each_module_gets_its_own_model(self, name, tmp_path, monkeypatch):
        asked = []
        monkeypatch.setattr(zoo_models, "provide", lambda *arguments: asked.append(arguments))
        path = modelzoo_path(str(tmp_path), f"{PREFIX}{name}/model")
        assert asked == [(name, str(tmp_path))]
        assert path == str(folder_of(tmp_path, name) / "model")

    def test_a_name_that_there_is_not(self, tmp_path):
        with pytest.raises(PersonaAgentsError, match=r"no such model.*hcm_mini_zh/model"):
            modelzoo_path(str(tmp_path), "zoo:persona_agents/hcm_mini_fr/model")


@pytest.mark.parametrize("name", BUNDLED)
class TestBundled:
    def test_it_is_small_and_sound(self, name, tmp_path):
        archive = zoo_models.bundled_archive(name)
        assert archive.stat().st_size <= 3_000_000
        packing.unpack(str(archive), str(tmp_path))
        card = (tmp_path / "model_card.md").read_text(encoding="utf-8")
        assert "corpus_bleu_signature" in card and "MIT" in card and "--seed 1" in card

    def test_it_gets_where_parlai_looks(self, name, tmp_path, monkeypatch):
        monkeypatch.delenv(zoo_models.ZOO_URL, raising=False)
        monkeypatch.setattr(zoo_models.requests, "get", None)  # no network
        path = Path(modelzoo_path(str(tmp_path), f"{PREFIX}{name}/model"))
        assert path == folder_of(tmp_path, name) / "model" and path.is_file()
        assert without_locks(path.parent.parent) == [name]
        stamp = path.stat().st_mtime_ns
        modelzoo_path(str(tmp_path), f"{PREFIX}{name}/model")
        assert path.stat().st_mtime_ns == stamp, "it is unpacked once"
        path.unlink()
        modelzoo_path(str(tmp_path), f"{PREFIX}{name}/model")
        assert path.is_file(), "what was deleted comes back"

    def test_a_new_version_replaces_the_old(self, name, tmp_path, monkeypatch):
        zoo_models.provide(name, str(tmp_path))
        other = BUNDLED[1 - BUNDLED.index(name)]
        newer = zoo_models.bundled_archive(other)
        monkeypatch.setattr(zoo_models, "bundled_archive", lambda _: newer)
        zoo_models.provide(name, str(tmp_path))
        zoo_models.provide("new", str(tmp_path))
        one, two = (folder_of(tmp_path, n) / "model.dict" for n in (name, "new"))
        assert one.read_bytes() == two.read_bytes()
        assert without_locks(tmp_path / "models" / "persona_agents") == sorted([name, "new"])

    @pytest.mark.parametrize(
        "samples", [80, pytest.param(None, marks=pytest.mark.slow)], ids=["part", "all"]
    )
    def test_it_answers(self, name, samples, tmp_path, monkeypatch):
        """Share of right answers: the asked name and no other."""
        monkeypatch.setenv("PARLAI_DATAPATH", str(tmp_path))
        agent = create_agent_from_model_file(f"{PREFIX}{name}/model")
        chosen = tiny.samples(LANGUAGES[name], "test")[:samples]
        replies = [
            r for i in range(0, len(chosen), 50) for r in tiny.replies(agent, chosen[i : i + 50])
        ]
        right = [
            is_right(reply, sample.response, sample.persona, sample.query)
            for reply, sample in zip(replies, chosen)
        ]
        assert len(right) == len(chosen) >= 80
        assert sum(right) / len(right) >= 0.95


def test_training_can_start_from_it(tmp_path):
    """``--init-model zoo:…``, with the model's sizes."""
    settings = {**tiny.SIZES, "embedding_size": 128, "n_heads": 4, "ffn_size": 512}
    settings.update(n_encoder_layers=2, n_decoder_layers=2, datapath=str(tmp_path))
    corpus = tiny.write_corpus(tmp_path / "corpus", tiny.samples("zh")[:4])
    agent = tiny.new_agent(
        init_model=f"{PREFIX}hcm_mini_zh/model",
        model_file=str(tmp_path / "x"),
        **settings,
        **corpus,
    )
    (loss,) = tiny.train_steps(agent, [tiny.samples("zh")[:4]])
    assert loss < 1.0, "it knows its corpus already"


def test_many_at_once(tmp_path, monkeypatch):
    """Several programs that start together get one whole model, unpacked by one of them."""
    errors, installs, install = [], [], zoo_models._install

    def slow_install(*arguments):
        installs.append(arguments)
        time.sleep(0.3)
        install(*arguments)

    def get():
        try:
            zoo_models.provide("hcm_mini_zh", str(tmp_path))
        except Exception as error:  # noqa: BLE001 - reported below
            errors.append(error)

    monkeypatch.setattr(zoo_models, "_install", slow_install)
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(installs) == 1
    assert without_locks(tmp_path / "models" / "persona_agents") == ["hcm_mini_zh"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "models").write_text("", encoding="utf-8")
    with pytest.raises(PersonaAgentsError, match="cannot be written.*--datapath.*PARLAI_DATAPATH"):
        zoo_models.provide("hcm_mini_zh", str(tmp_path))


@pytest.mark.parametrize(
    ("data", "writable", "chosen"),
    [(False, False, True), (False, True, False), (True, False, False)],
)
def test_site_packages_that_cannot_be_written(tmp_path, monkeypatch, data, writable, chosen):
    monkeypatch.setattr(plugin.os, "access", lambda path, mode: writable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PARLAI_DATAPATH", "x")
    if data:
        (tmp_path / "data").mkdir()
    plugin._choose_datapath(tmp_path)
    assert os.environ["PARLAI_DATAPATH"] == "x", "the user's choice stays"
    monkeypatch.delenv("PARLAI_DATAPATH")
    plugin._choose_datapath(tmp_path)
    expected = str(tmp_path / "home" / ".parlai" / "data") if chosen else None
    assert os.environ.get("PARLAI_DATAPATH") == expected
    monkeypatch.delenv("PARLAI_DATAPATH", raising=False)


# -- from a server ---------------------------------------------------------------------------------


class ZooHandler(Handler):
    """Serves the server's `files` by name, with the faults of its parent."""

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        self.server.data = self.server.files[name]
        super().do_GET()


@pytest.fixture
def server(monkeypatch):
    """A server of packed models, whose address the environment variable gives."""
    monkeypatch.setattr(download, "TIMEOUT", 1.0)
    monkeypatch.setattr(download, "PAUSE", 0.001)
    monkeypatch.setattr(download, "ATTEMPTS", 3)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ZooHandler)
    server.files, server.faults, server.requests, server.asked = {}, [], [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv(zoo_models.ZOO_URL, f"http://127.0.0.1:{server.server_port}/models/")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def publish(server, data: bytes | None = None, checksum: str | None = None) -> bytes:
    """Put an archive (a bundled one by default) on the server under NAME."""
    archive = zoo_models.bundled_archive("hcm_mini_zh")
    data = archive.read_bytes() if data is None else data
    if checksum is None:
        checksum = packing.hashlib.sha256(data).hexdigest()
    server.files[f"{NAME}.zip"] = data
    server.files[f"{NAME}.zip.sha256"] = f"{checksum}  {NAME}.zip\n".encode()
    return data


def refused(tmp_path, pattern) -> None:
    """Getting the model fails with one message, and nothing is left behind."""
    with pytest.raises(PersonaAgentsError, match=pattern) as caught:
        modelzoo_path(str(tmp_path), PATH)
    assert len(str(caught.value).splitlines()) == 1
    parent = folder_of(tmp_path).parent
    assert not parent.exists() or without_locks(parent) == []
    assert not list(tmp_path.rglob("evil*"))


class TestServer:
    def test_from_pack_to_reply(self, server, tmp_path, monkeypatch):
        """Packed by one user, published, and used by another one."""
        from persona_agents.scripts.persona_zoo import PersonaZoo

        corpus = tiny.write_corpus(tmp_path / "corpus", tiny.samples("zh")[:4])
        agent = tiny.new_agent(model_file=str(tmp_path / "mine" / "model"), seed=1, **corpus)
        agent.save()
        expected = tiny.replies(agent, tiny.samples("zh")[:4])
        archive = tmp_path / "www" / f"{NAME}.zip"
        PersonaZoo.main(model_file=str(tmp_path / "mine" / "model"), pack=str(archive))
        for path in archive.parent.iterdir():
            server.files[path.name] = path.read_bytes()
        shutil.rmtree(tmp_path / "mine")
        shutil.rmtree(tmp_path / "corpus")

        monkeypatch.setenv("PARLAI_DATAPATH", str(tmp_path / "data"))
        loaded = create_agent_from_model_file(PATH)
        assert tiny.replies(loaded, tiny.samples("zh")[:4]) == expected
        assert loaded.opt["model_file"] == str(folder_of(tmp_path / "data") / "model")
        assert without_locks(folder_of(tmp_path / "data").parent) == [NAME]
        asked = len(server.asked)
        create_agent_from_model_file(PATH)
        assert server.asked == [f"{NAME}.zip.sha256", f"{NAME}.zip"] and asked == 2

    def test_cut_off_it_goes_on(self, server, tmp_path):
        publish(server)
        server.faults = [None, "cut", "stall", 503]
        modelzoo_path(str(tmp_path), PATH)
        assert server.requests[:3] == [None, None, "bytes=8192-"]
        assert (folder_of(tmp_path) / "model").is_file()

    def test_the_server_goes_away(self, server, tmp_path):
        data = publish(server)
        server.faults = [None, "cut", *["nothing"] * 9]
        with pytest.raises(PersonaAgentsError, match="goes on from there"):
            modelzoo_path(str(tmp_path), PATH)
        parent = folder_of(tmp_path).parent
        assert without_locks(parent) == [f"{NAME}.zip.part"]
        server.faults = []
        modelzoo_path(str(tmp_path), PATH)
        assert without_locks(parent) == [NAME]
        assert server.requests[-1] == "bytes=8192-" and len(data) > 8192

    def test_other_bytes(self, server, tmp_path):
        publish(server)
        server.faults = [None, "other bytes", None]
        refused(tmp_path, "SHA-256 checksum .* is expected. It was deleted")

    def test_a_checksum_in_the_list(self, server, tmp_path, monkeypatch):
        """It goes before what the server says, and another one asks for the model anew."""
        data = publish(server, checksum="0" * 64)
        entry = next(entry for entry in model_list if entry["path"] == PATH)
        monkeypatch.setitem(entry, "sha256", packing.hashlib.sha256(data).hexdigest())
        for _ in range(2):
            modelzoo_path(str(tmp_path), PATH)
        assert server.asked == [f"{NAME}.zip"]
        monkeypatch.setitem(entry, "sha256", "1" * 64)
        with pytest.raises(PersonaAgentsError, match="but 1111.* is expected"):
            modelzoo_path(str(tmp_path), PATH)
        assert without_locks(folder_of(tmp_path).parent) == [NAME], "the old one stays"

    @pytest.mark.parametrize("data", [b"", b"<html>", "half", "attack"])
    def test_what_is_no_packed_model(self, server, tmp_path, data):
        """Its checksum is right, but not what is in it."""
        whole = publish(server)
        if data == "half":
            data = whole[: len(whole) // 2]
        elif data == "attack":
            path = tmp_path / "x.zip"
            path.write_bytes(whole)
            with packing.zipfile.ZipFile(path, "a") as file:
                file.writestr("../../evil", b"x")
            data = path.read_bytes()
            path.unlink()
        publish(server, data)
        refused(tmp_path, "no complete zip file|belongs to no packed model")

    @pytest.mark.parametrize("checksum", ["", "0" * 63, "<html>", "\xff"])
    def test_what_is_no_checksum(self, server, tmp_path, checksum):
        publish(server, checksum=checksum)
        refused(tmp_path, "holds no SHA-256 checksum")

    def test_nothing_of_that_name(self, server, tmp_path):
        refused(tmp_path, rf"the server answers 404 Not Found.*{zoo_models.ZOO_URL}")
        publish(server)
        del server.files[f"{NAME}.zip"]
        refused(tmp_path, "the server answers 404 Not Found")

    def test_nobody_there(self, tmp_path, monkeypatch):
        monkeypatch.setenv(zoo_models.ZOO_URL, "http://127.0.0.1:9")
        refused(tmp_path, r"cannot be fetched \(ConnectionError\)")

    @pytest.mark.parametrize("address", ["host/models", "ftp://host/models"])
    def test_what_is_no_address(self, tmp_path, monkeypatch, address):
        monkeypatch.setenv(zoo_models.ZOO_URL, address)
        refused(tmp_path, re.escape(f"{address}/{NAME}.zip.sha256 cannot be fetched"))

    def test_none_is_published(self, tmp_path, monkeypatch):
        monkeypatch.delenv(zoo_models.ZOO_URL, raising=False)
        refused(tmp_path, "not published yet.*-o persona_agents/hcm_cpc -mf.*hcm_mini_zh/model")
        assert not list(tmp_path.iterdir()), "not even a folder"
