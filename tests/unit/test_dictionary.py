"""BERT's vocabulary behind ParlAI's dictionary, and vocabularies built from training data."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
import tiny
from conftest import subprocess_environment

from persona_agents.dictionary import WordPieceDictionaryAgent, tidy
from persona_agents.errors import PersonaAgentsError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
ENGLISH = [
    "i don't like t-shirts.",
    "it's 3.5 miles, isn't it?",
    "he (my uncle) said: yes!",
    "the year 2,000 [a leap year] at 10:30",
    "well... i-95 is state-of-the-art; really",
    "we don't know the dogs' names 'cause they're new",
    "naïve café, 50% off at $4.99 & up",
    "e-mail me @home #1 : )",
    'she said "hi there" to me',
]
CHINESE = [
    "我喜欢吃苹果，你呢？",
    "我今年25岁，身高1.75米。",
    "“你好！”他说：“再见……”",
    "（我）在【北京】住了3年——真的！",
    "《三体》很好看、很长；推荐～",
    "我用iPhone听new age音乐",
]
BOTH = [
    "我爱 rock and roll 音乐",
    "hello，世界!",
    "ＡＢＣ１２３",
    "한국어 ok",
    "emoji 😀 here",
    "x\u200by",
]


def new(**opt):
    return WordPieceDictionaryAgent(tiny.options(task="cpc:mini", model_file="unused", **opt))


def built(texts, **opt):
    """A dictionary that has seen texts as queries, and is made of them."""
    dictionary = new(**opt)
    for text in texts:
        dictionary.observe({"text": text})
        dictionary.act()
    dictionary._build_vocabulary()
    return dictionary


@pytest.fixture(scope="module")
def english(minilm):
    """The vocabulary of bert-base-uncased."""
    return new(**tiny.with_bert(minilm))


@pytest.fixture(scope="module")
def bilingual():
    """A vocabulary built from both bundled corpora: it knows every common Chinese character."""
    texts = [part for lang in ("zh", "en") for s in tiny.samples(lang)[:800] for part in s[1:]]
    return built([*texts, *ENGLISH, *CHINESE, *BOTH])


class TestBertsVocabulary:
    def test_size_and_special_ids_are_berts(self, english):
        assert len(english) == 30522
        assert [english[token] for token in SPECIAL] == [0, 100, 101, 102]
        assert english.null_token == "[PAD]" and english.unk_token == "[UNK]"
        assert english.start_token == "[CLS]" and english.end_token == "[SEP]"

    def test_unknown_is_not_padding(self, english):
        (unknown,) = english.txt2vec("\U0001f9a9")  # a flamingo, which BERT's vocabulary lacks
        assert unknown == 100 == english["no such token, ever"]
        assert english[100] == "[UNK]" and english[0] == "[PAD]"

    def test_is_ready_at_once(self, english):
        assert english.is_prebuilt()
        assert "hello" in english and english["hello"] == 7592 and english[7592] == "hello"
        assert len(english.keys()) == len(english.tok2ind) == 30522

    def test_tokens_are_berts_own(self, english, minilm):
        from transformers import BertTokenizer  # the slow one, written in Python

        reference = BertTokenizer.from_pretrained(minilm)
        for text in [*ENGLISH, *CHINESE, *BOTH]:
            expected = reference.encode(text, add_special_tokens=False)
            assert english.txt2vec(text) == expected, text


@pytest.mark.parametrize("which", ["english", "bilingual"])
class TestTextAndIds:
    @pytest.fixture
    def dictionary(self, which, request):
        return request.getfixturevalue(which)

    @staticmethod
    def check_round_trip(dictionary, texts):
        broken = []
        for text in texts:
            ids = dictionary.txt2vec(text)
            decoded = dictionary.vec2txt(ids)
            if dictionary.txt2vec(decoded) != ids or "##" in decoded:
                broken.append((text, decoded, dictionary.tokenize(decoded)))
        assert not broken, f"{len(broken)} of {len(texts)}: {broken[:3]}"

    def test_round_trip_of_chosen_texts(self, dictionary):
        self.check_round_trip(dictionary, [*ENGLISH, *CHINESE, *BOTH])

    def test_round_trip_of_random_texts(self, dictionary):
        draw = random.Random(5)
        # mostly the characters at which spacing is decided
        alphabet = "ab1 2  .,:;!?-'\"()[]{}%$我你，。！？（）“”‘’…—·《》～é😀/&*_+=<>|`^~@#\n\t中"
        texts = ["".join(draw.choices(alphabet, k=draw.randint(1, 12))) for _ in range(4000)]
        self.check_round_trip(dictionary, texts)

    def test_round_trip_of_the_corpora(self, dictionary):
        texts = [
            part for lang in ("zh", "en") for s in tiny.samples(lang, "test") for part in s[1:]
        ]
        assert len(texts) > 1000
        self.check_round_trip(dictionary, texts)

    def test_round_trip_of_real_data(self, dictionary, real_data):
        english = (real_data / "personachat" / "train_self_original.txt").read_text("utf-8")
        texts = [line.split("\t")[1] for line in english.splitlines() if "\t" in line][:1500]
        chinese = (real_data / "cpc" / "Persona_dev.json").read_text("utf-8").splitlines()
        for line in chinese[:100]:
            texts += [turn.split(":", 1)[1] for turn in json.loads(line)["conversation"]]
        assert len(texts) > 1500
        self.check_round_trip(dictionary, texts)

    def test_random_ids_decode_to_clean_text(self, dictionary):
        draw = random.Random(6)
        for _ in range(500):
            ids = [draw.randrange(len(dictionary)) for _ in range(8)]
            text = dictionary.vec2txt([i for i in ids if not dictionary[i].startswith("##")])
            assert "##" not in text and text == text.strip() and "[SEP]" not in text

    def test_padding_start_and_end_are_not_text(self, dictionary):
        ids = [dictionary[t] for t in ("[CLS]", *dictionary.tokenize("hi ,"), "[SEP]", "[PAD]")]
        assert dictionary.vec2txt(ids) == "hi,"
        import torch

        assert dictionary.vec2txt(torch.tensor(ids)) == "hi,"

    @pytest.mark.parametrize("text", ["[CLS] a [SEP] b [PAD]", "[SEP]", "x[CLS]y", "[sep][MASK]"])
    def test_spelled_out_special_tokens_are_ordinary_text(self, dictionary, text):
        special = {dictionary[token] for token in ("[PAD]", "[CLS]", "[SEP]")}
        assert not special & set(dictionary.txt2vec(text))
        assert not {"[CLS]", "[SEP]", "[PAD]"} & set(dictionary.tokenize(text))


class TestCleanText:
    @pytest.mark.parametrize(
        "text",
        [
            "i don't like t-shirts.",
            "it's 3.5 miles, isn't it?",
            "he (my uncle) said: yes!",
            "at 10:30 [sharp], 2,000 people",
            "50% of them",
        ],
    )
    def test_english_comes_back_as_written(self, english, text):
        assert english.vec2txt(english.txt2vec(text)) == text

    @pytest.mark.parametrize("text", CHINESE)
    def test_chinese_comes_back_without_spaces(self, bilingual, text):
        assert bilingual.vec2txt(bilingual.txt2vec(text)) == text.lower()

    def test_segmented_chinese_is_joined(self, bilingual):
        assert (
            bilingual.vec2txt(bilingual.txt2vec("我 喜欢 苹果 ， 你 呢 ？")) == "我喜欢苹果，你呢？"
        )

    def test_spaces_between_words_stay(self):
        assert tidy("do not go , it is 3 o ' clock") == "do not go, it is 3 o'clock"
        assert tidy("a - b") == "a-b" and tidy("我 和 you and me 。") == "我和you and me。"


TEXTS = [
    "your persona: 我 叫 小明\n你好 吗",
    "your persona: i sew.\nhello hello world",
    "héllo w-x",
]


class TestBuiltFromData:
    def test_special_ids_are_distinct(self):
        dictionary = built(TEXTS)
        assert len({dictionary[token] for token in SPECIAL}) == 4
        assert dictionary["[PAD]"] == 0 and dictionary["nowhere"] == dictionary["[UNK]"]
        assert not dictionary.is_prebuilt()

    def test_holds_every_character_of_persona_query_and_response(self):
        dictionary = new()
        turn = {"text": "your persona: 我 叫 qz\npartner's persona: kv\n你好", "labels": ["wx吗"]}
        dictionary.observe(turn)
        dictionary.act()
        dictionary._build_vocabulary()
        for text in ("我叫你好吗", "q z k v w x", "qz kv wx", "zq xw"):
            expected = "zq xw" == text  # z may begin no word, and x and w likewise: see below
            assert ("[UNK]" in dictionary.tokenize(text)) is expected
        assert "persona" not in dictionary and "your" not in dictionary

    def test_whole_words_by_frequency(self):
        dictionary = built(TEXTS, dict_minfreq=2)
        assert "hello" in dictionary, "accents are dropped, so it occurs three times"
        assert "world" not in dictionary
        assert dictionary.tokenize("world") == ["w", "##o", "##r", "##l", "##d"]
        assert "world" in built(TEXTS, dict_minfreq=1)

    def test_most_frequent_words_first_under_a_limit(self):
        characters = len(built(TEXTS, dict_minfreq=99))
        dictionary = built(TEXTS, dict_maxtokens=characters + 1)
        assert len(dictionary) == characters + 1
        assert "hello" in dictionary and "world" not in dictionary
        assert len(built(TEXTS, dict_maxtokens=10)) == 10

    def test_is_the_same_in_every_process(self, tmp_path):
        corpus = tiny.write_corpus(tmp_path, [*tiny.samples("zh")[:50], *tiny.samples("en")[:50]])
        arguments = ["-t", corpus["task"], "--personachat-path", corpus["personachat_path"]]
        code = (
            "import sys, persona_agents; from parlai.scripts.build_dict import BuildDict\n"
            "BuildDict.main(*sys.argv[1:])"
        )
        sums = set()
        for seed in ("1", "2"):
            path = tmp_path / f"{seed}.dict"
            subprocess.run(
                [sys.executable, "-c", code, "-m", "persona_agents:hcm", "--bert-model", "none"]
                + [*arguments, "--dict-file", str(path), "--loglevel", "error"],
                env={**subprocess_environment(), "PYTHONHASHSEED": seed},
                check=True,
                capture_output=True,
            )
            sums.add(hashlib.sha256(path.read_bytes()).hexdigest())
        assert len(sums) == 1
        dictionary = new(dict_file=str(path))
        sample = tiny.samples("zh")[0]
        assert "[UNK]" not in dictionary.tokenize("".join([*sample.persona, *sample[1:]]))


class TestFiles:
    @pytest.mark.parametrize("which", ["english", "bilingual"])
    def test_saved_and_read_again(self, which, request, tmp_path):
        before = request.getfixturevalue(which)
        path = tmp_path / "new folder" / "model.dict"
        before.save(str(path))
        assert [p.name for p in path.parent.iterdir()] == ["model.dict"], "no partial file is left"
        # a folder of BERT is not needed any more, not even looked for
        after = new(**tiny.with_bert("/no/such/bert"), dict_file=str(path))
        assert after.tok2ind == before.tok2ind and len(after) == len(before)
        for text in [*ENGLISH, *CHINESE, "[SEP] [UNK] x"]:
            assert after.txt2vec(text) == before.txt2vec(text)
            assert after.vec2txt(after.txt2vec(text)) == before.vec2txt(before.txt2vec(text))

    @pytest.mark.parametrize(
        "content", ["", "hello\t5\nworld\t2\n", '{"version": "1.0", "mod', "{}", "\x00\xff"]
    )
    def test_damaged_file(self, content, tmp_path):
        path = tmp_path / "model.dict"
        path.write_text(content, encoding="latin-1")
        with pytest.raises(PersonaAgentsError) as error:
            new(dict_file=str(path))
        assert str(path) in str(error.value) and "--dict-file" in str(error.value)

    def test_a_file_without_the_special_tokens(self, tmp_path):
        from tokenizers import Tokenizer, models

        path = tmp_path / "model.dict"
        Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(str(path))
        with pytest.raises(PersonaAgentsError, match="model.dict"):
            new(dict_file=str(path))

    def test_shared_copies_use_one_tokenizer(self, bilingual):
        shared = bilingual.share()
        copy = WordPieceDictionaryAgent(bilingual.opt, shared)
        assert copy.wordpiece is bilingual.wordpiece and len(copy) == len(bilingual)
        assert copy.txt2vec(CHINESE[0]) == bilingual.txt2vec(CHINESE[0])
        assert copy["no such token"] == copy["[UNK]"]


def test_a_vocabulary_that_is_not_berts(tmp_path, minilm, monkeypatch):
    from tokenizers import Tokenizer, models

    from persona_agents import bert

    other = Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    monkeypatch.setattr(
        bert, "load_tokenizer", lambda name: SimpleNamespace(backend_tokenizer=other)
    )
    with pytest.raises(PersonaAgentsError, match=r"lacks \[PAD\], \[CLS\], \[SEP\]"):
        new(**tiny.with_bert(minilm))
