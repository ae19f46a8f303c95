"""What the analyses measure: models and rows in, numbers out."""
