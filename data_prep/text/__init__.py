"""From paragraphs to token ids: cleaning, deduplication, sentences, encoding, sampling."""
