"""Text of ten scripts has the same ids in shards, in the trainer and in transformers."""

import random
import unicodedata

import pytest
from transformers import AutoTokenizer

from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
from data_prep.shards.format import open_shards
from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer.describe import read_tokenizer
from pretrain.convert.exports.hf_format import write_tokenizer
from tests.data_prep.small_shards import tokens_of

# A subject, a verb and an object are put together; some differ in accents or vowels alone.
WORDS = {
    "german": (
        "Die Tür|Der Bär|Mutter|Mütter",
        "schließt schon|öffnet schön",
        "das Haus|die Äpfel",
    ),
    "vietnamese": ("ma|má|mà|mả|mã|mạ", "đi học|ở nhà", "tiếng Việt|hôm nay|đường phố"),
    "hindi": ("मैं|वह|किताब|कुत्ता", "पढ़ता है|जाता है", "हिन्दी में|घर को|क्षेत्र"),
    "thai": ("ฉัน|เขา|แมว|มา", "กำลังกิน|ไปที่", "ข้าว|โรงเรียน|ม้า"),
    "khmer": ("ខ្ញុំ|គាត់|ភាសា", "\u200bទៅ\u200b|\u200bរៀន\u200b", "សាលា|ខ្មែរ|ផ្ទះ"),
    "arabic": ("كَتَبَ|كتب|الولد|البنت", "يقرأ|ذهب إلى", "المدرسة|الكتاب|اللغة العربية"),
    "hebrew": ("הילד|הילדה|שָׁלוֹם", "הולך אל|קורא", "בית הספר|ספר|עִבְרִית"),
    "japanese": ("私は|かれは|がっこうで|ハハは", "東京へ|パパと|本を", "行きます。|よみます。"),
    "chinese": ("我们|他|老师|学生", "学习|喜欢|看见", "中文。|北京。|朋友。"),
    "korean": ("나는|학교는|한국어를|친구가", "서울에서|매일", "공부합니다.|갑니다.|있다."),
}
ACCENTED = {"german", "vietnamese"}


def sentences(language, count=300):
    generator = random.Random(language)
    space = "" if language in ("thai", "khmer", "japanese", "chinese") else " "
    for number in range(count):
        text = space.join(generator.choice(part.split("|")) for part in WORDS[language])
        yield unicodedata.normalize("NFD" if number % 2 else "NFC", f"{text} {number}")


@pytest.mark.parametrize("language", WORDS)
def test_text_of_a_language_has_the_same_ids_everywhere(language, tmp_path, capsys):
    texts = list(sentences(language))
    (tmp_path / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    settings = BuildSettings(
        corpus=(str(tmp_path / "text.txt"),), sequence_length=16, vocabulary_size=400
    )
    manifest = build(settings, tmp_path / "shards", workers=1)
    errors = capsys.readouterr().err
    has = f"of 400 entries asked for, the tokenizer has {manifest.tokenizer.vocabulary_size} and"
    assert f"0.00% of the tokens are [UNK]; {has} the text uses" in errors
    assert ("of the words have accents, which are kept" in errors) == (language in ACCENTED)
    tokenizer = read_tokenizer(tmp_path / "shards" / "tokenizer.json")
    encoder = TextEncoder(tokenizer, manifest.tokenizer)
    (tmp_path / "export").mkdir()
    write_tokenizer(tmp_path / "export", encoder, sequence_length=99, with_token_types=False)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "export")
    rows = [encoder.ids(text, max_length=99) for text in texts]
    for text, row in zip(texts, rows, strict=True):
        assert theirs(text)["input_ids"] == row
        # The same text composed or not, with what nobody sees, and a name of a special token.
        other = unicodedata.normalize("NFC", f"\ufeff{text}\x0c").replace(" ", "\u00a0\x1c")
        assert encoder.ids(other, max_length=99) == theirs(other)["input_ids"] == row
        named = f"{text} [UNK] [SEP] {text}"
        assert theirs(named)["input_ids"] == encoder.ids(named)
        words = tokenizer.decode(row).replace(" ", "")
        expected = unicodedata.normalize("NFC", text).lower().replace("\u200b", "")
        assert words == expected.replace(" ", "")
    sep = manifest.tokenizer.special_tokens["sep"]
    stream = [token for n, row in enumerate(rows) if n % 50 for token in [*row[1:-1], sep]]
    found = tokens_of(open_shards(tmp_path / "shards"), "train")
    assert found == stream[: len(found)]
