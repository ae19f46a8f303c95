"""What --help of `tupelo data` says about its commands; printed lines fit 80 columns."""

from data_prep.settings import PYTHON_DOCS

OVERVIEW = """\
Tokenize a text corpus into shards for masked-language-model pre-training, and
inspect and check such shards.

A shard folder holds sequences of token ids (HDF5), split into training and
validation documents, with the tokenizer and a manifest."""

EXAMPLES = """\
examples:
  tupelo data build --to data/mine --corpus my_texts/
  tupelo data verify data/mine
  tupelo data show data/mine --rows 2 | less
  tupelo data import theirs/ --tokenizer vocab.txt --to data/theirs

`tupelo data COMMAND --help` explains a command and lists its options."""

BUILD_EXAMPLES = f"""\
A source of --corpus is [KIND:]PLACE[:key=value]...

  KIND   text, jsonl, csv, parquet, wikiextractor (its output), hub (a data set
         of the Hugging Face Hub) or {PYTHON_DOCS} (the installed Python
         documentation, no PLACE); detected from the name of PLACE if left out
  key    weight=2.5      uses of a training document in an epoch
         column=text     the column of the text, in jsonl, csv, parquet, hub
         documents=line  what ends a document, in text: blank_line, line, file
         config=NAME, split=NAME, revision=NAME   of a data set on the hub

examples:
  tupelo data build --to data/docs
  tupelo data build --to data/mine --corpus my_texts/ wiki.jsonl.gz:weight=2
  tupelo data build --to data/tupe --preset tupe --corpus articles/
  tupelo data build --to data/bert --corpus books/ --tokenizer bert-base-uncased

The same command resumes a stopped build."""

# For each command its line in the overview and the paragraph of its own help.
COMMAND_TEXTS = {
    "build": (
        "tokenize a text corpus into a new shard folder",
        """\
Reads the corpus, cleans and deduplicates it, holds out validation documents,
trains a tokenizer (or loads one), and packs the token ids of the documents
into sequences of fixed length without padding. Masks are drawn during training.""",
    ),
    "verify": (
        "check a shard folder: structure, counts, sha256",
        """\
Reads every byte and compares it with the manifest. Exit status 1 if anything
is damaged, missing or contradictory.""",
    ),
    "repair": (
        "restore damaged files of a shard folder from its corpus",
        """\
Builds the folder again from the corpus that its manifest names, and replaces
what is damaged or missing. Changes nothing if the text has changed since.""",
    ),
    "show": (
        "print sequences as text, before and after masking",
        """\
Decodes some sequences and prints them as stored and as the model sees them,
with the tokens that it must predict.""",
    ),
    "split": (
        "choose another validation set, in a new shard folder",
        """\
Joins training and validation documents and holds out another share of them.
Needs no text: the documents are taken from the shards.""",
    ),
    "import": (
        "convert the HDF5 shards of NVIDIA's BERT, bing_bert or 24hBERT",
        """\
Restores the words that static masking hid, drops copies that differ in their
masks only, and packs sequences for dynamic masking.""",
    ),
}
