"""Fine-tune pre-trained encoders on downstream tasks."""
