"""Half precision: autocast over float32 weights, with both groups of parameters and AdamW.

float16 is offered on a GPU only; its code (autocast and loss scaling) is run on the CPU here.
"""

from __future__ import annotations

import pytest
import torch
from parlai.core.agents import create_agent_from_model_file

from persona_agents.agents import precision
from persona_agents.agents.hcm import HCMAgent
from persona_agents.errors import PersonaAgentsError
from persona_agents.models import copy
from tests.tiny import act, new_agent, options, replies, samples, train_steps, write_corpus

SAMPLES = samples("zh")[1:9]


@pytest.fixture
def settings(tmp_path):
    return {
        "model_file": str(tmp_path / "model"),
        "dropout": 0.0,
        "seed": 1,
        "learningrate": 0.01,
        "datatype": "train",
        "lr_scheduler": "none",
        "label_truncate": 12,
        **write_corpus(tmp_path / "data", SAMPLES),
    }


@pytest.fixture
def float16_on_cpu(monkeypatch):
    monkeypatch.setattr(
        precision, "choose", lambda opt, device: torch.float16 if opt.get("fp16") else None
    )
    monkeypatch.setattr(
        HCMAgent, "pretrained_parameters", lambda agent: list(agent.module.bert.parameters())
    )


def types_of_products(agent, monkeypatch) -> set:
    """The types in which the model's linear layers compute."""
    seen = set()
    for module in agent.module.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    return seen


def test_bf16_trains_like_float32(settings, monkeypatch):
    batches = [SAMPLES] * 20
    full = train_steps(new_agent(**settings), batches)
    agent = new_agent(**settings, bf16=True)
    seen = types_of_products(agent, monkeypatch)
    half = train_steps(agent, batches)
    assert seen == {torch.bfloat16}
    assert full[0] == pytest.approx(half[0], rel=5e-3) and full != half
    assert half[-1] < 0.5 * half[0]
    assert half[-1] == pytest.approx(full[-1], rel=0.15)
    assert {p.dtype for p in agent.module.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in agent.module.parameters()} == {torch.float32}


def test_mixture_is_whole_in_bf16(settings, monkeypatch):
    """Each row of log-probabilities sums to one as exactly as in float32."""
    agent = new_agent(**settings, bf16=True)
    rows = []
    mixture = copy.mixture
    monkeypatch.setattr(
        "persona_agents.models.hcm.copy.mixture",
        lambda *parts: rows.append(mixture(*parts)) or rows[-1].clone(),  # the search blocks words
    )
    act(agent, [(persona, query) for persona, query, _ in SAMPLES])
    assert rows
    for log_probs in rows:
        assert log_probs.dtype == torch.float32
        assert torch.allclose(log_probs.logsumexp(-1), torch.zeros(()), atol=1e-5)


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_half_and_full_load_each_other(settings, float16_on_cpu, monkeypatch, half):
    if half == "bf16":
        monkeypatch.setattr(
            precision, "choose", lambda opt, _: torch.bfloat16 if opt.get("bf16") else None
        )
    agent = new_agent(**settings, **{half: True})
    words = len(agent.dict)
    assert words % 8, "ParlAI would add words up to a multiple of 8"
    train_steps(agent, [SAMPLES] * 2)
    agent.save()
    saved = torch.load(settings["model_file"])
    assert {w.dtype for w in saved["model"].values()} == {torch.float32}

    full = new_agent(**settings, **{half: False})  # goes on in float32
    assert full.precision.dtype is None and full._number_training_updates == 2
    assert len(full.dict) == words
    for name, weight in full.module.state_dict().items():
        assert torch.equal(weight, saved["model"][name])
    train_steps(full, [SAMPLES])
    full.save()

    again = new_agent(**settings, **{half: True})  # and in half precision again
    assert again.precision.dtype is not None and again._number_training_updates == 3
    assert len(again.dict) == words
    train_steps(again, [SAMPLES])


def test_model_trained_in_fp16_answers_on_a_cpu(settings, monkeypatch):
    """Its options still say --fp16, which nobody has asked for now."""
    with monkeypatch.context() as gpu:
        gpu.setattr(precision, "choose", lambda opt, device: torch.float16)
        agent = new_agent(**settings, fp16=True)
        train_steps(agent, [SAMPLES])
        agent.save()
    loaded = create_agent_from_model_file(settings["model_file"])
    assert loaded.opt["fp16"] is True
    assert loaded.precision.dtype is None
    assert len(loaded.dict) == len(agent.dict)
    assert len(replies(loaded, [(persona, query) for persona, query, _ in SAMPLES])) == len(SAMPLES)


class TestFloat16:
    def test_trains_two_groups(self, settings, float16_on_cpu, monkeypatch):
        agent = new_agent(**settings, fp16=True)
        assert len(agent.optimizer.param_groups) == 2
        assert isinstance(agent.optimizer, torch.optim.AdamW)
        seen = types_of_products(agent, monkeypatch)
        before = {name: w.clone() for name, w in agent.module.state_dict().items()}
        losses = train_steps(agent, [SAMPLES] * 20)
        assert seen == {torch.float16}
        assert losses[-1] < 0.7 * losses[0]
        after = agent.module.state_dict()
        for group in ("generator.weight", "bert.embeddings.word_embeddings.weight"):
            assert not torch.equal(before[group], after[group])

    def test_clips_gradients_of_their_true_size(self, settings, float16_on_cpu):
        def norm(**more):
            agent = new_agent(**settings, gradient_clip=0.1, **more)
            train_steps(agent, [SAMPLES])
            return agent.global_metrics.report()["gnorm"].value()

        assert norm(fp16=True) == pytest.approx(norm(), rel=0.02)

    def test_leaves_out_an_update_that_overflows(self, settings, float16_on_cpu):
        agent = new_agent(**settings, fp16=True)
        train_steps(agent, [SAMPLES])
        agent.precision.scaler.update(2.0**40)  # much too large for float16
        before = {name: w.clone() for name, w in agent.module.state_dict().items()}
        train_steps(agent, [SAMPLES])
        for name, weight in agent.module.state_dict().items():
            assert torch.equal(before[name], weight)
        assert agent.precision.scaler.get_scale() < 2.0**40
        agent.precision.scaler.update(2.0**10)
        train_steps(agent, [SAMPLES])
        assert not torch.equal(before["generator.weight"], agent.module.generator.weight)

    def test_scale_goes_on_after_a_resume(self, settings, float16_on_cpu):
        agent = new_agent(**settings, fp16=True)
        train_steps(agent, [SAMPLES])
        agent.precision.scaler.update(2.0**9)
        agent.save()
        assert new_agent(**settings, fp16=True).precision.scaler.get_scale() == 2.0**9

    def test_update_freq(self, settings, float16_on_cpu):
        """Gradients are gathered at one scale and brought back to their size once."""

        def norm(update_freq, batches):
            agent = new_agent(**settings, fp16=True, update_freq=update_freq)
            train_steps(agent, batches)
            assert agent._number_training_updates == 1
            return agent.global_metrics.report()["gnorm"].value()

        assert norm(2, [SAMPLES[:3], SAMPLES[3:]]) == pytest.approx(norm(1, [SAMPLES]), rel=0.02)


class TestMessages:
    def test_fp16_needs_a_gpu(self, settings):
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        with pytest.raises(PersonaAgentsError, match="--fp16 works only on a GPU.*--bf16"):
            new_agent(**settings, fp16=True)

    def test_on_a_gpu(self, monkeypatch):
        assert precision.choose({"fp16": True}, "cuda") == torch.float16
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
        with pytest.raises(PersonaAgentsError, match="this GPU.*--fp16"):
            precision.choose({"bf16": True}, "cuda")

    def test_both(self):
        with pytest.raises(PersonaAgentsError, match="exclude each other"):
            precision.choose({"fp16": True, "bf16": True}, "cuda")

    @pytest.mark.parametrize("opt", [{"fp16_impl": "mem_efficient"}, {"force_fp16_tokens": True}])
    def test_ways_of_parlai(self, opt):
        with pytest.raises(PersonaAgentsError, match="autocast"):
            precision.choose(opt, "cuda")

    def test_default_is_float32(self, settings):
        opt = options(**settings)
        assert precision.choose(opt, "cuda") is None and precision.choose(opt, "cpu") is None
