"""Triton kernels of attention with a bias that the whole batch shares; see triton_attention.py.

A tile is a rectangle of the score matrix of one head of one sequence. Every kernel recomputes the
tiles that it needs from q and k, so that no matrix of the size of the scores is ever stored.
Accumulators and everything between two products are fp32; operands of a product have the dtype of
q, k and v, and fp32 ones are multiplied in full fp32, never in TF32. GPUs compute exp2, and exp(x)
is exp2(x log2(e)): scores are formed times log2(e), and so is bias_2NSS when it comes, which holds
the bias and its transpose. Tensors are contiguous.

Only features common to Triton 3.2 to 3.7 are used (compiled with 3.6 and 3.7): no tensor
descriptors, no tuples of arguments.
Names in capitals are compile-time constants. WHOLE: the sequence ends where a tile ends. HIDE: some
keys of a tile may be hidden. NUM_DROPPED: see `drop`. Shape letters as in positions.py.
"""

import triton
import triton.language as tl

from pretrain.model.kernels.triton_tiles import (
    INTERPRETED,
    drop,
    head_of,
    load_bias,
    load_rows,
    load_seeds,
    load_values,
    parts_of,
    product,
    store_rows,
    survivor_scale,
    visible_keys,
)

LOG2_E = tl.constexpr(1.4426950408889634)


def interpreted() -> bool:
    """Return whether Triton runs the kernels in Python (TRITON_INTERPRET=1 at import)."""
    return bool(INTERPRETED.value)


def architecture() -> int:
    """Return ten times the compute capability of the current device; 80 where there is none."""
    if interpreted():
        return 80
    return int(triton.runtime.driver.active.get_current_target().arch)


# With fifteen arguments, one per line would hide the kernels.
# fmt: off
@triton.jit
def forward_kernel(
    qkv_BS3NH, bias_2NSS, lengths_B, seeds_BN2, o_BSNH, logsumexp_BNS,
    num_heads, length, scale,
    HEAD_WIDTH: tl.constexpr, NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr,
    WHOLE: tl.constexpr, HIDE: tl.constexpr, NUM_DROPPED: tl.constexpr,
):
    """Mix the values for NUM_QUERIES queries: softmax over the keys, tile by tile.

    The maximum and the sum of a row so far are corrected with each tile (online softmax; Dao et
    al. 2022, FlashAttention, Alg. 1). Grid: query tiles, heads, sequences.
    """
    queries = tl.program_id(0) * NUM_QUERIES + tl.arange(0, NUM_QUERIES)
    head = tl.program_id(1).to(tl.int64)
    sequence = tl.program_id(2).to(tl.int64)
    limit = visible_keys(lengths_B, sequence, length)
    scale_of_2 = scale * LOG2_E
    q_head, k_head, v_head = parts_of(qkv_BS3NH, sequence, head, length, num_heads, HEAD_WIDTH)
    if bias_2NSS is not None:
        bias_2NSS += head * length * length
    q = load_rows(q_head, queries, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
    # Finite, so that a tile of nothing but -inf gives weights of 0 and not NaN.
    highest = tl.full([NUM_QUERIES], -1e30, tl.float32)
    total = tl.zeros([NUM_QUERIES], tl.float32)
    mixed = tl.zeros([NUM_QUERIES, HEAD_WIDTH], tl.float32)
    head_of_batch = sequence * num_heads + head
    query_seed, key_seed = load_seeds(seeds_BN2, head_of_batch)
    for first in range(0, limit, NUM_KEYS):
        keys = first + tl.arange(0, NUM_KEYS)
        k = load_rows(k_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        scores = product(q, tl.trans(k)) * scale_of_2
        if bias_2NSS is not None:
            scores += load_bias(bias_2NSS, queries, keys, length, WHOLE)
        if HIDE:
            scores = tl.where((keys < limit)[None, :], scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_highest[:, None])
        correction = tl.exp2(highest - new_highest)
        highest = new_highest
        total = total * correction + tl.sum(weights, 1)
        weights = drop(
            weights, queries[:, None], keys[None, :], query_seed, key_seed, NUM_DROPPED
        )
        v = load_rows(v_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        mixed = mixed * correction[:, None] + product(weights.to(v.dtype), v)
    mixed = mixed * survivor_scale(NUM_DROPPED) / total[:, None]
    o_head = head_of(o_BSNH, sequence, head, length, num_heads, HEAD_WIDTH)
    store_rows(o_head, queries, num_heads, mixed, length, HEAD_WIDTH)
    rows = head_of_batch * length + queries
    tl.store(logsumexp_BNS + rows, highest + tl.log2(total), mask=queries < length)


@triton.jit
def query_gradient_kernel(
    qkv_BS3NH, bias_2NSS, lengths_B, seeds_BN2, o_BSNH, d_o_BSNH,
    logsumexp_BNS, row_products_BNS, d_qkv_BS3NH,
    num_heads, length, scale,
    HEAD_WIDTH: tl.constexpr, NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr,
    WHOLE: tl.constexpr, HIDE: tl.constexpr, NUM_DROPPED: tl.constexpr,
):
    """Write dQ of NUM_QUERIES queries, and the products o . dO that the other gradients need.

    The products come times r, the share that dropout keeps: r dS = P * (M * dO v^T - r D) takes no
    further multiplication for each score, and the gradients are divided by r at the end. Grid:
    query tiles, heads, sequences.
    """
    queries = tl.program_id(0) * NUM_QUERIES + tl.arange(0, NUM_QUERIES)
    head = tl.program_id(1).to(tl.int64)
    sequence = tl.program_id(2).to(tl.int64)
    limit = visible_keys(lengths_B, sequence, length)
    scale_of_2 = scale * LOG2_E
    q_head, k_head, v_head = parts_of(qkv_BS3NH, sequence, head, length, num_heads, HEAD_WIDTH)
    o_head = head_of(o_BSNH, sequence, head, length, num_heads, HEAD_WIDTH)
    d_o_head = head_of(d_o_BSNH, sequence, head, length, num_heads, HEAD_WIDTH)
    if bias_2NSS is not None:
        bias_2NSS += head * length * length
    q = load_rows(q_head, queries, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
    d_o = load_rows(d_o_head, queries, num_heads, length, HEAD_WIDTH, WHOLE)
    o = load_rows(o_head, queries, num_heads, length, HEAD_WIDTH, WHOLE)
    head_of_batch = sequence * num_heads + head
    rows = head_of_batch * length + queries
    row_products = tl.sum(o.to(tl.float32) * d_o.to(tl.float32), 1)
    row_products /= survivor_scale(NUM_DROPPED)
    tl.store(row_products_BNS + rows, row_products, mask=queries < length)
    logsumexp = load_values(logsumexp_BNS, rows, queries, length, WHOLE)
    d_q = tl.zeros([NUM_QUERIES, HEAD_WIDTH], tl.float32)
    query_seed, key_seed = load_seeds(seeds_BN2, head_of_batch)
    for first in range(0, limit, NUM_KEYS):
        keys = first + tl.arange(0, NUM_KEYS)
        k = load_rows(k_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        v = load_rows(v_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        scores = product(q, tl.trans(k)) * scale_of_2
        if bias_2NSS is not None:
            scores += load_bias(bias_2NSS, queries, keys, length, WHOLE)
        if HIDE:
            scores = tl.where((keys < limit)[None, :], scores, float("-inf"))
        weights = tl.exp2(scores - logsumexp[:, None])
        d_weights = product(d_o, tl.trans(v))
        d_weights = drop(
            d_weights, queries[:, None], keys[None, :], query_seed, key_seed, NUM_DROPPED
        )
        d_scores = weights * (d_weights - row_products[:, None])
        d_q += product(d_scores.to(k.dtype), k)
    d_q *= scale * survivor_scale(NUM_DROPPED)
    d_q_head, _, _ = parts_of(d_qkv_BS3NH, sequence, head, length, num_heads, HEAD_WIDTH)
    store_rows(d_q_head, queries, 3 * num_heads, d_q, length, HEAD_WIDTH)


@triton.jit
def key_value_gradient_kernel(
    qkv_BS3NH, bias_2NSS, lengths_B, seeds_BN2, d_o_BSNH,
    logsumexp_BNS, row_products_BNS, d_qkv_BS3NH,
    num_heads, length, scale,
    HEAD_WIDTH: tl.constexpr, NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr,
    WHOLE: tl.constexpr, HIDE: tl.constexpr, NUM_DROPPED: tl.constexpr,
):
    """Write dK and dV of NUM_KEYS keys. Grid: key tiles, heads, sequences.

    Tiles are computed transposed, keys down and queries across: the weights are then the left
    operand of the product that follows, and need not be turned in shared memory. The bias is read
    transposed too (keys before queries): turned here, a tile would be copied to shared memory in
    pieces of one number and not of 16 bytes.
    """
    first_key = tl.program_id(0) * NUM_KEYS
    keys = first_key + tl.arange(0, NUM_KEYS)
    head = tl.program_id(1).to(tl.int64)
    sequence = tl.program_id(2).to(tl.int64)
    limit = visible_keys(lengths_B, sequence, length)
    scale_of_2 = scale * LOG2_E
    q_head, k_head, v_head = parts_of(qkv_BS3NH, sequence, head, length, num_heads, HEAD_WIDTH)
    d_o_head = head_of(d_o_BSNH, sequence, head, length, num_heads, HEAD_WIDTH)
    if bias_2NSS is not None:
        bias_2NSS += (num_heads + head) * length * length
    k = load_rows(k_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
    v = load_rows(v_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
    d_k = tl.zeros([NUM_KEYS, HEAD_WIDTH], tl.float32)
    d_v = tl.zeros([NUM_KEYS, HEAD_WIDTH], tl.float32)
    head_of_batch = sequence * num_heads + head
    query_seed, key_seed = load_seeds(seeds_BN2, head_of_batch)
    # Keys that are all beyond the limit are hidden from every query: their gradients stay zero.
    end = tl.where(first_key < limit, length, 0)
    for first in range(0, end, NUM_QUERIES):
        queries = first + tl.arange(0, NUM_QUERIES)
        rows = head_of_batch * length + queries
        q = load_rows(q_head, queries, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        d_o = load_rows(d_o_head, queries, num_heads, length, HEAD_WIDTH, WHOLE)
        logsumexp = load_values(logsumexp_BNS, rows, queries, length, WHOLE)
        row_products = load_values(row_products_BNS, rows, queries, length, WHOLE)
        scores = product(k, tl.trans(q)) * scale_of_2
        if bias_2NSS is not None:
            scores += load_bias(bias_2NSS, keys, queries, length, WHOLE)
        if HIDE:
            scores = tl.where((keys < limit)[:, None], scores, float("-inf"))
        weights = tl.exp2(scores - logsumexp[None, :])
        kept_weights = drop(
            weights, queries[None, :], keys[:, None], query_seed, key_seed, NUM_DROPPED
        )
        d_v += product(kept_weights.to(d_o.dtype), d_o)
        d_weights = product(v, tl.trans(d_o))
        d_scores = kept_weights * d_weights - weights * row_products[None, :]
        d_k += product(d_scores.to(q.dtype), q)
    d_k *= scale * survivor_scale(NUM_DROPPED)
    d_v *= survivor_scale(NUM_DROPPED)
    _, d_k_head, d_v_head = parts_of(d_qkv_BS3NH, sequence, head, length, num_heads, HEAD_WIDTH)
    store_rows(d_k_head, keys, 3 * num_heads, d_k, length, HEAD_WIDTH)
    store_rows(d_v_head, keys, 3 * num_heads, d_v, length, HEAD_WIDTH)


@triton.jit
def bias_gradient_kernel(
    qkv_BS3NH, bias_2NSS, lengths_B, seeds_BN2, d_o_BSNH,
    logsumexp_BNS, row_products_BNS, partial_sums_NSS,
    num_sequences, sequences_per_split, num_heads, length, scale,
    HEAD_WIDTH: tl.constexpr, NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr,
    WHOLE: tl.constexpr, HIDE: tl.constexpr, NUM_DROPPED: tl.constexpr,
):
    """Sum the gradient of one tile of the bias over one split of the batch, in registers.

    Always in the order of the batch, by one program: no atomic addition, the same bits each time.
    partial_sums_NSS has one matrix NSS for each split. Grid: tiles, heads, splits.
    """
    num_key_tiles = tl.cdiv(length, NUM_KEYS)
    first_key = tl.program_id(0) % num_key_tiles * NUM_KEYS
    keys = first_key + tl.arange(0, NUM_KEYS)
    queries = tl.program_id(0) // num_key_tiles * NUM_QUERIES + tl.arange(0, NUM_QUERIES)
    head = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2).to(tl.int64)
    first_sequence = split * sequences_per_split
    bias_2NSS += head * length * length
    bias = load_bias(bias_2NSS, queries, keys, length, WHOLE)
    scale_of_2 = scale * LOG2_E
    d_bias = tl.zeros([NUM_QUERIES, NUM_KEYS], tl.float32)
    for step in range(0, tl.minimum(sequences_per_split, num_sequences - first_sequence)):
        sequence = first_sequence + step
        limit = visible_keys(lengths_B, sequence, length)
        q_head, k_head, v_head = parts_of(qkv_BS3NH, sequence, head, length, num_heads, HEAD_WIDTH)
        d_o_head = head_of(d_o_BSNH, sequence, head, length, num_heads, HEAD_WIDTH)
        head_of_batch = sequence * num_heads + head
        rows = head_of_batch * length + queries
        q = load_rows(q_head, queries, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        k = load_rows(k_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        v = load_rows(v_head, keys, 3 * num_heads, length, HEAD_WIDTH, WHOLE)
        d_o = load_rows(d_o_head, queries, num_heads, length, HEAD_WIDTH, WHOLE)
        logsumexp = load_values(logsumexp_BNS, rows, queries, length, WHOLE)
        row_products = load_values(row_products_BNS, rows, queries, length, WHOLE)
        scores = product(q, tl.trans(k)) * scale_of_2 + bias
        if HIDE:
            scores = tl.where((keys < limit)[None, :], scores, float("-inf"))
        weights = tl.exp2(scores - logsumexp[:, None])
        d_weights = product(d_o, tl.trans(v))
        query_seed, key_seed = load_seeds(seeds_BN2, head_of_batch)
        d_weights = drop(
            d_weights, queries[:, None], keys[None, :], query_seed, key_seed, NUM_DROPPED
        )
        d_bias += weights * (d_weights - row_products[:, None])
    rows_of_bias = (split * num_heads + head) * length + queries
    pointers = partial_sums_NSS + rows_of_bias[:, None] * length + keys[None, :]
    d_bias *= survivor_scale(NUM_DROPPED)
    tl.store(pointers, d_bias, mask=(queries < length)[:, None] & (keys < length)[None, :])
# fmt: on
