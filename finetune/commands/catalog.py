"""The commands of fine-tuning, in the order in which they are used."""

from data_prep.command_line import Command

COMMANDS = {
    name: Command(f"finetune.commands.{name}", summary)
    for name, summary in (
        ("run", "fine-tune encoders on tasks, over learning rates and seeds"),
        ("predict", "predict the labels of new texts with a fine-tuned model"),
        ("table", "make a table of results, with pictures"),
    )
}
