"""A small agent that learned to copy, in Chinese and English, for tests of chats and provenance."""

from __future__ import annotations

import random
from pathlib import Path

import tiny
from parlai.scripts.train_model import TrainModel

PLACES = {
    "en": ["paris", "london", "oslo", "rome", "cairo", "lima", "kyoto", "delhi", "boston"],
    "zh": ["海南", "北京", "上海", "成都", "武汉", "拉萨", "昆明", "大连", "西安"],
}
PETS = {
    "en": ["cat", "dog", "horse", "rabbit", "parrot", "turtle", "goat", "snake", "mouse"],
    "zh": ["小猫", "小狗", "白马", "兔子", "鹦鹉", "乌龟", "山羊", "花蛇", "老鼠"],
}
# two facts: persona sentence, question, answer
FACTS = {
    "en": (
        ("i live in {}.", "where do you live?", "my home is in {}."),
        ("i have a {}.", "what pet do you have?", "my pet is a {}."),
    ),
    "zh": (
        ("我住在{}。", "你住哪里？", "我的家在{}。"),
        ("我养了{}。", "你养了什么？", "我家里有{}。"),
    ),
}


def corpus(n: int = 1200, seed: int = 1) -> list[tiny.Sample]:
    """Questions about one of two facts of a persona, alternately in English and Chinese."""
    rng, samples = random.Random(seed), []
    for number in range(n):
        language = ("en", "zh")[number % 2]
        words = rng.choice(PLACES[language]), rng.choice(PETS[language])
        facts = [tuple(t.format(w) for t in f) for f, w in zip(FACTS[language], words)]
        _, query, response = rng.choice(facts)
        rng.shuffle(facts)
        samples.append(tiny.Sample(tuple(fact[0] for fact in facts), query, response))
    return samples


def train(folder: Path, **settings) -> str:
    """Train on :func:`corpus`, in some seconds; returns the model file."""
    samples = corpus()
    model_file = str(folder / "model")
    given = {**tiny.QUIET, **tiny.SIZES, "embedding_size": 64, "ffn_size": 128, "dropout": 0.0}
    given.update(batchsize=32, learningrate=3e-3, num_epochs=4, seed=1)
    given.update(tiny.write_corpus(folder, samples, samples[:8]))
    TrainModel.main(model="persona_agents:hcm", model_file=model_file, **{**given, **settings})
    return model_file
