"""What the models share that score the target word themselves, HCM above all."""

from __future__ import annotations

import torch
from parlai.core.torch_generator_agent import TorchGeneratorAgent
from torch import nn

from persona_agents import bert
from persona_agents.agents.recipe import PersonaRecipe
from persona_agents.models.generator import SpecialIds


class TargetNLL(nn.Module):
    """
    Negative log-likelihood from log-probabilities.

    The models score the target word themselves and build no (B, T, V) mixture in training, so the
    scores are (N, 1), log p of the target; the whole mixture (N, V) is taken as well.
    """

    def __init__(self, pad_id: int):
        super().__init__()
        self.pad_id = pad_id

    def forward(self, log_probs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Losses (N,) of the targets (N,), zero at padding."""
        if log_probs.size(-1) > 1:
            log_probs = log_probs.gather(-1, target.unsqueeze(-1))
        return (-log_probs.squeeze(-1)).masked_fill(target == self.pad_id, 0.0)


class ScoringAgent(PersonaRecipe, TorchGeneratorAgent):
    """An agent whose model returns the log-probabilities of the target words."""

    @property
    def special_ids(self) -> SpecialIds:
        """Ids of the special tokens, for the model."""
        unknown = self.dict[self.dict.unk_token]
        return SpecialIds(self.NULL_IDX, self.START_IDX, self.END_IDX, unknown)

    def build_criterion(self):
        return TargetNLL(self.NULL_IDX)

    def compute_loss(self, batch, return_output=False):
        """ParlAI's loss and metrics; the whole mixture is built only to show token details."""
        if not (return_output and self.show_token_details):
            return super().compute_loss(batch, return_output)
        loss, (_, best, encoded, *more) = super().compute_loss(batch, return_output=True)
        log_probs, _ = self.module.decode_forced(encoded, batch.label_vec)  # (B, T, V)
        return loss, (log_probs, best, encoded, *more)

    def rank_eval_label_candidates(self, batch, batchsize):
        """Rank candidates, the best first; their scores are :meth:`candidate_losses`."""
        encoded = self.module.encoder(*self._encoder_input(batch))
        texts, scores = [], []
        for i in range(batchsize):
            ys, _ = self._pad_tensor(batch.candidate_vecs[i], is_label=True)
            ys = ys.to(batch.text_vec.device)  # (candidates, T)
            rows = torch.full((len(ys),), i, device=ys.device)
            loss = self.candidate_losses(self.module.reorder_encoder_states(encoded, rows), ys)
            order = loss.argsort()
            texts.append([batch.candidates[i][j] for j in order])
            scores.append(loss[order].tolist())
        return texts, scores

    def candidate_losses(self, encoded, ys: torch.Tensor) -> torch.Tensor:
        """What replies (B, T) are ranked by, the least first: their mean loss per token, (B,)."""
        log_prob, _ = self.module.score(encoded, ys)
        real = ys.ne(self.NULL_IDX)
        return -(log_prob * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)

    def _construct_label_token_losses(self, labels, model_output):
        return super()._construct_label_token_losses(labels, model_output[:3])

    def _generation_activation(self, score: torch.Tensor) -> torch.Tensor:
        """The scores are log-probabilities: only a temperature leaves something to normalise."""
        return score.float() if self.temperature == 1.0 else super()._generation_activation(score)


class PersonaGeneratorAgent(ScoringAgent):
    """
    An agent whose model's sizes are BERT's.

    Sub-classes implement ``build_model``, which stores ``bert_config`` in the options, and
    ``pretrained_parameters``.
    """

    SAVED = ("bert_config",)

    @classmethod
    def check_options(cls, opt) -> None:
        bert.check_options(opt)
        super().check_options(opt)

    def _n_positions(self) -> int:
        return self.module.bert.config.max_position_embeddings

    def bert_config(self, saved: dict | None):
        """
        BERT's configuration, and whether its weights are still to be loaded.

        What a saved model brings along goes into the options: ``bert_config``, so that neither hub
        nor folder is needed again, and ``n_decoder_layers``.

        :param saved: what :meth:`saved_opt` says.
        """
        opt = self.opt
        pretrained = saved is None and not bert.is_none(opt)
        if saved is not None:
            bert.check_sizes_kept(opt, saved["bert_config"])
            config = bert.from_description(saved["bert_config"])
        elif pretrained:
            config = bert.load_config(bert.resolve(opt))
        else:
            config = bert.small_config(opt, len(self.dict), self.NULL_IDX)
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = opt["dropout"]
        if config.vocab_size != len(self.dict):
            bert.reject_vocabulary(opt, config.vocab_size, len(self.dict))
        opt["bert_config"] = bert.describe(config)
        as_bert = bert.SMALL["n_decoder_layers"] if bert.is_none(opt) else config.num_hidden_layers
        opt["n_decoder_layers"] = (
            opt.get("n_decoder_layers") or (saved or {}).get("n_decoder_layers") or as_bert
        )
        return config, pretrained
