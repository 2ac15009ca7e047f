"""Which BERT is taken, what is loaded from it, and one message when it cannot be."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import requests
import tiny
import torch

from persona_agents import bert
from persona_agents.errors import PersonaAgentsError


@pytest.fixture(scope="module")
def small_bert(tmp_path_factory, minilm):
    """A folder of a tiny BERT, and its weights."""
    folder = str(tmp_path_factory.mktemp("bert") / "small")
    return folder, tiny.make_bert(folder, minilm)


@pytest.fixture
def damaged(small_bert, tmp_path):
    """A copy of the small BERT's folder, for a test to damage."""
    return Path(shutil.copytree(small_bert[0], tmp_path / "copy"))


def agent_of(folder, tmp_path, **settings):
    corpus = tiny.write_corpus(tmp_path / "corpus", tiny.samples("en")[:4])
    settings = {**tiny.with_bert(str(folder)), **settings}
    return tiny.new_agent(**corpus, **settings, model_file=str(tmp_path / "model"))


class TestResolve:
    @pytest.mark.parametrize(
        ("task", "name"),
        [
            ("cpc", "bert-base-chinese"),
            ("cpc:raw", "bert-base-chinese"),
            ("xpersona:Zh", "bert-base-chinese"),
            ("personachat_single_turn", "bert-base-uncased"),
            ("personachat", "bert-base-uncased"),
            ("xpersona:It", "bert-base-uncased"),
            ("blended_skill_talk,convai2", "bert-base-uncased"),
            ("", "bert-base-uncased"),
            (None, "bert-base-uncased"),
        ],
    )
    def test_auto_goes_by_the_task(self, task, name):
        assert bert.resolve({"bert_model": "auto", "task": task}) == name
        assert bert.resolve({"task": task}) == name

    def test_names_and_folders_stand_for_themselves(self):
        assert (
            bert.resolve({"bert_model": "someone/some-bert", "task": "cpc"}) == "someone/some-bert"
        )
        assert bert.resolve({"bert_model": "~/b"}) == str(Path("~/b").expanduser())

    def test_auto_is_the_default_option(self):
        opt = tiny.options(task="cpc:mini", model_file="unused", **dict.fromkeys(tiny.SIZES))
        assert bert.resolve(opt) == "bert-base-chinese" and not bert.is_none(opt)


class TestOneMessage:
    """Whatever is wrong with a BERT ends in one PersonaAgentsError that shows the way out."""

    def message(self, tmp_path, folder, **settings):
        with pytest.raises(PersonaAgentsError) as error:
            agent_of(folder, tmp_path, **settings)
        assert not list(tmp_path.glob("model*")), "nothing half-finished is left"
        text = str(error.value)
        assert str(folder) in text and "--bert-model" in text
        return text

    def test_folder_without_bert(self, tmp_path):
        (tmp_path / "empty").mkdir()
        text = self.message(tmp_path, tmp_path / "empty")
        assert "no config.json" in text and "`none`" in text

    def test_another_kind_of_model(self, tmp_path, damaged):
        (damaged / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
        assert "'gpt2'" in self.message(tmp_path, damaged)

    @pytest.mark.parametrize("content", ["", "{", "[]", "\x00\xff"])
    def test_config_that_cannot_be_read(self, tmp_path, damaged, content):
        (damaged / "config.json").write_text(content, encoding="latin-1")
        assert "config.json" in self.message(tmp_path, damaged)

    @pytest.mark.parametrize(
        "folder", ["/no/such/folder", "./nothing-here", "~/nothing-here/at-all"]
    )
    def test_missing_folder(self, tmp_path, folder):
        expanded = str(Path(folder).expanduser()) if folder[0] == "~" else folder
        assert "no such folder" in self.message(tmp_path, expanded)

    def test_a_file_is_no_folder(self, tmp_path, damaged):
        assert "no such folder" in self.message(tmp_path, damaged / "vocab.txt")

    def test_truncated_weights(self, tmp_path, damaged):
        (weights,) = [*damaged.glob("*.safetensors"), *damaged.glob("*.bin")]
        weights.write_bytes(weights.read_bytes()[:5000])
        text = self.message(tmp_path, damaged)
        assert "weights" in text and "cannot be loaded" in text

    def test_missing_weights(self, tmp_path, damaged):
        for path in [*damaged.glob("*.safetensors"), *damaged.glob("*.bin")]:
            path.unlink()
        assert "weights" in self.message(tmp_path, damaged)

    def test_missing_vocabulary(self, tmp_path, damaged):
        for name in ("vocab.txt", "tokenizer.json"):
            (damaged / name).unlink()
        assert "vocabulary" in self.message(tmp_path, damaged)

    @pytest.mark.parametrize("name", ["bert-no-such-model", "someone/bert-no-such-model"])
    def test_hub_that_cannot_be_reached(self, tmp_path, monkeypatch, name):
        asked = []

        def no_network(session, method, url, **settings):
            asked.append(settings["timeout"])
            raise requests.ConnectionError

        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr(requests.Session, "request", no_network)
        text = self.message(tmp_path, name)
        assert asked == [bert.HUB_TIMEOUT], "asked once, with a limit: no minutes of retries"
        assert "cannot be reached" in text and "--bert-model none" in text

    def test_hub_is_not_asked_when_offline(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(requests, "head", lambda *args, **kwargs: pytest.fail("asked the hub"))
        text = self.message(tmp_path, "bert-no-such-model")
        assert "HF_HUB_OFFLINE" in text and "--bert-model none" in text


class TestSizes:
    def options(self, **settings):
        given = {**dict.fromkeys(tiny.SIZES), "bert_model": "none", **settings}
        return tiny.options(task="cpc:mini", model_file="unused", **given)

    @pytest.mark.parametrize("name", ["embedding_size", "n_heads", "ffn_size", "n_encoder_layers"])
    def test_berts_own_sizes_cannot_be_given(self, name, small_bert):
        option = "--" + name.replace("_", "-")
        with pytest.raises(PersonaAgentsError, match=f"{option} has no effect with --bert-model"):
            bert.check_options(self.options(bert_model=small_bert[0], **{name: 8}))
        bert.check_options(self.options(bert_model="none", **{name: 8}))

    @pytest.mark.parametrize("name", ["embedding_size", "n_heads", "ffn_size", "n_encoder_layers"])
    def test_a_saved_models_sizes_stay(self, name):
        opt = self.options(embedding_size=32, n_heads=2, ffn_size=64, n_encoder_layers=1)
        saved = bert.describe(bert.small_config(opt, vocab_size=10, pad_id=0))
        bert.check_sizes_kept(opt, saved)
        bert.check_sizes_kept(self.options(), saved)
        with pytest.raises(PersonaAgentsError, match=f"--{name.replace('_', '-')} 4: the saved"):
            bert.check_sizes_kept({**opt, name: 4}, saved)

    def test_decoder_layers_can_always_be_given(self, small_bert, tmp_path):
        bert.check_options(self.options(bert_model="auto", n_decoder_layers=2))
        assert len(agent_of(small_bert[0], tmp_path, n_decoder_layers=2).model.layers) == 2

    def test_decoder_is_as_deep_as_bert(self, small_bert, tmp_path):
        agent = agent_of(small_bert[0], tmp_path, n_decoder_layers=None)
        assert len(agent.model.layers) == agent.model.bert.config.num_hidden_layers == 1

    @pytest.mark.parametrize("sizes", [{"embedding_size": 30}, {"n_heads": 3}])
    def test_heads_divide_the_size(self, sizes):
        with pytest.raises(PersonaAgentsError, match="--embedding-size .* --n-heads .* a multiple"):
            bert.check_options(self.options(**sizes))

    @pytest.mark.parametrize("name", sorted(bert.SMALL))
    @pytest.mark.parametrize("value", [0, -1])
    def test_sizes_are_positive(self, name, value):
        with pytest.raises(PersonaAgentsError, match="must be at least 1"):
            bert.check_options(self.options(**{name: value}))

    def test_defaults_without_bert(self):
        config = bert.small_config(self.options(), vocab_size=99, pad_id=0)
        assert (config.hidden_size, config.num_attention_heads) == (256, 4)
        assert (config.intermediate_size, config.num_hidden_layers) == (1024, 3)
        assert config.vocab_size == 99

    def test_description_is_plain_data_and_complete(self, small_bert):
        config = bert.load_config(small_bert[0])
        described = json.loads(json.dumps(bert.describe(config)))
        again = bert.from_description(described)
        assert bert.describe(again) == described
        one, two = bert.build(config).state_dict(), bert.build(again).state_dict()
        assert {k: v.shape for k, v in one.items()} == {k: v.shape for k, v in two.items()}


# --bert-init -> the parts of BertModel that are BERT's
PARTS = {"all": ("embeddings", "encoder"), "embeddings": ("embeddings",), "none": ()}


@pytest.fixture(scope="module", params=sorted(PARTS))
def loaded(request, small_bert, tmp_path_factory):
    """(--bert-init, agent, BERT's own weights)"""
    folder, weights = small_bert
    agent = agent_of(folder, tmp_path_factory.mktemp("init"), bert_init=request.param, seed=1)
    return request.param, agent, weights


class TestWhatIsLoaded:
    def test_parts(self, loaded):
        init, agent, weights = loaded
        for name, value in agent.model.bert.state_dict().items():
            if name.endswith("position_ids"):
                continue
            expected = name.split(".")[0] in PARTS[init]
            assert torch.equal(value, weights[name]) is expected, name

    def test_generator_starts_from_the_embeddings_and_is_its_own(self, loaded):
        init, agent, weights = loaded
        embeddings = weights["embeddings.word_embeddings.weight"]
        generator = agent.model.generator.weight
        assert torch.equal(generator, embeddings) is (init != "none")
        assert generator is not agent.model.bert.embeddings.word_embeddings.weight
        assert generator.data_ptr() != agent.model.bert.embeddings.word_embeddings.weight.data_ptr()

    def test_each_parameter_learns_at_its_rate(self, loaded):
        init, agent, _ = loaded
        groups = agent.optimizer.param_groups
        names = {id(p): name for name, p in agent.model.named_parameters()}
        grouped = [[names[id(p)] for p in group["params"]] for group in groups]
        assert sorted(name for group in grouped for name in group) == sorted(names.values())
        assert all(p.requires_grad for p in agent.model.parameters())
        pretrained = [n for n in names.values() if re.match(r"bert\.(\w+)", n)]
        pretrained = [n for n in pretrained if n.split(".")[1] in PARTS[init]]
        assert agent.scheduler.peaks == ([5e-5, 7e-6] if pretrained else [5e-5])
        assert sorted(grouped[1] if len(grouped) > 1 else []) == sorted(pretrained)
        assert "generator.weight" in grouped[0] and "copy.gate.weight" in grouped[0]
        for group in groups:
            assert group["weight_decay"] == 0.01 and group["betas"] == (0.9, 0.999)

    def test_both_rates_are_reported(self, loaded):
        init, agent, _ = loaded
        tiny.train_steps(agent, [tiny.samples("en")[:4]])
        report = agent.report()
        assert ("pretrained_lr" in report) is (init != "none")
        if init != "none":
            ratio = report["lr"].value() / report["pretrained_lr"].value()
            assert ratio == pytest.approx(5e-5 / 7e-6)

    def test_sizes_are_berts(self, loaded):
        _, agent, _ = loaded
        model = agent.model
        assert model.generator.weight.shape == (30522, 32) and len(agent.dict) == 30522
        assert model.layers[0].ffn_in.out_features == 64
        assert agent.text_truncate == agent.label_truncate == 64, "BERT has only 64 positions"
        assert not hasattr(model.bert, "pooler") or model.bert.pooler is None


class TestOptimiserOptions:
    def test_without_bert_everything_is_new(self, tmp_path):
        agent = agent_of("none", tmp_path, **tiny.SIZES, learningrate=0.25)
        (group,) = agent.optimizer.param_groups
        assert len(group["params"]) == len(list(agent.model.parameters()))
        assert agent.scheduler.peaks == [0.25]

    def test_are_taken(self, small_bert, tmp_path):
        agent = agent_of(
            small_bert[0], tmp_path, learningrate=1e-2, pretrained_lr=1e-3, weight_decay=0.0,
            betas="0.8,0.99", adam_eps=1e-5,
        )  # fmt: skip
        assert agent.scheduler.peaks == [1e-2, 1e-3]
        for group in agent.optimizer.param_groups:
            assert group["weight_decay"] == 0.0, "0 is 0, not the library's default"
            assert group["betas"] == (0.8, 0.99) and group["eps"] == 1e-5

    @pytest.mark.parametrize(
        ("settings", "option"),
        [
            ({"optimizer": "sgd"}, "--optimizer sgd"),
            ({"warmup_ratio": 1.5}, "--warmup-ratio 1.5"),
            ({"person_tokens": True}, "--person-tokens"),
            ({"split_lines": True}, "--split-lines"),
            ({"validation_metric": "f1"}, "--validation-metric f1"),
        ],
    )
    def test_what_cannot_work_is_refused(self, tmp_path, settings, option):
        with pytest.raises(PersonaAgentsError) as error:
            agent_of("none", tmp_path, **tiny.SIZES, **settings)
        assert option in str(error.value)


def test_real_bert_is_loaded(minilm, tmp_path):
    """MiniLM itself: what the agent's encoder says is what the library's model says."""
    from transformers import BertModel

    agent = agent_of(minilm, tmp_path)
    agent.model.eval()
    _, observations = tiny.observe(agent, tiny.samples("en")[:2])
    ids = agent.batchify(observations).text_vec
    reference = BertModel.from_pretrained(minilm).eval()
    with torch.no_grad():
        encoded = agent.model.encoder(ids)
        expected = reference(
            input_ids=ids,
            attention_mask=ids.ne(0).long(),
            token_type_ids=(ids.eq(101).cumsum(1) > 1).long(),
        )[0]
    for source in (encoded.query, encoded.persona):
        rows, columns = source.word.nonzero(as_tuple=True)
        assert len(rows) > 4
        found, position = source.hidden[rows, columns], source.position[rows, columns]
        assert torch.allclose(found, expected[rows, position], atol=1e-5)
        assert found.shape[-1] == 384
