"""BERTScore, P-EM and C-score against the libraries' own loops; what they load, and how often."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest
import torch
from bert_score import BERTScorer
from bert_score import scorer as library

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply, Settings, bert_score, encoder, score
from persona_agents.metrics.c_score import label_values
from persona_agents.metrics.scorer import Scorer, scorer_for
from tests.tiny import samples

LAYER = 5
EMPTY = ("", " ")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("baseline") / "minilm.tsv"
    lines = [f"{i},0.{i + 1}1,0.{i + 1}2,0.{i + 1}3" for i in range(7)]
    path.write_text("\n".join(["LAYER,P,R,F", *lines]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def replies() -> list[Reply]:
    """Replies of every kind of length, shuffled, one of punctuation only, one of unknown words."""
    chosen = samples("en", "valid")[:24]
    texts = [sample.response for sample in chosen]
    texts = texts[3:] + texts[:3]
    texts[0], texts[1], texts[2] = "!", "你好 café", " ".join(texts[4:9])
    return [
        Reply(text, [sample.response], sample.persona, sample.query)
        for text, sample in zip(texts, chosen)
    ]


@pytest.fixture(scope="module")
def settings(minilm):
    def make(**changes) -> Settings:
        made = {"bert_score_model": minilm, "p_em_model": minilm, "bert_score_layer": LAYER}
        return Settings(**{**made, "bert_score_rescale": False, **changes})

    return make


def column(scores, name: str) -> list:
    (found,) = [c for kind, c in scores.statistics.items() if kind.key == name]
    return found


class TestBertScore:
    @pytest.mark.parametrize("rescale", [False, True])
    @pytest.mark.parametrize("layer", [LAYER, 6])
    def test_is_the_librarys(self, minilm, replies, settings, baseline, rescale, layer):
        path = str(baseline) if rescale else None
        oracle = BERTScorer(
            model_type=minilm,
            num_layers=layer,
            lang="en",
            rescale_with_baseline=rescale,
            baseline_path=path,
            device="cpu",
        )
        wanted = oracle.score([r.text for r in replies], [r.references[0] for r in replies])
        found = score(
            replies,
            "bert_score",
            settings(bert_score_rescale=rescale, bert_score_baseline=path, bert_score_layer=layer),
        )
        for i, part in enumerate("prf"):
            own = torch.tensor([row[i] for row in column(found, "bert_score")])
            assert own.std() > 0.05
            assert torch.allclose(own, wanted[i], rtol=0, atol=1e-6)
            mean = wanted[i].double().mean().item()
            assert found.values[f"bert_score_{part}"] == pytest.approx(mean, abs=1e-6)

    def test_best_of_several_references(self, minilm, replies, settings):
        references = [[r.references[0], s.references[0]] for r, s in zip(replies, replies[5:])]
        hypotheses = [r.text for r in replies[: len(references)]]
        oracle = BERTScorer(model_type=minilm, num_layers=LAYER, device="cpu")
        wanted = oracle.score(hypotheses, references)[2]
        own = score([Reply(h, r) for h, r in zip(hypotheses, references)], "bert_score", settings())
        found = [row[2] for row in column(own, "bert_score")]
        assert found == pytest.approx(wanted.tolist(), abs=1e-6)

    @pytest.mark.parametrize("text", EMPTY)
    def test_empty_reply(self, settings, baseline, text, capsys):
        """Raw 0, as in the library; rescaled it is below 0 like all that is below the baseline."""
        replies = [Reply(text, ["i ski"], ["i ski"])]
        found = score(replies, "bert_score,p_em", settings())
        assert set(found.values.values()) == {0}
        assert found.counts["bert_score_f"] == found.counts["p_em"] == 1
        rescaled = settings(bert_score_rescale=True, bert_score_baseline=str(baseline))
        values = score(replies, "bert_score", rescaled).values
        assert values["bert_score_p"] == pytest.approx(-0.61 / 0.39)
        assert "Warning" not in capsys.readouterr().err

    def test_signature(self, settings, baseline):
        raw = scorer_for(("bert_score",), settings()).signatures["bert_score"]
        path = str(baseline)
        changes = {"bert_score_rescale": True, "bert_score_baseline": path}
        rescaled = scorer_for(("bert_score",), settings(**changes)).signatures["bert_score"]
        assert "layer:5" in raw and "rescaled:no" in raw and "model-sha256-" in raw
        assert "rescaled:baseline:sha256-" in rescaled and path not in rescaled
        assert "bert-score:" in raw and "transformers:" in raw


class TestDefaults:
    """The settings for the published models, seen without their weights."""

    @pytest.fixture
    def no_weights(self, monkeypatch):
        asked = []

        def fake(name, option, device):
            asked.append((name, option))
            return SimpleNamespace(name=name, n_layers=12, signature=name, keep_layer=asked.append)

        monkeypatch.setattr(encoder, "encoder_for", fake)
        monkeypatch.setattr(library, "get_model", lambda *_: torch.nn.Linear(1, 1))
        monkeypatch.setattr(library, "get_tokenizer", lambda *_: None)
        return asked

    @pytest.mark.parametrize(
        "language, name, layer", [("zh", "bert-base-chinese", 8), ("en", "bert-base-uncased", 9)]
    )
    def test_by_language(self, no_weights, language, name, layer):
        (metric,) = Scorer(["bert_score"], Settings(language=language)).metrics
        assert metric.encoder.name == name and metric.layer == layer
        assert no_weights == [(name, "bert_score_model"), layer]
        packaged = bert_score.packaged_baseline(language, name)
        row = pandas.read_csv(packaged).iloc[layer].tolist()
        assert row[0] == layer
        assert metric.baseline.values.tolist() == pytest.approx(row[1:], abs=1e-7)
        oracle = BERTScorer(lang=language, model_type=name, rescale_with_baseline=True)
        assert oracle.num_layers == layer
        assert torch.equal(metric.baseline.values, oracle.baseline_vals)
        assert "rescaled:baseline:library" in metric.signature

    def test_p_em(self, no_weights):
        Scorer(["p_em"], Settings(language="zh"))
        assert no_weights == [("bert-base-chinese", "p_em_model")]


class TestPEm:
    @pytest.fixture(scope="class")
    def vector(self, minilm):
        """A text's vector by a plain loop of batch size 1, in double precision after the model."""
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(minilm)
        model = AutoModel.from_pretrained(minilm).eval()

        @torch.no_grad()
        def embed(text: str) -> torch.Tensor:
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]  # (T, d)
            return states[1:-1].double().mean(dim=0)

        return embed

    def test_is_the_plain_loop(self, replies, settings, vector):
        found = column(score(replies, "p_em", settings()), "p_em")
        for (own, one), reply in zip(found, replies):
            said = vector(reply.text)
            wanted = max(
                torch.cosine_similarity(said, vector(sentence), dim=0) for sentence in reply.persona
            )
            assert one == 1 and own == pytest.approx(wanted.item(), abs=1e-6)

    def test_edge_cases(self, settings, vector):
        replies = [
            Reply("a nurse", [], ["nurse"]),
            Reply("i ski", [], []),
            Reply("i ski", [], ["", " "]),
            Reply("", [], ["i ski"]),
            Reply("?!", [], ["", "i ski"]),
        ]
        scores = score(replies, "p_em", settings())
        found = column(scores, "p_em")
        cosine = torch.cosine_similarity(vector("a nurse"), vector("nurse"), dim=0).item()
        assert found[0] == (pytest.approx(cosine, abs=1e-6), 1)
        assert found[1] is None and found[2] is None and scores.counts["without_persona"] == 2
        assert found[3] == (0, 1)
        cosine = torch.cosine_similarity(vector("?!"), vector("i ski"), dim=0).item()
        assert found[4] == (pytest.approx(cosine, abs=1e-6), 1)

    def test_layer_zero_of_bert_score_does_not_disturb_it(self, replies, settings):
        alone = score(replies, "p_em", settings()).values["p_em"]
        both = score(replies, "p_em,bert_score", settings(bert_score_layer=0))
        assert both.values["p_em"] == pytest.approx(alone, abs=1e-6)


class TestEncoder:
    @pytest.fixture
    def own(self, minilm):
        """An encoder that no other test has used."""
        made = encoder.Encoder(minilm, "p_em_model", "cpu")
        made.keeps_means = True
        made.keep_layer(LAYER)
        return made

    def test_one_for_both_metrics(self, minilm, settings, replies):
        scorer = scorer_for(("bert_score", "p_em"), settings())
        one, other = (metric.encoder for metric in scorer.metrics)
        assert one is other
        before = one.texts_encoded
        texts = {t for r in replies for t in (f"{r.text} yes", *r.references, *r.persona)}
        score(
            [Reply(f"{r.text} yes", r.references, r.persona) for r in replies],
            scorer.names,
            settings(),
        )
        encoded = one.texts_encoded - before
        assert 0 < encoded <= len(texts), "each text once, those seen before not at all"
        score(replies, scorer.names, settings())
        score(replies, scorer.names, settings())
        assert one.texts_encoded - before <= encoded + len(replies)

    def test_each_text_once(self, own):
        texts = ["i ski", "i have two dogs", "i ski", ""]
        own.embed(texts)
        assert own.texts_encoded == 3
        again = own.embed(["", "i ski"])
        assert own.texts_encoded == 3 and set(again) == {"", "i ski"}

    def test_batches_do_not_change_a_vector(self, own):
        texts = [sample.response for sample in samples("en", "valid")[:80]] + ["", "hi"]
        together = own.embed(texts)
        own.keep_layer(0), own.keep_layer(LAYER)  # forgets all
        for text in texts[::7] + ["", "hi"]:
            alone = own.embed([text])[text]
            assert alone.tokens.shape == together[text].tokens.shape
            assert torch.allclose(alone.tokens, together[text].tokens, atol=1e-5)
            assert torch.allclose(alone.mean, together[text].mean, atol=1e-5)

    def test_memory_is_bounded(self, own, monkeypatch):
        texts = [sample.response for sample in samples("en", "valid")[:40]]
        size = own.embed(texts[:1])[texts[0]].bytes()
        monkeypatch.setattr(encoder, "CACHE_BYTES", 10 * size)
        assert set(own.embed(texts)) == set(texts), "what is asked for at once is all there"
        kept = list(own._cache.values())
        assert own._bytes == sum(vectors.bytes() for vectors in kept) <= 10 * size
        assert kept

    def test_long_text_is_cut(self, own):
        (vectors,) = own.embed(["dog " * 600]).values()
        assert len(vectors.tokens) == 512


@pytest.fixture(scope="module")
def classifier(minilm, tmp_path_factory):
    """A tiny classifier with random weights, in a folder; makes one with the given labels."""
    from transformers import BertConfig, BertForSequenceClassification

    def make(*labels) -> str:
        torch.manual_seed(4)
        config = BertConfig(
            vocab_size=30522,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
            initializer_range=1.0,
        )
        folder = tmp_path_factory.mktemp("classifier")
        BertForSequenceClassification(config).save_pretrained(folder)
        for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(minilm) / name, folder)
        return str(folder)

    return make


class TestCScore:
    def test_is_the_plain_loop(self, classifier, replies):
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        folder = classifier("CONTRADICTION", "neutral", "Entailment")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        found = column(score(replies, "c_score", Settings(c_score_model=folder)), "c_score")
        seen = set()
        for (own, one), reply in zip(found, replies):
            labels = []
            for sentence in reply.persona:
                with torch.no_grad():
                    logits = model(**tokenizer(reply.text, sentence, return_tensors="pt")).logits
                labels.append(logits.argmax().item())
            seen.update(labels)
            assert (own, one) == (sum({0: -1, 1: 0, 2: 1}[label] for label in labels), 1)
        assert seen == {0, 1, 2}

    def test_empty_reply_and_no_persona(self, classifier):
        folder = classifier("contradiction", "neutral", "entailment")
        replies = [Reply("", [], ["i ski"]), Reply("i ski")]
        found = score(replies, "c_score", Settings(c_score_model=folder))
        assert column(found, "c_score") == [(0, 1), None]

    @pytest.mark.parametrize(
        "labels, wanted",
        [
            (("entailment", "neutral", "contradiction"), [1, 0, -1]),
            (("矛盾", "中立", "蕴含"), [-1, 0, 1]),
            (("contradicts", "ENTAILS"), [-1, 1]),
        ],
    )
    def test_labels(self, labels, wanted):
        assert label_values("m", dict(enumerate(labels))).tolist() == wanted

    @pytest.mark.parametrize(
        "labels", [("LABEL_0", "LABEL_1"), ("entailment", "not_entailment"), ("positive",)]
    )
    def test_unknown_labels(self, classifier, labels):
        with pytest.raises(PersonaAgentsError, match=f"c-score-model.*{labels[0]}.*id2label"):
            scorer_for(("c_score",), Settings(c_score_model=classifier(*labels)))


class TestWhatIsMissing:
    """One message that names the option, before anything is encoded."""

    def fails(self, names, match, settings):
        with pytest.raises(PersonaAgentsError, match=match):
            scorer_for(tuple(names.split(",")), settings)

    def test_baseline(self, settings, tmp_path):
        rescale = {"bert_score_rescale": True}
        self.fails("bert_score", "no baseline.*--bert-score-baseline FILE", settings(**rescale))
        path = str(tmp_path / "none.tsv")
        rescale["bert_score_baseline"] = path
        self.fails("bert_score", f"{path}: there is no such file", settings(**rescale))
        for text, match in (
            ("LAYER,P,R,F\n0,0.1,0.1,0.1", "layer 5"),
            ("what is this", "LAYER"),
            ("LAYER,P,R\n5,0.1,0.1", "F"),
            ("LAYER,P,R,F\n5,0.1,x,0.1", "cannot be read"),
            ("LAYER,P,R,F\n5,0.1,1,0.1", "below 1"),
            ("LAYER,P,R,F\n5,.1,.1,.1\n5,.1,.1,.1", "no single"),
        ):
            Path(path).write_text(text, encoding="utf-8")
            self.fails("bert_score", f"none.tsv.*{match}", settings(**rescale))
        Path(path).write_bytes(b"\xff\xfe\x00")
        self.fails("bert_score", "none.tsv cannot be read", settings(**rescale))

    def test_a_copy_is_told_of_its_baseline(self, minilm, tmp_path):
        folder = tmp_path / "bert-base-chinese"
        folder.symlink_to(minilm)
        made = Settings("zh", bert_score_model=str(folder))
        self.fails("bert_score", "best layer.*--bert-score-layer.*: 8", made)
        made = Settings("zh", bert_score_model=str(folder), bert_score_layer=8)
        self.fails("bert_score", "zh/bert-base-chinese.tsv", made)

    def test_baseline_without_rescaling(self, settings, baseline):
        made = settings(bert_score_baseline=str(baseline))
        self.fails("bert_score", "no effect with --bert-score-rescale false", made)

    def test_layer(self, settings):
        self.fails("bert_score", "--bert-score-layer 7.*0 .* to 6", settings(bert_score_layer=7))

    def test_models(self, settings, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        made = Settings(language="zh", bert_score_rescale=False)
        self.fails("p_em", "bert-base-chinese.*--p-em-model.*leave p_em out of --metrics", made)
        self.fails("bert_score", "bert-base-chinese.*--bert-score-model.*leave bert_score", made)
        self.fails("p_em", "--p-em-model.*no such folder", settings(p_em_model=f"{tmp_path}/x"))
        self.fails("p_em", "--p-em-model.*no config.json", settings(p_em_model=str(tmp_path)))
        (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
        self.fails("p_em", "--p-em-model.*cannot be loaded", settings(p_em_model=str(tmp_path)))
        self.fails("c_score", "needs --c-score-model", settings())
