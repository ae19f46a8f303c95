"""The commands on text and shards, in the order in which they are used."""

from data_prep.command_line import Command

COMMANDS = {
    name: Command(f"data_prep.commands.{module}", summary)
    for name, module, summary in (
        ("build", "build", "tokenize a text corpus into a new shard folder"),
        ("verify", "verify", "check a shard folder: structure, counts, sha256"),
        ("repair", "repair", "restore damaged files of a shard folder from its corpus"),
        ("show", "show", "print sequences as text, before and after masking"),
        ("import", "import_shards", "convert HDF5 shards of NVIDIA's BERT, bing_bert or 24hBERT"),
    )
}
