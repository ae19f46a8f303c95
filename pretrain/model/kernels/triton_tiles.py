"""What the Triton kernels do with a tile: load, store, multiply and drop; see triton_kernels.py.

A tile is a rectangle of the score matrix of one head of one sequence. Shape letters as in
positions.py.
"""

import triton
import triton.language as tl
from triton.runtime import interpreter

# Of the numbers behind dropout: the first two are 2^32 divided by the golden ratio and 2^32 / 1.92,
# made odd; the others were chosen by the statistics of what follows.
QUERY_STEP = tl.constexpr(0x9E3779B1)
KEY_STEP = tl.constexpr(0x85EBCA77)
FIRST_FACTOR = tl.constexpr(0x7FEB352D)
SECOND_FACTOR = tl.constexpr(0x846CA68B)


@triton.jit
def product(left, right):
    """Multiply two tiles with an fp32 sum; fp32 operands are not rounded to TF32."""
    if INTERPRETED:
        # Triton's interpreter would multiply the bit patterns of bf16. The products of a tensor
        # core are exact in fp32, so this computes what the hardware does.
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, input_precision="ieee")


INTERPRETED = tl.constexpr(not isinstance(product, triton.JITFunction))
if INTERPRETED.value:

    def _with_index(tensor, *scope, patch=interpreter._patch_lang_tensor):
        patch(tensor, *scope)  # whose __index__ is int() of an array, which numpy 2.4 refuses
        tensor.__index__ = lambda self: self.handle.data.item()

    interpreter._patch_lang_tensor = _with_index


@triton.jit
def visible_keys(lengths_B, sequence, length):
    """Return the number of keys that are no padding."""
    limit = length
    if lengths_B is not None:
        limit = tl.load(lengths_B + sequence)
    return limit


@triton.jit
def head_of(x_BSNH, sequence, head, length, num_heads, WIDTH: tl.constexpr):
    """Return where a head of a sequence begins; `sequence` and `head` have 64 bits."""
    return x_BSNH + sequence * (length * num_heads * WIDTH) + head * WIDTH


@triton.jit
def parts_of(qkv_BS3NH, sequence, head, length, num_heads, WIDTH: tl.constexpr):
    """Return where query, key and value of a head of a sequence begin, or their gradients."""
    q_head = head_of(qkv_BS3NH, sequence, head, length, 3 * num_heads, WIDTH)
    part = num_heads * WIDTH
    return q_head, q_head + part, q_head + 2 * part


@triton.jit
def load_rows(start, rows, num_heads, length, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """Load rows of q, k, v, o or dO; rows beyond the sequence are zeros.

    `start`, where a head of a sequence begins, is an address of 64 bits. Offsets from there have
    32: in 64 they took so many registers that some kernels spilled. `num_heads` lie between a row
    and the next: three times as many for q, k and v.
    """
    pointers = start + rows[:, None] * (num_heads * WIDTH) + tl.arange(0, WIDTH)[None, :]
    if WHOLE:
        tile = tl.load(pointers)
    else:
        tile = tl.load(pointers, mask=(rows < length)[:, None], other=0.0)
    return tile


@triton.jit
def load_bias(start, queries, keys, length, WHOLE: tl.constexpr):
    """Load a tile of the bias as fp32; beyond the sequence it is zero."""
    pointers = start + queries[:, None] * length + keys[None, :]
    if WHOLE:
        tile = tl.load(pointers)
    else:
        inside = (queries < length)[:, None] & (keys < length)[None, :]
        tile = tl.load(pointers, mask=inside, other=0.0)
    return tile.to(tl.float32)


@triton.jit
def load_values(start, places, queries, length, WHOLE: tl.constexpr):
    """Load one fp32 number for each query; zeros beyond the sequence."""
    if WHOLE:
        values = tl.load(start + places)
    else:
        values = tl.load(start + places, mask=queries < length, other=0.0)
    return values


@triton.jit
def store_rows(start, rows, num_heads, tile, length, WIDTH: tl.constexpr):
    """Store the rows of a tile that are within the sequence; `num_heads` as of `load_rows`.

    Offsets have 64 bits here: those of 32 would be kept in registers, from the load of q on.
    """
    pointers = start + rows[:, None].to(tl.int64) * (num_heads * WIDTH)
    pointers += tl.arange(0, WIDTH)[None, :]
    tl.store(pointers, tile.to(start.dtype.element_ty), mask=(rows < length)[:, None])


@triton.jit
def load_seeds(seeds_BN2, head_of_batch):
    """Return the seeds of the queries and of the keys of a head (of a sequence) for dropout."""
    query_seed = 0
    key_seed = 0
    if seeds_BN2 is not None:
        query_seed = tl.load(seeds_BN2 + 2 * head_of_batch)
        key_seed = tl.load(seeds_BN2 + 2 * head_of_batch + 1)
    return query_seed, key_seed


@triton.jit
def drop(tile, queries, keys, query_seed, key_seed, NUM_DROPPED: tl.constexpr):
    """Return a tile with zeros where dropout drops a weight: where x < NUM_DROPPED.

    The random number x of a weight is, in unsigned arithmetic modulo 2^32,

        x = (query QUERY_STEP + query_seed) xor (key KEY_STEP + key_seed)
        x = x FIRST_FACTOR;  x = x xor (x >> 15);  x = x SECOND_FACTOR

    a function of the place and the seeds alone: every kernel finds the same weights dropped, in
    tiles of any size. `queries` and `keys` are a column and a row, or in a transposed tile a row
    and a column. The comparison sees the high bits of x, into which the last product carries the
    others. The survivors are not scaled by `survivor_scale`: that is done where it costs less.
    """
    if NUM_DROPPED:
        from_queries = queries.to(tl.uint32) * QUERY_STEP + query_seed.to(tl.uint32)
        x = from_queries ^ (keys.to(tl.uint32) * KEY_STEP + key_seed.to(tl.uint32))
        x = x * FIRST_FACTOR
        x = x ^ (x >> 15)
        x = x * SECOND_FACTOR
        tile = tl.where(x >= NUM_DROPPED, tile, 0.0)
    return tile


@triton.jit
def survivor_scale(NUM_DROPPED: tl.constexpr):
    """Return what keeps the mean of weights of which NUM_DROPPED of 2^32 are dropped."""
    return 4294967296.0 / (4294967296.0 - NUM_DROPPED)
