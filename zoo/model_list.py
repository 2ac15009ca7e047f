"""
The models of this package, in the fields of ParlAI's own ``parlai/zoo/model_list.py``.

ParlAI has no command that shows a list of models, and its website and model cards read its own list
only; ``parlai persona_zoo`` shows this one. A model of the paper's is named like the preset that
trains it. ``sha256``, a field of ours, is the checksum of a published archive.
"""

PREFIX = "zoo:persona_agents/"

# system -> (agent, title, what it is)
SYSTEMS = {
    "hcm": ("hcm", "HCM", "BERT encoder and hierarchical copy decoder"),
    "hcm_without_bert": (
        "hcm",
        "HCM w/o BERT",
        "HCM with a random encoder, BERT's embeddings kept",
    ),
    "hcm_without_copy": ("hcm", "HCM w/o HCM", "HCM without its copy mechanism"),
    "s2sa": ("s2sa", "S2SA", "recurrent sequence-to-sequence model with attention"),
    "pgn": ("pgn", "PGN", "S2SA with a pointer to the words of its input"),
    "transformer": ("transformer", "Transformer", "encoder-decoder, trained as in its own paper"),
    "transfertransfo": ("transfertransfo", "TransferTransfo", "GPT that also learns to choose"),
    "lic": ("lic", "LIC", "GPT as encoder and decoder of several inputs"),
    "bert2bert": ("bert2bert", "BERT2BERT", "encoder and decoder that both start from BERT"),
    "dvs2s": ("dvs2s", "DVS2S", "chooses a vocabulary for each reply"),
}
TASKS = {
    "cpc": "the Chinese Persona-Chat, filtered as in the paper",
    "personachat_single_turn": "Persona-Chat, one question and one answer",
}


def _bundled(language: str, task: str, data: str, query: str, reply: str, right: str) -> dict:
    name = f"hcm_mini_{language}"
    return {
        "title": f"HCM on {task}",
        "id": "persona_agents",
        "path": f"{PREFIX}{name}/model",
        "agent": "persona_agents:hcm",
        "task": task,
        "project": "persona_agents",
        "description": f"A small HCM (2 + 2 layers of 128, no BERT), trained on {data} in a few "
        "minutes. It comes with the package and needs no download. It answers questions of the kinds "
        "that its corpus knows, with names that it has never seen, and nothing else.",
        "example": f"parlai interactive -mf {PREFIX}{name}/model -t {task}",
        "result": f"Asked {query} it answers, for example, {reply} {right} of its replies to the "
        "test split hold the name that was asked for and no other.",
    }


def _published(system: str, task: str) -> dict:
    agent, title, what = SYSTEMS[system]
    name = f"{system}_{task}"
    return {
        "title": f"{title} on {task}",
        "id": "persona_agents",
        "path": f"{PREFIX}{name}/model",
        "agent": f"persona_agents:{agent}",
        "task": task,
        "project": "persona_agents",
        "description": f"{what}; trained on {TASKS[task]}, with the paper's settings.",
        "example": f"parlai eval_model -mf {PREFIX}{name}/model -t {task} -dt test",
        "result": f"Not published yet. parlai train_model -o persona_agents/{name} trains it.",
        "sha256": None,
    }


model_list = [
    _bundled(
        "zh",
        "cpc:mini",
        "invented Chinese dialogues",
        "你住在哪里？",
        "我家在萤姿镇，你呢？",
        "98 %",
    ),
    _bundled(
        "en",
        "personachat_single_turn:mini",
        "invented English dialogues",
        '"where do you live?"',
        '"i live in western temple, and you?"',
        "100 %",
    ),
    *(_published(system, task) for task in TASKS for system in SYSTEMS),
]
