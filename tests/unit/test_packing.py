"""Packed models: complete, the same bytes each time, nothing private, and hostile ones refused."""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import os
import re
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
import tiny
import torch
from parlai.core.agents import create_agent_from_model_file

from persona_agents import packing, zoo_card
from persona_agents.errors import PersonaAgentsError
from persona_agents.scripts import zoo_commands

CHOSEN = tiny.samples("zh")[:6]


def card(name="tiny", **settings):
    return lambda *args: zoo_card.write(name, *args, **settings)


def saved_agent(folder: Path, **settings):
    """An agent that has trained two steps, its checkpoint in `folder`/model."""
    corpus = tiny.write_corpus(folder / "corpus", CHOSEN)
    settings = {"max_train_steps": 2, "seed": 1, **settings, **corpus}
    agent = tiny.new_agent(**settings, model_file=str(folder / "model"))
    tiny.train_steps(agent, [CHOSEN[:3], CHOSEN[3:]])
    agent.save()
    return agent


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny HCM's model file; its options name paths and accounts."""
    folder = tmp_path_factory.mktemp("trained")
    saved_agent(folder)
    path = folder / "model.opt"
    opt = json.loads(path.read_text(encoding="utf-8"))
    opt.update(
        wandb_entity="a-user",
        tensorboard_logdir="logs/a-user",
        cpc_url="https://a-user:secret@host/x.zip",
        beam_block_list_filename="block/a-user.txt",
        datapath=str(folder / "data"),
        override={"personachat_path": str(folder / "corpus"), "seed": 1},
        note=["", {"of": "see /home/a-user/notes"}],
        other="~a-user/x",
        windows="C:\\Users\\a-user",
    )
    path.write_text(json.dumps(opt), encoding="utf-8")
    return str(folder / "model")


@pytest.fixture(scope="module")
def archive(trained, tmp_path_factory):
    """That model, packed."""
    path = tmp_path_factory.mktemp("packed") / "tiny.zip"
    packing.pack(trained, str(path), card())
    return path


def content(archive) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def message_of(function, *args) -> str:
    with pytest.raises(PersonaAgentsError) as caught:
        function(*args)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) > 40
    return message


class TestPack:
    def test_content(self, archive, trained):
        files = content(archive)
        assert list(files) == sorted(packing.FILES[:-1]) + [packing.SUMS]
        sums = dict(
            line.split("  ")[::-1] for line in files.pop("SHA256SUMS").decode().splitlines()
        )
        assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        states = torch.load(io.BytesIO(files["model"]), weights_only=True)
        assert list(states) == ["model"], "weights and nothing of the training"
        whole = torch.load(trained, weights_only=True)
        assert "optimizer" in whole
        assert all(torch.equal(whole["model"][name], w) for name, w in states["model"].items())
        assert files["model.dict"] == Path(f"{trained}.dict").read_bytes()

    def test_the_same_bytes_again(self, archive, trained, tmp_path):
        packing.pack(trained, str(tmp_path / "again.zip"), card())
        assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
        assert os.listdir(tmp_path) == ["again.zip"]
        with zipfile.ZipFile(archive) as file:
            assert {info.date_time[0] for info in file.infolist()} == {1980}

    def test_nothing_private(self, archive, trained):
        for name, data in content(archive).items():
            if name != "model.dict":
                for private in (str(Path(trained).parent), "a-user", "secret", str(Path.home())):
                    assert private.encode() not in data, (name, private)
        opt = json.loads(content(archive)["model.opt"])
        assert getpass.getuser() not in opt.values()
        assert not packing.private_options(opt) and "override" not in opt and "datapath" not in opt
        assert opt["model"] == "persona_agents:hcm" and opt["bert_config"]["hidden_size"] == 32
        assert opt["embedding_size"] == 32 and opt["bert_model"] == "none"

    def test_pretrained_models(self, tmp_path, monkeypatch):
        """The name of one on the hub stays, the folder of one does not."""
        opt = {"bert_model": "bert-base-chinese", "gpt_model": "gpt"}
        assert packing.public_options(opt) == opt
        monkeypatch.chdir(tmp_path)
        (tmp_path / "gpt").mkdir()
        assert packing.public_options(opt) == {"bert_model": "bert-base-chinese"}
        assert packing.public_options({"bert_model": str(tmp_path)}) == {}

    @pytest.mark.parametrize(
        "text",
        ["/home/a", "x /tmp/y", "a,/b/c", "~/x", "~me/x", "C:\\x", "\\\\host\\x", "file:x", "../x"],
    )
    def test_what_a_path_is(self, text):
        assert packing.holds_path(text) and packing.holds_path([{"key": text}])
        assert packing.private_options({"option": text}) == ["option"]

    @pytest.mark.parametrize(
        "text", ["https://host/x", "uer/gpt2", "and/or", "1/10", "cpc:mini", "zoo:a/b", "\n", "a.b"]
    )
    def test_what_no_path_is(self, text):
        assert not packing.holds_path(text)

    def test_half_precision(self, trained, archive, tmp_path):
        packing.pack(trained, str(tmp_path / "half.zip"), card(), half=True)
        halves = torch.load(io.BytesIO(content(tmp_path / "half.zip")["model"]), weights_only=True)
        assert {w.dtype for w in halves["model"].values()} == {torch.float16}
        packing.unpack(str(tmp_path / "half.zip"), str(empty(tmp_path / "new")))
        agent = create_agent_from_model_file(str(tmp_path / "new" / "model"))
        whole = torch.load(trained, weights_only=True)["model"]
        for name, weight in agent.model.state_dict().items():
            assert weight.dtype == torch.float32
            assert torch.equal(weight, whole[name].half().float())

    def test_too_large_for_half_precision(self, trained, tmp_path):
        copy_model(trained, tmp_path)
        states = torch.load(tmp_path / "model", weights_only=True)
        next(iter(states["model"].values()))[0, 0] = 1e5
        torch.save(states, tmp_path / "model")
        arguments = (str(tmp_path / "model"), str(tmp_path / "x.zip"), card(), True)
        assert "leave out --half" in message_of(packing.pack, *arguments)
        assert not (tmp_path / "x.zip").exists()

    def test_tied_weights_are_stored_once(self):
        tied = torch.ones(1000)
        weights = packing._halved("x", {"a": tied, "b": tied, "c": tied + 1})
        assert weights["a"] is weights["b"] and weights["a"].dtype == torch.float16

    @pytest.mark.parametrize("suffix", ["", ".opt", ".dict"])
    def test_something_is_missing(self, trained, tmp_path, suffix):
        copy_model(trained, tmp_path)
        os.remove(f"{tmp_path}/model{suffix}")
        arguments = (f"{tmp_path}/model", f"{tmp_path}/x.zip", card())
        assert f"model{suffix} is missing" in message_of(packing.pack, *arguments)

    def test_another_agent(self, trained, tmp_path):
        copy_model(trained, tmp_path)
        (tmp_path / "model.opt").write_text('{"model": "seq2seq"}', encoding="utf-8")
        arguments = (f"{tmp_path}/model", f"{tmp_path}/x.zip", card())
        assert "'seq2seq'" in message_of(packing.pack, *arguments)

    def test_a_place_that_cannot_be_written(self, trained, tmp_path):
        (tmp_path / "file").write_text("", encoding="utf-8")
        message = message_of(packing.pack, trained, str(tmp_path / "file" / "x.zip"), card())
        assert "cannot be written" in message


def copy_model(trained: str, folder: Path) -> None:
    for path in Path(trained).parent.glob("model*"):
        (folder / path.name).write_bytes(path.read_bytes())


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


REPORT = {
    "opt": {"task": "cpc:mini", "datatype": "test", "inference": "greedy", "datapath": "/x/y"},
    "report": {
        "ppl": 3.25,
        "tps": 100.0,
        "exs": 12,
        "corpus_bleu_4": 55.4,
        "corpus_bleu_signature": "tok:basic|smooth:none",
    },
}


class TestCard:
    def test_it_says_what_was_measured_and_how(self, trained, tmp_path):
        licence = "CC BY 4.0"
        write = card("my_model", report=REPORT, licence=licence)
        packing.pack(trained, str(tmp_path / "x.zip"), write)
        text = content(tmp_path / "x.zip")["model_card.md"].decode()
        assert "| ppl | 3.25 |" in text and "| exs | 12 |" in text and "tps" not in text
        assert "task `cpc:mini`, split `test`, search `greedy`" in text
        assert "tok:basic\\|smooth:none" in text
        assert text.endswith("## Licence\n\nCC BY 4.0\n")
        parameters = sum(w.numel() for w in torch.load(trained)["model"].values())
        assert f"with {parameters:,} parameters" in text and "| hidden_size | 32 |" in text
        command = re.search(r"parlai train_model .*", text)[0]
        expected = "-m persona_agents:hcm -t personachat_single_turn --bert-model none --embedding"
        assert expected in command
        assert "--personachat-path FOLDER" in command and "--seed 1" in command
        assert "--n-encoder-layers 1" in command and "batchsize" not in command

    def test_without_report_and_licence(self, archive):
        text = content(archive)["model_card.md"].decode()
        assert "No report was given" in text and "Not stated" in text

    def test_a_path_in_the_licence(self, trained, tmp_path):
        write = card(licence="see /home/a-user/LICENSE")
        message = message_of(packing.pack, trained, str(tmp_path / "x.zip"), write)
        assert "/h" in message and not list(tmp_path.iterdir())


# -- archives from anywhere ------------------------------------------------------------------------


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def saved(states) -> bytes:
    buffer = io.BytesIO()
    torch.save(states, buffer)
    return buffer.getvalue()


def rewrite(archive, target, fit=True, add=(), entry=None, **files) -> Path:
    """
    A copy of an archive with other files, None leaving one out.

    :param fit: whether SHA256SUMS is made to fit
    :param add: (name, bytes) of further entries
    :param entry: called with each ZipInfo after its file was written
    """
    names = {"model": "model", "opt": "model.opt", "card": "model_card.md", "sums": "SHA256SUMS"}
    changed = {**content(archive), **{names[key]: data for key, data in files.items()}}
    changed = {name: data for name, data in changed.items() if data is not None}
    if fit and "SHA256SUMS" in changed:
        changed["SHA256SUMS"] = "".join(
            f"{hashlib.sha256(data).hexdigest()}  {name}\n"
            for name, data in changed.items()
            if name != "SHA256SUMS"
        ).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in [*changed.items(), *add]:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, data)
            if entry:
                entry(info)
    return target


def options(archive, **changes) -> bytes:
    return json.dumps({**json.loads(content(archive)["model.opt"]), **changes}).encode()


def make_link(info):
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


def make_device(info):
    info.external_attr = (stat.S_IFCHR | 0o666) << 16


def make_encrypted(info):
    info.flag_bits |= 1


def make_large(info):
    info.file_size += 100


def make_small(info):
    info.file_size = min(info.file_size, 100)


HOSTILE = {
    "up": (lambda a, t: rewrite(a, t, add=[("../evil", b"x")]), "'../evil', which belongs to no"),
    "absolute": (lambda a, t: rewrite(a, t, add=[("/tmp/evil", b"x")]), "'/tmp/evil'"),
    "below": (lambda a, t: rewrite(a, t, add=[("model/evil", b"x")]), "'model/evil'"),
    "windows": (lambda a, t: rewrite(a, t, add=[("C:\\evil", b"x")]), "evil'"),
    "code": (lambda a, t: rewrite(a, t, add=[("model.py", b"x")]), "'model.py'"),
    "folder": (lambda a, t: rewrite(a, t, add=[("model/", b"")]), "'model/'"),
    "twice": (lambda a, t: rewrite(a, t, add=[("model", b"x")]), "holds a file twice"),
    "link": (lambda a, t: rewrite(a, t, entry=make_link), "is a link or device"),
    "device": (lambda a, t: rewrite(a, t, entry=make_device), "is a link or device"),
    "encrypted": (lambda a, t: rewrite(a, t, entry=make_encrypted), "is encrypted"),
    "no weights": (lambda a, t: rewrite(a, t, model=None), "it lacks model"),
    "no sums": (lambda a, t: rewrite(a, t, sums=None), "it lacks SHA256SUMS"),
    "bomb": (lambda a, t: rewrite(a, t, model=bytes(50_000_000)), "bytes would become"),
    "wrong size": (lambda a, t: rewrite(a, t, entry=make_small), "is damaged"),
    "larger size": (lambda a, t: rewrite(a, t, entry=make_large), "is damaged"),
    "other weights": (lambda a, t: rewrite(a, t, fit=False, model=saved({})), "SHA256SUMS says"),
    "sums of nothing": (
        lambda a, t: rewrite(a, t, fit=False, sums=b"\n"),
        "does not list its files",
    ),
    "sums no text": (
        lambda a, t: rewrite(a, t, fit=False, sums=b"\xff\xfe"),
        "SHA256SUMS is no text",
    ),
    "weights of code": (
        lambda a, t: rewrite(a, t, model=saved({"model": Attack(t.parent / "attacked")})),
        "could run foreign code",
    ),
    "weights damaged": (lambda a, t: rewrite(a, t, model=b"x" * 1000), "model cannot be read"),
    "weights empty": (lambda a, t: rewrite(a, t, model=b""), "empty or ends too early"),
    "weights a list": (lambda a, t: rewrite(a, t, model=saved([1])), "no dictionary of states"),
    "weights none": (lambda a, t: rewrite(a, t, model=saved({"x": 1})), "no weights of a model"),
    "weights no tensors": (
        lambda a, t: rewrite(a, t, model=saved({"model": {"x": "y"}})),
        "no weights of a model",
    ),
    "weights with training": (
        lambda a, t: rewrite(a, t, model=saved({"model": {}, "optimizer": {}})),
        "more than a model: optimizer",
    ),
    "weights with path": (
        lambda a, t: rewrite(a, t, model=saved({"model": {}, "from": "/home/x"})),
        "more than a model: from",
    ),
    "options no JSON": (lambda a, t: rewrite(a, t, opt=b"{"), "model.opt cannot be read"),
    "options nested": (
        lambda a, t: rewrite(a, t, opt=b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "model.opt cannot be read",
    ),
    "options of another agent": (
        lambda a, t: rewrite(a, t, opt=options(a, model="os:system")),
        "'os:system'. Only models of this package's",
    ),
    "options of no agent": (
        lambda a, t: rewrite(a, t, opt=options(a, model="persona_agents:zoo_models")),
        "persona_agents:zoo_models",
    ),
    "options with path": (
        lambda a, t: rewrite(a, t, opt=options(a, some={"x": ["/etc/passwd"]})),
        "model.opt sets some",
    ),
    "options with file": (
        lambda a, t: rewrite(a, t, opt=options(a, init_model="x")),
        "model.opt sets init_model",
    ),
    "card with path": (
        lambda a, t: rewrite(a, t, card=b"see /home/x/y"),
        "model_card.md names a file",
    ),
    "truncated": (lambda a, t: t.write_bytes(a.read_bytes()[:-500]), "no complete zip file"),
    "half": (lambda a, t: t.write_bytes(a.read_bytes()[:20_000]), "no complete zip file"),
    "empty": (lambda a, t: t.write_bytes(b""), "no complete zip file"),
    "a web page": (lambda a, t: t.write_text("<html>log in</html>"), "no complete zip file"),
    "a tar": (lambda a, t: tarfile.open(t, "w:gz").close(), "no complete zip file"),
    "missing": (lambda a, t: None, "cannot be read: No such file"),
}


class TestUnpack:
    @pytest.mark.filterwarnings("ignore:Duplicate name")
    @pytest.mark.parametrize("how", HOSTILE)
    def test_hostile(self, archive, tmp_path, how):
        make, expected = HOSTILE[how]
        place = empty(tmp_path / "place")
        bad = place / "bad.zip"
        make(archive, bad)
        before = bad.exists() and bad.read_bytes()
        folder = empty(tmp_path / "new")
        message = message_of(packing.unpack, str(bad), str(folder))
        assert expected in message and str(bad) in message
        assert {path.name for path in folder.iterdir()} <= set(packing.FILES)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "place"]
        assert os.listdir(place) == (["bad.zip"] if before is not False else []), "no attack"
        assert message == message_of(zoo_commands.verify, {"verify": str(bad)})

    def test_what_cannot_be_built(self, archive, tmp_path):
        """Sound as an archive, but its options do not describe its weights."""
        config = {**json.loads(content(archive)["model.opt"])["bert_config"], "hidden_size": 30}
        bad = rewrite(archive, tmp_path / "bad.zip", opt=options(archive, bert_config=config))
        packing.unpack(str(bad), str(empty(tmp_path / "new")))
        message = message_of(zoo_commands.verify, {"verify": str(bad)})
        assert f"{bad} cannot be loaded: " in message and "/new" not in message

    def test_corrupt_in_many_places(self, archive, tmp_path):
        """Whichever byte is wrong, either all is as before or the archive is refused."""
        data = archive.read_bytes()
        whole = content(archive)
        refused = 0
        for place in range(0, len(data), len(data) // 60):
            bad = tmp_path / "bad.zip"
            bad.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
            folder = empty(tmp_path / f"{place}")
            try:
                packing.unpack(str(bad), str(folder))
            except PersonaAgentsError:
                refused += 1
            else:
                assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
        assert refused > 50

    def test_whole(self, archive, trained, tmp_path):
        packing.unpack(str(archive), str(empty(tmp_path / "new")))
        found = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
        assert found == content(archive)

    def test_a_name_given_twice_in_the_sums(self, archive, tmp_path):
        lines = content(archive)["SHA256SUMS"] * 2
        bad = rewrite(archive, tmp_path / "bad.zip", fit=False, sums=lines)
        assert "list its files" in message_of(
            packing.unpack, str(bad), str(empty(tmp_path / "new"))
        )
