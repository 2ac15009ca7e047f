"""Responses from a vocabulary chosen for each input: ``-m persona_agents:dvs2s``."""

from __future__ import annotations

import torch
from parlai.core.exceptions import StopTrainException
from parlai.core.metrics import AverageMetric, GlobalAverageMetric
from parlai.core.torch_generator_agent import PPLMetric, TorchGeneratorAgent

from persona_agents.agents.dvs_options import add_cmdline_args, check
from persona_agents.agents.dvs_schedule import Adadelta, Baseline, DVSSchedule
from persona_agents.agents.dvs_search import SmallVocabularySearch
from persona_agents.agents.recipe import PersonaRecipe
from persona_agents.errors import PersonaAgentsError
from persona_agents.models import dvs_joint
from persona_agents.models.dvs2s import DVS2S, Sizes
from persona_agents.models.dvs_vocabulary import FORBIDDEN
from persona_agents.words import WordDictionaryAgent


class DVS2SAgent(SmallVocabularySearch, PersonaRecipe, TorchGeneratorAgent):
    """
    A sequence-to-sequence model that picks a small vocabulary T for each input and decodes in it.

    ``--dvs joint`` is the paper's model, ``separate`` learns both parts without joining their
    losses, ``none`` is the same network on the full vocabulary.
    """

    OPTIMIZERS = ("adadelta",)
    SAVED = ("dvs",)

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        return add_cmdline_args(parser)

    @classmethod
    def check_options(cls, opt):
        check(opt)
        super().check_options(opt)

    @classmethod
    def dictionary_class(cls):
        return WordDictionaryAgent

    def __init__(self, opt, shared=None):
        self.baseline = Baseline()
        self._measured = self._negative_weights = None
        super().__init__(opt, shared)

    def build_model(self) -> DVS2S:
        opt, saved = self.opt, self.saved_opt(self.opt)
        if saved is not None and (saved["dvs"] == "none") != (opt["dvs"] == "none"):
            raise PersonaAgentsError(
                f"--dvs {opt['dvs']}: this model was trained with --dvs {saved['dvs']}, and one of "
                "the two has no word predictor. Leave the option out, or give --model-file a new "
                "path. (--dvs-top-k as large as the dictionary decodes on the full vocabulary.)"
            )
        if not self.dict.words:
            raise PersonaAgentsError(
                "The dictionary holds no words: train with --model-file, or name a dictionary of "
                "this agent with --dict-file."
            )
        n_function = len(self.dict) if opt["dvs"] == "none" else self.dict.n_function
        sizes = Sizes(len(self.dict), n_function, opt["embedding_size"], opt["hidden_size"])
        model = DVS2S(sizes, self.NULL_IDX, self.START_IDX, opt["dropout"])
        if saved is None and model.predictor is not None:
            model.start_predictor(self.dict.reply_shares(), self.dict.counts(), self.END_IDX)
        return model

    # -- loss --------------------------------------------------------------------------------------

    def _rule(self) -> dict:
        """The test-time rule for T."""
        return {"top_k": self.opt["dvs_top_k"], "threshold": self.opt.get("dvs_threshold")}

    def _draw_negatives(self, batch: int) -> torch.Tensor:
        """``--dvs-negatives`` content words (B, N) for each reply, drawn by frequency."""
        if self._negative_weights is None:
            weights = self.dict.counts()[self.dict.n_function :]
            self._negative_weights = weights.to(self.module.projection.weight.device)
        n = self.opt["dvs_negatives"]
        drawn = torch.multinomial(self._negative_weights, batch * n, replacement=True)
        return drawn.view(batch, n)

    def _loss_of_this_phase(self, model, encoded, ys) -> dvs_joint.Measured:
        """What the model's ``forward`` computes after encoding."""
        opt, kappa = self.opt, self.opt["dvs_kappa"]
        training = self.model.training
        if training and self.scheduler.phase == 2:
            return dvs_joint.joint(
                model,
                encoded,
                ys,
                kappa=kappa,
                samples=opt["dvs_samples"],
                baseline=self.baseline,
                length_norm=opt["dvs_length_norm"],
                measure_full=True,
            )
        negatives = self._draw_negatives if training and opt["dvs_negatives"] else None
        return dvs_joint.by_rule(
            model, encoded, ys, kappa=kappa, draw_negatives=negatives, **self._rule()
        )

    def compute_loss(self, batch, return_output=False):
        """The loss per token of the phase that training is in, and all that is reported."""
        if batch.label_vec is None:
            raise ValueError("Cannot compute loss without a label.")
        with self.precision.autocast():
            measured = self.model(
                *self._model_input(batch), batch.label_vec, self._loss_of_this_phase
            )
        self._report(measured, batch.label_vec)
        self._measured = None if self.model.training else measured
        loss = measured.loss.sum() / batch.label_vec.ne(self.NULL_IDX).sum()
        if not return_output:
            return loss
        scores, first = measured.scores, self.module.sizes.function_words
        if self.show_token_details and measured.allowed is not None:
            scores = scores.clone()
            scores[..., first:].masked_fill_(~measured.allowed.unsqueeze(1), FORBIDDEN)
        return loss, (scores, measured.best, None)

    def _report(self, measured: dvs_joint.Measured, ys: torch.Tensor) -> None:
        real = ys.ne(self.NULL_IDX)
        lengths = real.sum(dim=1)
        tokens = lengths.tolist()

        def record(name, values, counts=None, metric=AverageMetric):
            values = values.detach().tolist()
            self.record_local_metric(name, metric.many(values, counts or [1] * len(values)))

        nll = -measured.log_prob.sum(dim=2).mean(dim=1)  # (B,)
        record("loss", nll, tokens)
        record("ppl", nll, tokens, PPLMetric)
        record("ppl_full", -measured.full_log_prob.sum(dim=1), tokens, PPLMetric)
        right = ((measured.best == ys) & real).sum(dim=1)
        record("token_acc", right, tokens)
        record("token_em", (right == lengths).long())
        if measured.reward is None:  # --dvs none
            return
        record("t_size", measured.sizes.double().mean(dim=1))
        found, samples = measured.found.sum(dim=1), measured.found.size(1)
        record("t_recall", found, (measured.gold * samples).tolist())
        record("predictor_loss", measured.predictor_loss)
        value = dvs_joint.normalised(measured.reward, lengths, self.opt["dvs_length_norm"])
        record("reward", value.mean(dim=1))

    def report(self):
        """ParlAI's report with b_k and the phase of training."""
        report = super().report()
        if self._has_trained and self.opt["dvs"] == "joint":
            report["phase"] = GlobalAverageMetric(self.scheduler.phase)
            if self.baseline.value is not None:
                report["baseline"] = GlobalAverageMetric(self.baseline.value)
        return report

    # -- replies -----------------------------------------------------------------------------------

    def choose_vocabulary(self, encoded, beams, path):
        return self.module.choose(encoded, beams=beams, path=path, **self._rule())

    def eval_step(self, batch):
        """
        ParlAI's, with T in the reply.

        A reply's ``vocabulary_size`` is |T|; where the gold reply is known, ``missed_words`` are
        its content words outside T.
        """
        self._measured = self.vocabulary_sizes = None
        output = super().eval_step(batch)
        if output is None:
            return None
        measured, sizes = self._measured, self.vocabulary_sizes
        if sizes is None and measured is not None:
            sizes = measured.sizes[:, 0].tolist()
        output.vocabulary_size = sizes
        if measured is not None and measured.missed is not None:
            first = self.module.sizes.function_words
            output.missed_words = [
                [self.dict[first + c] for c in row.nonzero().squeeze(1).tolist()]
                for row in measured.missed
            ]
        self._measured = None
        return output

    def rank_eval_label_candidates(self, batch, batchsize):
        """Candidates by their log-probability per word on the full vocabulary."""
        wrapped, self.model = (
            self.model,
            self.module,
        )  # distributed training's wrapper lacks encoder
        try:
            return super().rank_eval_label_candidates(batch, batchsize)
        finally:
            self.model = wrapped

    # -- training ----------------------------------------------------------------------------------

    def init_optim(self, params, optim_states=None, saved_optim_type=None, is_finetune=False):
        """Adadelta, whose natural rate is 1."""
        opt = self.opt
        self.optimizer = Adadelta(
            params, lr=opt["learningrate"], rho=0.95, weight_decay=opt.get("weight_decay") or 0.0
        )
        if is_finetune or not optim_states:
            return is_finetune
        self.optimizer.load_state_dict(optim_states)
        for group in self.optimizer.param_groups:
            group["lr"] = opt["learningrate"]  # the schedule sets the rate of a resumed training
        return False

    def build_lr_scheduler(self, states=None, hard_reset=False):
        self.scheduler = DVSSchedule(self.optimizer, self.opt)
        if states and not hard_reset:
            self.scheduler.load_state(states)
            self.baseline.value = states.get("baseline")
        self._number_training_updates = self.scheduler.get_initial_number_training_updates()

    def train_step(self, batch):
        if not self.scheduler.ended:
            super().train_step(batch)
        elif self._has_trained:
            raise StopTrainException("two consecutive rises of the validation perplexity")
        self._has_trained = True  # a resumed training that had ended: the loop wants one step first

    def state_dict(self):
        return {**super().state_dict(), "baseline": self.baseline.value}
