"""Tables, figures and pages from the results of fine-tuning."""
