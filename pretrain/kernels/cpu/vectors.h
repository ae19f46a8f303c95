// What our kernels for CPUs share: vectors of fp32 from memory of fp32 or bf16, and loops in threads.
//
// Written with ATen's vectors, so that the same text serves AVX2 and AVX-512.

#pragma once

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

namespace tupelo {

using at::BFloat16;
using at::Tensor;
using Vector = at::vec::Vectorized<float>;

// As many numbers as one vector of bf16 holds.
struct Pair {
  Vector low, high;
};
constexpr int64_t WIDTH = 2 * Vector::size();
constexpr float LOWEST = -std::numeric_limits<float>::infinity();

inline Pair operator+(const Pair& x, const Pair& y) {
  return {x.low + y.low, x.high + y.high};
}

inline Pair operator*(const Pair& x, const Pair& y) {
  return {x.low * y.low, x.high * y.high};
}

inline Pair operator-(const Pair& x, const Vector& y) {
  return {x.low - y, x.high - y};
}

inline Pair operator*(const Pair& x, const Vector& y) {
  return {x.low * y, x.high * y};
}

inline Pair fmadd(const Pair& x, const Pair& y, const Pair& z) {
  return {at::vec::fmadd(x.low, y.low, z.low), at::vec::fmadd(x.high, y.high, z.high)};
}

inline Pair zeros() {
  return {Vector(0.0f), Vector(0.0f)};
}

inline Pair load(const float* source) {
  return {Vector::loadu(source), Vector::loadu(source + Vector::size())};
}

inline Pair load(const BFloat16* source) {
  auto [low, high] = at::vec::convert_to_float<BFloat16>(
      at::vec::Vectorized<BFloat16>::loadu(source));
  return {low, high};
}

inline void store(float* target, const Pair& values) {
  values.low.store(target);
  values.high.store(target + Vector::size());
}

inline void store(BFloat16* target, const Pair& values) {
#ifdef __AVX512BF16__
  _mm512_storeu_si512(target, __m512i(_mm512_cvtne2ps_pbh(values.high, values.low)));
#else
  at::vec::convert_from_float<BFloat16>(values.low, values.high).store(target);
#endif
}

// Loads `left` numbers if a pair has room for more, and fills it up.
template <typename Number>
inline Pair load(const Number* source, int64_t left, float filling = 0.0f) {
  if (left >= WIDTH) {
    return load(source);
  }
  Number copy[WIDTH];
  std::fill(std::copy(source, source + left, copy), copy + WIDTH, Number(filling));
  return load(copy);
}

template <typename Number>
inline void store(Number* target, const Pair& values, int64_t left) {
  if (left >= WIDTH) {
    store(target, values);
    return;
  }
  Number copy[WIDTH];
  store(copy, values);
  std::copy(copy, copy + left, target);
}

// Exact to 20 units in the last place of fp32, to 1e-4 if the result is rounded to bf16, where torch
// has such a function.
template <typename Number, typename V>
inline V exponential(const V& x) {
  if constexpr (std::is_same_v<Number, BFloat16> && requires { x.fexp_u20(); }) {
    return x.fexp_u20();
  } else {
    return x.exp_u20();
  }
}

inline float sum_of(const Pair& values) {
  return at::vec::vec_reduce_all<float>(
      [](Vector& x, Vector& y) { return x + y; }, values.low + values.high);
}

inline float largest_of(const Pair& values) {
  return at::vec::vec_reduce_all<float>(
      [](Vector& x, Vector& y) { return at::vec::maximum(x, y); },
      at::vec::maximum(values.low, values.high));
}

// row = scale scores + bias, filled up with -inf; returns the largest.
template <typename Number>
inline float add_bias(
    const Number* scores, float scale, const float* bias, float* row, int64_t size) {
  Pair largest{Vector(LOWEST), Vector(LOWEST)};
  for (int64_t i = 0; i < size; i += WIDTH) {
    Pair values = load(scores + i, size - i, LOWEST) * Vector(scale);
    if (bias != nullptr) {
      values = values + load(bias + i, size - i);
    }
    store(row + i, values);
    largest = {
        at::vec::maximum(largest.low, values.low), at::vec::maximum(largest.high, values.high)};
  }
  return largest_of(largest);
}

// row = exp(row - largest); returns the sum, or NaN where the largest is not finite: the
// exponential of NaN may be a number.
template <typename Number>
inline float exponentiate(float* row, float largest, int64_t size) {
  const Vector shifts(largest);
  Pair sum = zeros();
  for (int64_t i = 0; i < size; i += WIDTH) {
    const Pair values = load(row + i);
    const Pair found{
        exponential<Number>(values.low - shifts), exponential<Number>(values.high - shifts)};
    store(row + i, found);
    sum = sum + found;
  }
  return std::isfinite(largest) ? sum_of(sum) : std::numeric_limits<float>::quiet_NaN();
}

inline int64_t whole_pairs(int64_t size) {
  return (size + WIDTH - 1) / WIDTH * WIDTH;
}

// Calls act(part) for all parts, in all threads.
template <typename Act>
void for_each_part(int64_t parts, const Act& act) {
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; part++) {
      act(part);
    }
  });
}

// Calls act(part, first, last) for the rows first <= i < last of each part, in all threads. Sums over
// rows are kept one for each part and added up in their order: the same bits in every run. There are
// as many parts as threads, but not theirs: another OpenMP user may change their number meanwhile.
template <typename Act>
void for_rows_of_parts(int64_t rows, int64_t parts, const Act& act) {
  const int64_t size = at::divup(rows, parts);
  for_each_part(parts, [&](int64_t part) {
    act(part, std::min(rows, part * size), std::min(rows, (part + 1) * size));
  });
}

inline void check(const Tensor& tensor, int64_t dimensions) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.dim() == dimensions && tensor.is_cpu());
}

// Rows are all dimensions but the last.
inline int64_t rows_of(const Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu() && tensor.dim() > 0);
  return tensor.numel() / std::max<int64_t>(tensor.size(-1), 1);
}

inline void check_like(const Tensor& tensor, const Tensor& other) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu() && tensor.sizes() == other.sizes());
}

inline void check_like(const std::optional<Tensor>& tensor, const Tensor& other) {
  if (tensor.has_value()) {
    check_like(*tensor, other);
  }
}

inline void check_vector(const std::optional<Tensor>& tensor, int64_t size) {
  if (tensor.has_value()) {
    check(*tensor, 1);
    TORCH_CHECK(tensor->size(0) == size);
  }
}

// Of scores with sizes BNSK: a bias NSK, and lengths B from 1 to K.
inline void check_bias_and_lengths(
    const std::optional<Tensor>& bias, const std::optional<Tensor>& lengths, at::IntArrayRef scores) {
  if (bias.has_value()) {
    check(*bias, 3);
    TORCH_CHECK(bias->sizes() == scores.slice(1));
  }
  if (!lengths.has_value()) {
    return;
  }
  check(*lengths, 1);
  TORCH_CHECK(lengths->size(0) == scores[0]);
  const int32_t* all = lengths->const_data_ptr<int32_t>();
  for (int64_t b = 0; b < scores[0]; b++) {
    TORCH_CHECK_INDEX(
        all[b] >= 1 && all[b] <= scores[3], "a length of ", all[b], " for ", scores[3], " keys");
  }
}

// Sums over the rows of each part, zero so far.
inline Tensor sums_of_parts(int64_t parts, int64_t columns) {
  return at::zeros({parts, columns}, at::TensorOptions().dtype(at::kFloat));
}

// Calls act(a number of this type).
template <typename Act>
void for_type(at::ScalarType type, const Act& act) {
  AT_DISPATCH_SWITCH(
      type,
      "tupelo",
      AT_DISPATCH_CASE(at::kFloat, [&] { act(scalar_t()); })
      AT_DISPATCH_CASE(at::kBFloat16, [&] { act(scalar_t()); }));
}

}  // namespace tupelo
