"""What happens to text before tokens: cleaning, deduplication, sentences, encoding."""
