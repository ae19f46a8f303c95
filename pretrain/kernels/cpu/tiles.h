// Products of bf16 with sums in fp32, for CPUs that multiply bf16: those of tiles, which are oneDNN's, as
// ATen offers them to kernels, and what brings their factors into order.

#pragma once

#include "vectors.h"

#include <ATen/native/CPUBlas.h>

#if defined(CPUBLAS_BRGEMM_BF16BF16F32) && defined(__AVX512BF16__)
#define TUPELO_TILES

namespace tupelo {

// Two numbers of one column, one above the other: a product reads its right factor in such pairs.
using RowPair = uint32_t;

constexpr int64_t TILE = 16;  // vectors of 32 bits

inline int64_t even(int64_t size) {
  return size + size % 2;
}

// The columns of a row, two at a time.
inline const RowPair* in_pairs(const BFloat16* row) {
  return reinterpret_cast<const RowPair*>(row);
}

// target = left right, or added to it; `inner` is even.
inline void multiply(
    int64_t rows,
    int64_t columns,
    int64_t inner,
    const BFloat16* left,
    int64_t left_stride,
    const RowPair* right,
    float* target,
    int64_t target_stride,
    bool is_added = false) {
  at::native::cpublas::brgemm(
      rows,
      columns,
      inner,
      left_stride,
      columns,
      target_stride,
      is_added,
      left,
      reinterpret_cast<const BFloat16*>(right),
      target);
}

// Frees what the products of a thread hold.
struct Release {
  ~Release() {
    at::native::cpublas::brgemm_release();
  }
};

// Calls act(begin, end), which multiplies, in all threads for parts of 0 <= i < size.
template <typename Act>
void for_parts_with_products(int64_t size, const Act& act) {
  at::parallel_for(0, size, 1, [&](int64_t begin, int64_t end) {
    const Release at_the_end;
    act(begin, end);
  });
}

// target[r / 2][c] = rows r and r + 1 of column c; below an odd number of rows is one of zeros.
inline void pair_rows(
    const BFloat16* source, int64_t stride, int64_t rows, int64_t columns, RowPair* target) {
  const int64_t whole = rows - rows % 2;
  for (int64_t r = 0; r < whole; r += 2, target += columns) {
    const BFloat16 *upper = source + r * stride, *lower = upper + stride;
    for (int64_t c = 0; c < columns; c++) {
      target[c] = RowPair(upper[c].x) | RowPair(lower[c].x) << 16;
    }
  }
  if (whole < rows) {
    for (int64_t c = 0; c < columns; c++) {
      target[c] = source[whole * stride + c].x;
    }
  }
}

// target[c][r] = source[r][c] of a whole tile: first neighbours change their places, then pairs,
// fours and eights.
inline void transpose_tile(
    const RowPair* source, int64_t stride, RowPair* target, int64_t target_stride) {
  __m512i rows[TILE], next[TILE];
  for (int64_t r = 0; r < TILE; r++) {
    rows[r] = _mm512_loadu_si512(source + r * stride);
  }
  for (int64_t r = 0; r < TILE; r += 2) {
    next[r] = _mm512_unpacklo_epi32(rows[r], rows[r + 1]);
    next[r + 1] = _mm512_unpackhi_epi32(rows[r], rows[r + 1]);
  }
  for (int64_t r = 0; r < TILE; r += 4) {
    rows[r] = _mm512_unpacklo_epi64(next[r], next[r + 2]);
    rows[r + 1] = _mm512_unpackhi_epi64(next[r], next[r + 2]);
    rows[r + 2] = _mm512_unpacklo_epi64(next[r + 1], next[r + 3]);
    rows[r + 3] = _mm512_unpackhi_epi64(next[r + 1], next[r + 3]);
  }
  for (int64_t half = 0; half < TILE; half += 8) {
    for (int64_t r = half; r < half + 4; r++) {
      next[r] = _mm512_shuffle_i32x4(rows[r], rows[r + 4], 0x88);
      next[r + 4] = _mm512_shuffle_i32x4(rows[r], rows[r + 4], 0xdd);
    }
  }
  for (int64_t r = 0; r < TILE / 2; r++) {
    _mm512_storeu_si512(
        target + r * target_stride, _mm512_shuffle_i32x4(next[r], next[r + 8], 0x88));
    _mm512_storeu_si512(
        target + (r + 8) * target_stride, _mm512_shuffle_i32x4(next[r], next[r + 8], 0xdd));
  }
}

// target[c][r] = source[r][c]
inline void transpose(
    const RowPair* source,
    int64_t stride,
    int64_t rows,
    int64_t columns,
    RowPair* target,
    int64_t target_stride) {
  const int64_t whole_rows = rows / TILE * TILE, whole_columns = columns / TILE * TILE;
  for (int64_t r = 0; r < whole_rows; r += TILE) {
    for (int64_t c = 0; c < whole_columns; c += TILE) {
      transpose_tile(
          source + r * stride + c, stride, target + c * target_stride + r, target_stride);
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) {
      target[c * target_stride + r] = source[r * stride + c];
    }
  }
}

}  // namespace tupelo

#endif
