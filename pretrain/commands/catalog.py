"""The commands of pre-training, in the order in which they are used."""

from data_prep.command_line import Command

COMMANDS = {
    name: Command(f"pretrain.commands.{module}", summary)
    for name, module, summary in (
        ("recipes", "recipes", "list the recipes"),
        ("prepare", "prepare", "build the shards that a recipe needs"),
        ("train", "train", "pre-train an encoder, or resume a run"),
        ("sweep", "sweep", "train several recipes and seeds, and compare them"),
        ("compare", "compare", "report which run reached a held-out loss sooner"),
        ("analyse", "analyse", "draw what trained models do inside"),
        ("profile", "profile", "show where the time of a step goes"),
        ("fill-mask", "fill_mask", "print the most probable tokens for each [MASK] of a text"),
        ("export", "export", "write a trained encoder for Hugging Face's transformers"),
        ("import", "import_model", "make a recipe that trains an existing BERT further"),
    )
}
