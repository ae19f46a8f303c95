"""Load, export and import models; Hugging Face and fairseq formats."""
