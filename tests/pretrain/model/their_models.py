"""BERT and ELECTRA of transformers with the weights of our models."""

import torch


def their_config(kind, model, **more):
    """Return the configuration of a kind of BERT with the shape of our model."""
    return kind(
        vocab_size=model.vocabulary_size,
        hidden_size=model.width,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_heads,
        intermediate_size=model.feedforward_width,
        max_position_embeddings=model.max_sequence_length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=model.layer_norm_epsilon,
        attn_implementation="eager",
        **more,
    )


BLOCK = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feedforward.inner": "intermediate.dense",
    "feedforward.output": "output.dense",
    "feedforward_norm": "output.LayerNorm",
}


@torch.no_grad()
def copy_layer(ours, theirs):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


@torch.no_grad()
def copy_network(encoder, stack, theirs):
    """Copy the embeddings of an encoder, and the blocks of a network that stands on them."""
    theirs.embeddings.word_embeddings.weight.copy_(encoder.token_embeddings.weight)
    theirs.embeddings.position_embeddings.weight.copy_(encoder.positions.position_embeddings.weight)
    theirs.embeddings.token_type_embeddings.weight.zero_()
    copy_layer(encoder.embedding_norm, theirs.embeddings.LayerNorm)
    for ours, layer in zip(stack.blocks, theirs.encoder.layer, strict=True):
        for our_name, their_name in BLOCK.items():
            copy_layer(ours.get_submodule(our_name), layer.get_submodule(their_name))
        fused = ours.attention.query_key_value
        for number, name in enumerate(("query", "key", "value")):
            projection = layer.attention.self.get_submodule(name)
            projection.weight.copy_(fused.weight.chunk(3)[number])
            projection.bias.copy_(fused.bias.chunk(3)[number])
