// Vectors of fp32 read from memory of fp32 or bf16, and loops over threads, for the CPU kernels.
//
// Written with ATen's vectors, so that one source serves AVX2 and AVX-512.

#pragma once

#include <ATen/cpu/vec/functional.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace tupelo {

using c10::BFloat16;
using Vector = at::vec::Vectorized<float>;

// As many numbers as one vector of bf16 holds.
struct Pair {
  Vector low, high;
};
constexpr int64_t WIDTH = 2 * Vector::size();

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

// Loads at most `left` numbers and fills the rest of the pair.
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

// Exact to 20 units in the last place of fp32; to 1e-4 if the result is rounded to bf16, where
// torch has such a function.
template <typename Number, typename V>
inline V exponential(const V& x) {
  if constexpr (std::is_same_v<Number, BFloat16> && requires { x.fexp_u20(); }) {
    return x.fexp_u20();
  } else {
    return x.exp_u20();
  }
}

// Calls act(part) for all parts, in all threads.
template <typename Act>
void for_each_part(int64_t parts, const Act& act) {
#pragma omp parallel for if (parts > 1)
  for (int64_t part = 0; part < parts; part++) {
    act(part);
  }
}

// Calls act(a number of this type).
template <typename Act>
void for_type(bool is_bf16, const Act& act) {
  if (is_bf16) {
    act(BFloat16());
  } else {
    act(float());
  }
}

}  // namespace tupelo
