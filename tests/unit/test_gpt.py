"""Which GPT is taken, with which vocabulary, what is loaded from it, and what is said otherwise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gpt_models
import pytest
import requests
import tiny
import torch
import transformers
from gpt_models import VOCABULARIES, make_gpt, settings

from persona_agents import gpt
from persona_agents.errors import PersonaAgentsError
from persona_agents.gpt_dictionary import ME, PARTNER, PERSONA, GPTDictionaryAgent

ENGLISH = tiny.samples("en")[:8]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """vocabulary -> (folder of a small GPT, its weights)"""
    base = tmp_path_factory.mktemp("gpt")
    return {name: (base / name, make_gpt(base / name, name)) for name in VOCABULARIES}


@pytest.fixture(params=sorted(VOCABULARIES))
def vocabulary(request):
    return request.param


def agent_of(folder, tmp_path, model="lic", **more):
    corpus = tiny.write_corpus(tmp_path / "corpus", ENGLISH)
    given = {"model": f"persona_agents:{model}", **settings(folder), **more}
    return tiny.new_agent(**corpus, **given, model_file=str(tmp_path / "model"))


def dictionary_of(folder, **more) -> GPTDictionaryAgent:
    return GPTDictionaryAgent({"gpt_model": str(folder), "model": "persona_agents:lic", **more})


class TestResolve:
    @pytest.mark.parametrize(
        ("task", "name"),
        [
            ("cpc:raw", "uer/gpt2-chinese-cluecorpussmall"),
            ("xpersona:Zh", "uer/gpt2-chinese-cluecorpussmall"),
            ("personachat_single_turn", "openai-gpt"),
            (None, "openai-gpt"),
        ],
    )
    def test_auto_goes_by_the_task(self, task, name):
        assert gpt.GPT.resolve({"task": task}) == name

    def test_auto_is_the_default_and_bert_is_no_option(self):
        given = {**settings("x"), "gpt_model": None}
        opt = tiny.options(task="cpc:mini", model="persona_agents:lic", model_file="x", **given)
        assert opt["gpt_model"] == "auto" and "bert_model" not in opt


class TestVocabulary:
    TEXTS = (
        "i live in barley forge, do you know it?",
        "i don't. it's 3.5 miles!",
        "我家在蜂笛镇，你呢？",
        "我3岁就会说 english 了！",
    )

    def test_ids_are_the_librarys(self, folders, vocabulary):
        folder, _ = folders[vocabulary]
        name = {"wordpiece": "Bert", "bpe": "OpenAIGPT", "bytes": "GPT2"}[vocabulary]
        library = getattr(transformers, f"{name}TokenizerFast").from_pretrained(folder)
        dictionary = dictionary_of(folder)
        for text in self.TEXTS:
            expected = library(text, add_special_tokens=False)["input_ids"]
            assert dictionary.txt2vec(text) == expected

    def test_texts_come_back(self, folders, vocabulary):
        dictionary = dictionary_of(folders[vocabulary][0])
        for text in self.TEXTS:
            words = dictionary.txt2vec(text)
            around = [dictionary.start_token, ME, PARTNER, PERSONA, dictionary.end_token]
            ids = [
                *(dictionary[token] for token in around),
                *words,
                dictionary[dictionary.end_token],
            ]
            assert dictionary.vec2txt(ids).replace(" ", "") == text.replace(" ", "")

    def test_roles(self, folders, vocabulary):
        folder, _ = folders[vocabulary]
        dictionary = dictionary_of(folder)
        kept = {
            "wordpiece": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
            "bpe": ["<pad>", "<bos>", "<eos>", "<unk>"],
            "bytes": ["<pad>", "<bos>", "<eos>", "<unk>"],
        }[vocabulary]
        roles = [getattr(dictionary, f"{role}_token") for role in ("null", "start", "end", "unk")]
        assert roles == kept
        new = {"wordpiece": 3, "bpe": 6, "bytes": 7}[vocabulary]
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert len(dictionary) == config["vocab_size"] + new
        assert sorted(dictionary.tok2ind.values()) == list(range(len(dictionary)))

    def test_a_shared_dictionary_is_the_same(self, folders, vocabulary):
        dictionary = dictionary_of(folders[vocabulary][0])
        other = GPTDictionaryAgent(dictionary.opt, dictionary.share())
        assert other.end_token == dictionary.end_token and len(other) == len(dictionary)
        ids = [*dictionary.txt2vec("你好"), dictionary[dictionary.end_token]]
        assert other.vec2txt(ids) == "你好"

    def test_no_text_spells_an_added_token(self, folders, vocabulary):
        dictionary = dictionary_of(folders[vocabulary][0])
        ids = dictionary.txt2vec(f"{ME} {PARTNER} {PERSONA} <bos> <eos> <pad> [CLS] [SEP] [PAD]")
        special = [
            ME,
            PARTNER,
            PERSONA,
            *(getattr(dictionary, f"{r}_token") for r in ("start", "end", "null")),
        ]
        assert not {dictionary[token] for token in special} & set(ids)

    def test_saved_and_loaded(self, folders, vocabulary, tmp_path):
        dictionary = dictionary_of(folders[vocabulary][0])
        dictionary.save(str(tmp_path / "saved.dict"))
        again = dictionary_of("/no/such/folder", dict_file=str(tmp_path / "saved.dict"))
        assert again.tok2ind == dictionary.tok2ind and again.end_token == dictionary.end_token
        for text in self.TEXTS:
            assert again.txt2vec(text) == dictionary.txt2vec(text)

    def test_case_is_kept_where_the_vocabulary_has_it(self, folders, tmp_path):
        folder = shutil.copytree(folders["wordpiece"][0], tmp_path / "cased")
        assert dictionary_of(folder).txt2vec("I") == dictionary_of(folder).txt2vec("i")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
        cased = dictionary_of(folder)
        assert cased.txt2vec("I") == [cased[cased.unk_token]] != cased.txt2vec("i")

    def test_without_gpt_it_is_built_from_the_data(self, tmp_path):
        agent = agent_of("none", tmp_path)
        for sample in ENGLISH:
            assert agent.dict[agent.dict.unk_token] not in agent.dict.txt2vec(sample.response)
        assert [agent.dict.ind2tok[len(agent.dict) - n] for n in (3, 2, 1)] == [
            PERSONA,
            ME,
            PARTNER,
        ]


class TestWeights:
    def test_are_loaded_and_new_words_added(self, folders, vocabulary, tmp_path):
        folder, weights = folders[vocabulary]
        agent = agent_of(folder, tmp_path)
        words = {"gpt2": "wte.weight", "openai-gpt": "tokens_embed.weight"}[
            VOCABULARIES[vocabulary]
        ]
        loaded = agent.model.gpt.transformer.state_dict()
        for name, value in loaded.items():
            assert torch.equal(
                value[: len(weights[words])] if name == words else value, weights[name]
            )
        assert len(loaded[words]) == len(agent.dict) > len(weights[words])
        added = loaded[words][len(weights[words]) :]
        assert 0.005 < added.std() < 0.05, "drawn like a GPT's own"

    @pytest.mark.parametrize("head", ["Model", "LMHeadModel", "DoubleHeadsModel"])
    @pytest.mark.parametrize("vocabulary", ["wordpiece", "bpe"])
    def test_whatever_head_they_were_saved_with(self, tmp_path, vocabulary, head):
        weights = make_gpt(tmp_path / "gpt", vocabulary, head)
        model = gpt.load_weights(str(tmp_path / "gpt"), gpt.load_config(str(tmp_path / "gpt")))
        for name, value in model.transformer.state_dict().items():
            assert torch.equal(value, weights[name]), name

    @pytest.mark.parametrize("model", ["lic", "transfertransfo"])
    def test_each_parameter_learns_at_its_rate(self, folders, tmp_path, model):
        agent = agent_of(folders["bpe"][0], tmp_path, model)
        names = {id(p): name for name, p in agent.model.named_parameters()}
        new, old = ([names[id(p)] for p in g["params"]] for g in agent.optimizer.param_groups)
        assert agent.scheduler.peaks == [5e-5, 7e-6]
        head = ["choice_head.summary.weight", "choice_head.summary.bias"]
        assert new == (head if model == "transfertransfo" else [])
        assert sorted([*new, *old]) == sorted(names.values())
        assert all(name.startswith("gpt.") for name in old)

    def test_without_gpt_everything_is_new(self, tmp_path):
        (group,) = agent_of("none", tmp_path).optimizer.param_groups
        assert group["lr"] == 5e-5

    def test_dropout_is_the_options(self, folders, tmp_path):
        agent = agent_of(folders["bpe"][0], tmp_path, "transfertransfo", dropout=0.25)
        found = {m.p for m in agent.model.modules() if isinstance(m, torch.nn.Dropout)}
        assert found == {0.25}

    @pytest.mark.parametrize("size", [3, 40])
    @pytest.mark.parametrize("kind", gpt_models.KINDS)
    def test_resizing_keeps_what_there_is(self, kind, size):
        model = gpt_models.double_heads(kind, dtype=torch.float32)
        before = model.transformer.get_input_embeddings().weight.clone()
        gpt.resize(model, size)
        after = model.transformer.get_input_embeddings().weight
        kept = min(size, len(before))
        assert len(after) == size == model.config.vocab_size
        assert torch.equal(after[:kept], before[:kept])

    @pytest.mark.parametrize("kind", gpt_models.KINDS)
    def test_a_description_is_plain_data_and_complete(self, kind):
        config = gpt_models.config(kind, n_embd=24, n_positions=17)
        described = json.loads(json.dumps(gpt.describe(config)))
        again = gpt.from_description(described)
        assert gpt.describe(again) == described
        one, two = gpt.build(config).state_dict(), gpt.build(again).state_dict()
        assert {k: v.shape for k, v in one.items()} == {k: v.shape for k, v in two.items()}


class TestSizes:
    def options(self, **more):
        given = {**settings("x"), "gpt_model": "none", **more}
        return tiny.options(task="cpc:mini", model="persona_agents:lic", model_file="x", **given)

    def test_defaults(self):
        config = gpt.small_config(self.options(), vocab_size=99)
        assert (config.n_embd, config.n_head, config.n_inner, config.n_layer) == (256, 4, 1024, 3)

    @pytest.mark.parametrize("name", sorted(gpt.GPT.sizes))
    def test_a_gpts_own_cannot_be_given(self, name):
        option = "--" + name.replace("_", "-")
        with pytest.raises(PersonaAgentsError, match=f"{option} has no effect with --gpt-model x"):
            gpt.GPT.check_options(self.options(gpt_model="x", **{name: 8}))
        with pytest.raises(PersonaAgentsError, match=f"{option} 0: must be at least 1"):
            gpt.GPT.check_options(self.options(**{name: 0}))
        saved = gpt.describe(gpt.small_config(self.options(), vocab_size=10))
        gpt.GPT.check_sizes_kept(self.options(), saved)
        with pytest.raises(PersonaAgentsError, match=f"{option} 8: the saved model has"):
            gpt.GPT.check_sizes_kept(self.options(**{name: 8}), saved)


class TestOneMessage:
    """Whatever is wrong with a GPT ends in one PersonaAgentsError that shows the way out."""

    @pytest.fixture
    def damaged(self, folders, tmp_path):
        return Path(shutil.copytree(folders["bpe"][0], tmp_path / "damaged"))

    def message(self, tmp_path, folder):
        with pytest.raises(PersonaAgentsError) as error:
            agent_of(folder, tmp_path)
        assert not list(tmp_path.glob("model*")), "nothing half-finished is left"
        text = str(error.value)
        assert str(folder) in text and "--gpt-model" in text
        return text

    def test_no_folder(self, tmp_path):
        assert "no such folder" in self.message(tmp_path, "/no/such/folder")

    def test_a_bert(self, tmp_path, damaged):
        (damaged / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
        assert "'bert'" in self.message(tmp_path, damaged)

    def test_another_attention(self, tmp_path, folders):
        folder = Path(shutil.copytree(folders["wordpiece"][0], tmp_path / "other"))
        path = folder / "config.json"
        config = {**json.loads(path.read_text()), "scale_attn_by_inverse_layer_idx": True}
        path.write_text(json.dumps(config), encoding="utf-8")
        assert "scale_attn_by_inverse_layer_idx" in self.message(tmp_path, folder)

    def test_no_vocabulary(self, tmp_path, damaged):
        (damaged / "merges.txt").unlink()
        assert "vocabulary" in self.message(tmp_path, damaged)

    def test_a_vocabulary_of_another_model(self, tmp_path, damaged):
        path = damaged / "vocab.json"
        words = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**words, "one more": len(words)}), encoding="utf-8")
        assert "vocabulary has" in self.message(tmp_path, damaged)

    def test_no_weights(self, tmp_path, damaged):
        for path in [*damaged.glob("*.safetensors"), *damaged.glob("*.bin")]:
            path.unlink()
        assert "weights" in self.message(tmp_path, damaged)

    def test_weights_cut_off(self, tmp_path, damaged):
        (weights,) = [*damaged.glob("*.safetensors"), *damaged.glob("*.bin")]
        weights.write_bytes(weights.read_bytes()[:5000])
        assert "cannot be loaded" in self.message(tmp_path, damaged)

    def test_weights_of_fewer_layers(self, tmp_path, damaged):
        path = damaged / "config.json"
        config = {**json.loads(path.read_text(encoding="utf-8")), "n_layer": 2}
        path.write_text(json.dumps(config), encoding="utf-8")
        assert "lack" in self.message(tmp_path, damaged)

    def test_hub_that_cannot_be_reached(self, tmp_path, monkeypatch):
        def no_network(*args, **kwargs):
            raise requests.ConnectionError

        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr(requests.Session, "request", no_network)
        text = self.message(tmp_path, "someone/no-such-gpt")
        assert "cannot be reached" in text and "--gpt-model none" in text

    def test_the_saved_models_dictionary_is_another(self, folders, tmp_path):
        agent = agent_of(folders["bpe"][0], tmp_path)
        agent.save(str(tmp_path / "model"))
        other = dictionary_of(folders["bytes"][0])
        other.save(str(tmp_path / "model.dict"))
        with pytest.raises(PersonaAgentsError, match="The dictionary has"):
            agent_of(folders["bpe"][0], tmp_path)
