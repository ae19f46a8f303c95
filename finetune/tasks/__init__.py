"""Tasks and where their examples come from: GLUE, the Hub, files of the user."""
