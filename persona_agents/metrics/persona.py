"""How much of the persona a reply takes up, in words (the paper's eq. 22) and in sense (eq. 23)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from persona_agents.metrics.base import Ratio, Reply
from persona_agents.metrics.tokens import words, words_signature


def p_cover(reply: str, persona: Iterable[str]) -> float | None:
    """
    Eq. 22: the greatest share of a persona sentence's words that the reply holds.

    :return: max over sentences of |distinct shared words| / words of the sentence, from 0 to 1;
        None when the persona has no word, so that the sample is left out of the mean.
    """
    said = set(words(reply))
    sentences = [sentence for sentence in map(words, persona) if sentence]
    if not sentences:
        return None
    return max(len(said & set(sentence)) / len(sentence) for sentence in sentences)


class PCover(Ratio):
    """Eq. 22, averaged over the replies that have a persona; punctuation is counted nowhere."""

    key = "p_cover"
    outputs = ("p_cover",)

    def __init__(self, language: str):
        self.language = language

    @property
    def signature(self) -> str:
        return f"words:{words_signature(self.language)},no-punctuation|average:reply"

    def applies(self, reply: Reply) -> bool:
        return any(map(words, reply.persona))

    def statistics(self, replies: Sequence[Reply]) -> list:
        return [(p_cover(reply.text, reply.persona), 1) for reply in replies]


class PEm(Ratio):
    """
    Eq. 23: the greatest cosine of the reply and a persona sentence, averaged over replies.

    A text's vector is the mean of BERT's last layer over its word pieces, [CLS], [SEP] and padding
    excluded. An empty reply has none and scores 0.

    :param encoder: a persona_agents.metrics.encoder.Encoder
    """

    key = "p_em"
    outputs = ("p_em",)

    def __init__(self, encoder):
        self.encoder = encoder
        encoder.keeps_means = True

    @property
    def signature(self) -> str:
        return f"model:{self.encoder.signature}|layer:last|pool:mean,no-special-tokens"

    def applies(self, reply: Reply) -> bool:
        return any(sentence.strip() for sentence in reply.persona)

    def statistics(self, replies: Sequence[Reply]) -> list:
        import torch

        texts = dict.fromkeys(t for reply in replies for t in (reply.text, *reply.persona))
        vectors = self.encoder.embed(texts)
        rows = {text: row for row, text in enumerate(texts)}
        units = torch.stack([vectors[text].mean for text in texts]).double()  # (texts, d)
        units = torch.nn.functional.normalize(units, dim=-1)
        scores = []
        for reply in replies:
            sentences = [rows[s] for s in reply.persona if s.strip()]
            cosines = units[sentences] @ units[rows[reply.text]]  # (sentences,)
            scores.append((cosines.max().item(), 1))
        return scores
