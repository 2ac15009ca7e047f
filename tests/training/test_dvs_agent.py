"""DVS2S as ParlAI uses it: searches inside T, phases of a training, resuming, reports."""

from __future__ import annotations

import pytest
import tiny
import torch
from parlai.core.agents import create_agent_from_model_file

SIZES = {
    **dict.fromkeys(tiny.SIZES),
    "model": "persona_agents:dvs2s",
    "embedding_size": 16,
    "hidden_size": 16,
    "dropout": 0.0,
    "batchsize": 16,
    "seed": 1,
}
SAMPLES = {language: tiny.samples(language)[:400:4] for language in ("en", "zh")}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    return {lang: tiny.write_corpus(folder / lang, some) for lang, some in SAMPLES.items()}


@pytest.fixture(scope="module")
def untrained(corpora, tmp_path_factory):
    """Model files of random models of both languages whose scores differ much between words."""
    files = {}
    for language, corpus in corpora.items():
        files[language] = str(tmp_path_factory.mktemp(language) / "model")
        agent = tiny.new_agent(**SIZES, **corpus, model_file=files[language])
        torch.manual_seed(3)
        with torch.no_grad():
            for parameter in agent.model.parameters():
                parameter.copy_(torch.randn_like(parameter))
            agent.model.projection.bias[agent.END_IDX] += 2.0
            agent.model.projection.bias[agent.NULL_IDX] -= 50.0
            agent.model.projection.bias[agent.START_IDX] -= 50.0
        agent.save()
    return files


def load(model_file, **options):
    return create_agent_from_model_file(model_file, {"datatype": "valid", **tiny.QUIET, **options})


def generated(agent, samples):
    """Ids and scores of every hypothesis, generated in one batch."""
    _, observations = tiny.observe(agent, samples, "eval_labels")
    batch = agent.batchify(observations)
    with torch.no_grad():
        _, searches = agent._generate(batch, agent.beam_size, 12)
    return [
        [
            (tokens.tolist(), round(score.item(), 4))
            for tokens, score, _ in s.get_rescored_finished()
        ]
        for s in searches
    ]


SEARCHES = {
    "greedy": {},
    "beam": {"inference": "beam", "beam_size": 4, "beam_min_length": 3},
    "blocked": {
        "inference": "beam",
        "beam_size": 3,
        "beam_block_ngram": 1,
        "beam_context_block_ngram": 1,
    },
    "token details": {"verbose": True, "inference": "beam", "beam_size": 2},
}
SEVEN = {language: some[:7] for language, some in SAMPLES.items()}


@pytest.mark.parametrize("language", ["en", "zh"])
class TestSearch:
    @pytest.mark.parametrize("search", SEARCHES)
    def test_with_all_words_it_is_the_full_vocabulary_model(
        self, untrained, language, search, monkeypatch
    ):
        """The same replies as ParlAI's own search on all scores."""
        from parlai.core.torch_generator_agent import TorchGeneratorAgent

        agent = load(untrained[language], dvs_top_k=10**6, **SEARCHES[search])
        ours = generated(agent, SEVEN[language])
        assert agent.vocabulary_sizes == [len(agent.dict)] * 7

        class Plain(torch.nn.Module):  # the network by the interface of ParlAI's generators
            def __init__(self, model):
                super().__init__()
                self.encoder, self.output = model.encoder, model.scores
                self.reorder_encoder_states = model.reorder_encoder_states
                self.reorder_decoder_incremental_state = lambda state, rows: state[rows]
                self.decoder = lambda words, encoded, state=None: model.decode(
                    words[:, -1:], encoded.summary if state is None else state, encoded
                )

        agent.model = Plain(agent.model)
        monkeypatch.setattr(
            type(agent),
            "_generate",
            lambda self, *args, **keywords: TorchGeneratorAgent._generate(self, *args, **keywords),
        )
        assert generated(agent, SEVEN[language]) == ours
        assert len({str(hypotheses) for hypotheses in ours}) > 3

    @pytest.mark.parametrize("rule", [{"dvs_top_k": 9}, {"dvs_threshold": 0.97}])
    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("path", ["gather", "union"])
    def test_only_words_of_t_and_batches_do_not_matter(
        self, untrained, language, search, rule, path, monkeypatch
    ):
        agent = load(untrained[language], **rule, **SEARCHES[search])
        choose, chosen = agent.module.choose, []

        def choose_by(encoded, *args, **keywords):
            if search != "blocked":
                keywords["path"] = path
            chosen.append(choose(encoded, *args, **keywords))
            return chosen[-1]

        monkeypatch.setattr(agent.module, "choose", choose_by)
        together = generated(agent, SEVEN[language])
        vocabulary = chosen[0]
        assert vocabulary.shared == (path == "union" or search == "blocked")
        allowed = [set(range(agent.dict.n_function)) for _ in together]
        logits = agent.module.word_logits(vocabulary_input(agent, SEVEN[language]))
        for row, own in enumerate(logits.sigmoid().tolist()):
            order = sorted(range(len(own)), key=lambda c: -own[c])
            if "dvs_top_k" in rule:
                order = order[:9]
            else:
                order = [c for c in order if own[c] >= 0.97]
            allowed[row] |= {agent.dict.n_function + c for c in order}
            assert vocabulary.sizes[row] == len(allowed[row])
        assert len({frozenset(words) for words in allowed}) > 4  # T differs between inputs
        said = set()
        for words, hypotheses in zip(allowed, together):
            for tokens, _ in hypotheses:
                said |= set(tokens)
                assert set(tokens) <= words
        assert any(word >= agent.dict.n_function for word in said)
        alone = [generated(agent, [sample])[0] for sample in SEVEN[language]]
        assert [[t for t, _ in h] for h in alone] == [[t for t, _ in h] for h in together]

    def test_block_list(self, untrained, language, tmp_path):
        agent = load(untrained[language], dvs_top_k=9)
        first = generated(agent, SEVEN[language])
        words = [agent.dict[h[0][0][1]] for h in first if len(h[0][0]) > 2]
        path = tmp_path / "block"
        path.write_text("\n".join({*words, "浣熊", "zyzzyva"}), encoding="utf-8")
        blocked = load(untrained[language], dvs_top_k=9, beam_block_list_filename=str(path))
        second = generated(blocked, SEVEN[language])
        bad = {agent.dict[word] for word in words} - {agent.dict[agent.dict.unk_token]}
        assert bad and not bad & {token for h in second for token in h[0][0]}
        alone = [generated(blocked, [sample])[0] for sample in SEVEN[language]]
        assert [h[0][0] for h in alone] == [h[0][0] for h in second]

    @pytest.mark.parametrize("inference", ["topk", "nucleus", "delayedbeam", "factual_nucleus"])
    def test_sampling_stays_in_t(self, untrained, language, inference):
        agent = load(untrained[language], dvs_top_k=9, inference=inference, beam_size=2, topk=5)
        encoded = vocabulary_input(agent, SEVEN[language])
        holds = agent.module.choose(encoded, 9, path="gather")
        for row, hypotheses in enumerate(generated(agent, SEVEN[language])):
            for tokens, _ in hypotheses:
                assert holds.row(row).holds(torch.tensor([tokens])).all()


def vocabulary_input(agent, samples):
    _, observations = tiny.observe(agent, samples, "eval_labels")
    with torch.no_grad():
        return agent.module.encoder(agent.batchify(observations).text_vec)
