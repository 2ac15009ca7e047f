"""transformer is ParlAI's transformer/generator, trained as the original Transformer was."""

from __future__ import annotations

import pytest
import systems
import tiny
import torch
from parlai.agents.transformer.modules import TransformerGeneratorModel
from parlai.scripts.train_model import setup_args
from torch.nn import functional as F

from persona_agents.errors import PersonaAgentsError

SAMPLES = [s for language in ("zh", "en") for s in tiny.samples(language)[:30:10]]
# the agent's own recipe in place of the one that tiny systems have
OWN = {"lr_scheduler": "invsqrt", "label_smoothing": 0.1}


@pytest.fixture
def make(tmp_path):
    task = tiny.write_corpus(tmp_path / "corpus", SAMPLES)

    def build(model_file="model", **settings):
        options = systems.SYSTEMS["transformer"].options(**task, **{"seed": 1, **settings})
        return tiny.new_agent(**options, model_file=str(tmp_path / model_file))

    return build


def test_the_original_papers_settings_are_the_defaults():
    opt = setup_args().parse_kwargs(
        model="persona_agents:transformer", task="cpc:mini", **tiny.QUIET
    )
    expected = {
        "n_layers": 6,
        "embedding_size": 512,
        "n_heads": 8,
        "ffn_size": 2048,
        "activation": "relu",
        "variant": "aiayn",
        "learn_positional_embeddings": False,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "label_smoothing": 0.1,
        "betas": (0.9, 0.98),
        "adam_eps": 1e-9,
        "weight_decay": 0.0,
        "gradient_clip": 0.0,
        "lr_scheduler": "invsqrt",
        "warmup_updates": 4000,
        "bert_model": "auto",
        "batchsize": 16,
        "num_epochs": 20,
    }
    assert {name: opt[name] for name in expected} == expected


def test_logits_loss_and_replies_are_parlais_on_the_same_weights(make):
    agent = make()
    tiny.train_steps(agent, [SAMPLES] * 15)
    agent.model.eval()
    # the options of ParlAI's own agent
    names = ("embedding_size", "n_heads", "ffn_size", "n_layers")
    sizes = {name: agent.opt[name] for name in names}
    opt = setup_args().parse_kwargs(
        model="transformer/generator", task="cpc:mini", n_positions=512, **sizes, **tiny.QUIET
    )
    parlais = TransformerGeneratorModel(opt, agent.dict).eval()
    parlais.load_state_dict(agent.model.state_dict())
    batch = agent.batchify(tiny.observe(agent, SAMPLES, "eval_labels")[1])
    with torch.no_grad():
        ours, theirs = (m(batch.text_vec, ys=batch.label_vec) for m in (agent.model, parlais))
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
        losses = F.cross_entropy(theirs[0].transpose(1, 2), batch.label_vec, reduction="none")
        real = batch.label_vec.ne(agent.NULL_IDX)
        agent._local_metrics.clear()
        loss, _ = agent.compute_loss(batch, return_output=True)
        assert loss.item() == pytest.approx((losses * real).sum().item() / real.sum().item())
        # greedy decoding of ParlAI's model, the whole reply anew at each step
        words = torch.full((len(SAMPLES), 1), agent.START_IDX)
        encoded = parlais.encoder(batch.text_vec)
        for _ in range(9):
            logits = parlais.output(parlais.decoder(words, encoded)[0])
            words = torch.cat((words, logits[:, -1:].argmax(dim=-1)), dim=1)
    agent.label_truncate = 10  # with the end token, which comes last then
    replies = tiny.replies(agent, SAMPLES)
    assert len(set(replies)) > 1
    assert replies == [agent._v2t(row[1:].tolist()) for row in words]


def test_cached_decoding_equals_decoding_at_once(make):
    agent = make()
    agent.model.eval()
    batch = agent.batchify(tiny.observe(agent, SAMPLES, "eval_labels")[1])
    with torch.no_grad():
        encoded = agent.model.encoder(batch.text_vec)
        ys = torch.cat(
            (torch.full_like(batch.label_vec[:, :1], agent.START_IDX), batch.label_vec), 1
        )
        at_once, state = agent.model.decoder(ys, encoded)[0], None
        for length in range(1, ys.size(1) + 1):
            step, state = agent.model.decoder(ys[:, :length], encoded, state)
            torch.testing.assert_close(step[:, -1], at_once[:, length - 1], atol=1e-5, rtol=0)


class TestRecipe:
    def test_the_rate_is_the_original_papers(self, make):
        """d^-0.5 min(step^-0.5, step warmup^-1.5), but for a ten-thousandth of the peak at first.

        After the warm-up ParlAI is one step ahead, which is nothing beside 4,000 steps.
        """
        settings = {"warmup_updates": 8, "invsqrt_lr_decay_gamma": 8, "num_epochs": -1}
        agent = make(**OWN, **settings, learningrate=(512 * 8) ** -0.5)
        rates = []
        for _ in range(20):
            rates.append(agent.optimizer.param_groups[0]["lr"])
            tiny.train_steps(agent, [SAMPLES[:1]])
        rates.append(agent.optimizer.param_groups[0]["lr"])
        steps = [n if n < 8 else n + 1 for n in range(21)]
        expected = [512**-0.5 * min(max(n, 1e-9) ** -0.5, n * 8**-1.5) for n in steps]
        assert rates == pytest.approx(expected, rel=1e-3, abs=1e-5)

    def test_the_default_rate_is_its_peak(self):
        opt = setup_args().parse_kwargs(
            model="persona_agents:transformer", task="cpc:mini", **tiny.QUIET
        )
        assert opt["learningrate"] == pytest.approx(512**-0.5 * 4000**-0.5)
        assert opt["invsqrt_lr_decay_gamma"] == opt["warmup_updates"]

    def test_the_optimiser_is_adam(self, make):
        """AdamW without decay computes what torch's Adam computes."""
        agent = make(**OWN, learningrate=1e-3, dropout=0.0)
        before = [
            p.detach().clone().requires_grad_() for p in agent.optimizer.param_groups[0]["params"]
        ]
        adam = torch.optim.Adam(
            before, lr=agent.optimizer.param_groups[0]["lr"], betas=(0.9, 0.98), eps=1e-9
        )
        tiny.train_steps(agent, [SAMPLES])
        after = agent.optimizer.param_groups[0]["params"]
        for copied, parameter in zip(before, after):
            copied.grad = parameter.grad
        adam.step()
        for copied, parameter in zip(before, after):
            torch.testing.assert_close(copied, parameter.detach(), atol=1e-7, rtol=1e-5)

    def test_the_shared_schedule_is_an_option(self, make):
        agent = make(lr_scheduler="linear", learningrate=1e-2, num_epochs=-1, max_train_steps=10)
        rates = []
        for _ in range(10):
            tiny.train_steps(agent, [SAMPLES[:1]])
            rates.append(agent.optimizer.param_groups[0]["lr"])
        assert max(rates) == pytest.approx(1e-2) and rates[-1] == 0.0

    def test_resumes_in_warm_up_and_after_it(self, make):
        batches = [[SAMPLES[i % 6], SAMPLES[(i * 5 + 1) % 6]] for i in range(12)]
        settings = {**OWN, "warmup_updates": 6, "invsqrt_lr_decay_gamma": 6, "dropout": 0.1}
        expected = tiny.train_steps(make("unbroken", **settings), batches)
        agent, found = make(**settings), []
        for begin in (0, 3, 9):
            found += tiny.train_steps(agent, batches[begin : {0: 3, 3: 9, 9: 12}[begin]])
            agent.save()
            state = torch.get_rng_state()
            agent = make(**settings)
            torch.set_rng_state(state)
        assert found == expected


class TestLabelSmoothing:
    def test_is_torchs_over_what_can_be_generated(self, make):
        agent = make(**OWN, dropout=0.0)
        torch.manual_seed(0)
        scores = torch.randn(2, 5, 11)
        scores[..., agent.START_IDX] = -1e20
        scores[..., agent.NULL_IDX] = -1e20  # it counts in no softmax, to be comparable
        target = torch.tensor([[5, 6, 7, 3, 0], [9, 3, 0, 0, 0]])
        kept = [i for i in range(11) if i not in (agent.START_IDX, agent.NULL_IDX)]
        renamed = torch.tensor([kept.index(i) if i in kept else -100 for i in range(11)])[target]
        expected = F.cross_entropy(
            scores[..., kept].transpose(1, 2), renamed, label_smoothing=0.1, ignore_index=-100
        )
        plain = F.cross_entropy(scores[..., kept].transpose(1, 2), renamed, ignore_index=-100)
        found = 0.9 * plain + 0.1 * agent.uniform_loss(scores, target)
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)

    def test_moves_the_weights_but_not_what_is_reported(self, make):
        smooth, plain = (
            make(f"m{share}", label_smoothing=share, dropout=0.0) for share in (0.1, 0)
        )
        # the schedule's first rate is 0
        losses = [tiny.train_steps(agent, [SAMPLES] * 2) for agent in (smooth, plain)]
        assert losses[0] == losses[1], "the same weights' loss is reported without smoothing"
        weights = [agent.model.embeddings.weight.detach() for agent in (smooth, plain)]
        assert not torch.equal(*weights)
        batch = smooth.batchify(tiny.observe(smooth, SAMPLES, "eval_labels")[1])
        smooth.model.eval()
        smooth._local_metrics.clear()
        loss, output = smooth.compute_loss(batch, return_output=True)
        expected = F.cross_entropy(output[0].transpose(1, 2), batch.label_vec, ignore_index=0)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)

    def test_training_lowers_the_smoothed_loss(self, make):
        agent = make(label_smoothing=0.1, dropout=0.0, num_epochs=-1)
        losses = tiny.train_steps(agent, [SAMPLES] * 30)
        assert losses[-1] < 0.5 * losses[0]
        assert all(parameter.isfinite().all() for parameter in agent.model.parameters())


def test_inputs_fit_the_positions(make):
    agent = make(truncate=-1, n_positions=64)
    assert agent.text_truncate == agent.label_truncate == 64
    long = tiny.Sample(("i have a cat .",) * 40, "and you ? " * 40, "yes . " * 100)
    (answer,) = tiny.act(agent, [long], "eval_labels")
    assert answer["metrics"]["ctrunc"].value() == 1.0 and isinstance(answer["text"], str)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"n_heads": 0}, "--n-heads 0: must be at least 1"),
        ({"n_heads": 5}, "--embedding-size 32 cannot be divided among --n-heads 5"),
        ({"label_smoothing": 1.0}, "--label-smoothing 1.0: must be at least 0 and less than 1"),
        ({"optimizer": "sgd"}, "--optimizer sgd"),
    ],
)
def test_options_that_cannot_be(make, settings, message):
    with pytest.raises(PersonaAgentsError, match=message):
        make(**settings)
