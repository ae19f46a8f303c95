"""A GLUE of a few rows a task, each in the layout of its original files."""

MNLI = (
    "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|"
    "sentence1_parse|sentence2_parse|sentence1|sentence2"
)
STS = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
PAIR = "31193|31193n|government|( p )|( h )|(P)|(H)"
CAPTIONS = "main-captions|MSRvid|2012test|0001|none|none"

# Every file, with | for a tab. Texts hold what breaks careless readers: quotes that are never
# closed, commas, separators that only look like ends of lines.
FILES = f"""\
== CoLA/train.tsv
gj04|1||One more "pseudo generalization.
gj04|0|*|They drank the pub.
gj04|1||The sailors\u2028rode the breeze.
== CoLA/dev.tsv
ks08|0|*|He left before\x85has.
== CoLA/test.tsv
index|sentence
0|Bill whistled past the house.
== SST-2/train.tsv
sentence|label
hide new secretions from the parental units |0
that loves its characters |1
== SST-2/dev.tsv
sentence|label
it 's a charming journey . |1
== SST-2/test.tsv
index|sentence
0|uneasy mishmash of styles .
== MRPC/train.tsv
\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String
1|702876|702977|Amrozi said "the witness lied.|He called it a lie.
0|2108705|2108831|Yucaipa owned it.|They sold it, in 1998.
== MRPC/dev.tsv
\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String
1|1355540|1355592|He said so.|So he said.
== MRPC/test.tsv
index|#1 ID|#2 ID|#1 String|#2 String
0|1089874|1089925|Stocks rose.|Stocks fell.
== STS-B/train.tsv
{STS}|score
0|{CAPTIONS}|A plane is taking off.|An air plane is taking off.|5.000
1|{CAPTIONS}|A man plays a flute.|A man eats.|0.8
== STS-B/dev.tsv
{STS}|score
0|{CAPTIONS}|A dog.|A cat.|1.25
== STS-B/test.tsv
{STS}
0|{CAPTIONS}|A girl.|A boy.
== QQP/train.tsv
id|qid1|qid2|question1|question2|is_duplicate
133273|213221|213222|How is life?|What is life?|0
402555|536040|536041|How do I lose weight?|How to lose weight?|1
360472|364011|490273|"Was he real?
|Is there proof?|0
== QQP/dev.tsv
id|qid1|qid2|question1|question2|is_duplicate
201359|303345|303346|Why?|Why not?|0
== QQP/test.tsv
id|question1|question2
0|Who?|Whom?
== MNLI/train.tsv
{MNLI}|label1|gold_label
0|{PAIR}|Conceptually cream has two dimensions.|Cream.|neutral|neutral
1|{PAIR}|How do you know?|This is theirs.|entailment|entailment
2|{PAIR}|Who can tell?|Nobody.|neutral|-
3|{PAIR}|He came.|He did not come.|contradiction|contradiction
== MNLI/dev_matched.tsv
{MNLI}|label1|label2|label3|label4|label5|gold_label
0|{PAIR}|New rights.|Benefits.|neutral|neutral|neutral|neutral|entailment|neutral
== MNLI/dev_mismatched.tsv
{MNLI}|label1|label2|label3|label4|label5|gold_label
0|{PAIR}|Your gift.|Thanks.|neutral|neutral|contradiction|contradiction|contradiction|contradiction
== MNLI/test_matched.tsv
{MNLI}
0|{PAIR}|Hierbas.|Herbs.
== MNLI/test_mismatched.tsv
{MNLI}
0|{PAIR}|What?|Which?
== QNLI/train.tsv
index|question|sentence|label
0|When did it open?|It opened in 1977.|entailment
1|Who wrote it?|It was long.|not_entailment
== QNLI/dev.tsv
index|question|sentence|label
0|What came into force?|The constitution.|entailment
== QNLI/test.tsv
index|question|sentence
0|What?|That.
== RTE/train.tsv
index|sentence1|sentence2|label
0|No weapons found.|Weapons found.|not_entailment
1|A place of sorrow.|A place.|entailment
== RTE/dev.tsv
index|sentence1|sentence2|label
0|She died.|He had an accident.|not_entailment
== RTE/test.tsv
index|sentence1|sentence2
0|Mangla was here.|Here.
== WNLI/train.tsv
index|sentence1|sentence2|label
0|I stuck a pin through a carrot. It had a hole.|The carrot had a hole.|1
1|John saw Bill. He left.|Bill left.|0
== WNLI/dev.tsv
index|sentence1|sentence2|label
0|The drain is clogged. It must be cleaned.|The drain must.|1
== WNLI/test.tsv
index|sentence1|sentence2
0|Maude and Dora.|Trains.
"""


def write_small_glue(folder, *, end="\n"):
    """Write all files and return the folder."""
    for block in FILES.split("== ")[1:]:
        name, *rows = block.removesuffix("\n").split("\n")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes("".join(row.replace("|", "\t") + end for row in rows).encode())
    return folder
