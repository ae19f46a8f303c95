// The bias of a product with the GELU or the division into heads that follows it, and the gradients
// of both, for CPUs: one pass over memory forward, one back.
//
// cpu_kernels.py tells what the operators are given.
//
// R rows, all positions of a batch; F feed-forward width; B batch, S sequence, N heads, H width of a
// head.

#include "vectors.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <array>

namespace {

using namespace tupelo;

// Positions of a sequence whose heads are gathered at a time: more streams would not fit into the
// ways of a cache.
constexpr int64_t POSITIONS_AT_A_TIME = 16;

// GELU and its derivative, x Phi(x) and Phi(x) + x phi(x), for the price of one exponential:
// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, of error 1.5e-7.
template <typename Number>
inline void gelu(const Vector& x, Vector& value, Vector& slope) {
  const Vector half(0.5f), z = x.abs() * Vector(0.70710678f);
  const Vector t = Vector(1.0f) / at::vec::fmadd(z, Vector(0.3275911f), Vector(1.0f));
  Vector series = at::vec::fmadd(Vector(1.061405429f), t, Vector(-1.453152027f));
  series = at::vec::fmadd(series, t, Vector(1.421413741f));
  series = at::vec::fmadd(series, t, Vector(-0.284496736f));
  series = at::vec::fmadd(series, t, Vector(0.254829592f));
  const Vector density = exponential<Number>((z * z).neg());  // phi(x) sqrt(2 pi)
  const Vector tail = series * t * density * half;  // Phi(-|x|)
  const Vector distribution = half + ((half - tail) | (x & Vector(-0.0f)));
  value = x * distribution;
  slope = at::vec::fmadd(x * Vector(0.39894228f), density, distribution);
}

// products = gelu'(products + bias); outputs = gelu(products + bias)
template <typename Number>
void gelu_rows(Number* products, const float* bias, Number* outputs, int64_t R, int64_t F) {
  for_rows_of_parts(R, at::get_num_threads(), [&](int64_t, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; r++) {
      Number *own = products + r * F, *output = outputs + r * F;
      for (int64_t j = 0; j < F; j += WIDTH) {
        const Pair x = load(own + j, F - j) + load(bias + j, F - j);
        Pair value, slope;
        gelu<Number>(x.low, value.low, slope.low);
        gelu<Number>(x.high, value.high, slope.high);
        store(output + j, value, F - j);
        store(own + j, slope, F - j);
      }
    }
  });
}

// outputs = gradients slopes; sums[part] = their sum over the rows
template <typename Number>
void gelu_backward_rows(
    const Number* gradients,
    const Number* slopes,
    Number* outputs,
    float* sums,
    int64_t parts,
    int64_t R,
    int64_t F) {
  for_rows_of_parts(R, parts, [&](int64_t part, int64_t first, int64_t last) {
    float* sum = sums + part * F;
    for (int64_t r = first; r < last; r++) {
      for (int64_t j = 0; j < F; j += WIDTH) {
        const int64_t i = r * F + j, left = F - j;
        const Pair product = load(gradients + i, left) * load(slopes + i, left);
        store(outputs + i, product, left);
        store(sum + j, load(sum + j, left) + product, left);
      }
    }
  });
}

// heads[kind, b, n, s] = projected[b, s, kind, n] + bias[kind, n]
template <typename Number>
void split_heads(
    const Number* projected,
    const float* bias,
    Number* heads,
    int64_t B,
    int64_t S,
    int64_t N,
    int64_t H) {
  for_rows_of_parts(B * S, at::get_num_threads(), [&](int64_t, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; r++) {
      for (int64_t c = 0; c < 3 * N; c++) {
        const Number* source = projected + (r * 3 * N + c) * H;
        Number* target = heads + (((c / N * B + r / S) * N + c % N) * S + r % S) * H;
        for (int64_t j = 0; j < H; j += WIDTH) {
          store(target + j, load(source + j, H - j) + load(bias + c * H + j, H - j), H - j);
        }
      }
    }
  });
}

// merged[b, s, kind, n] = gradients[kind][b, n, s]; sums[part] = their sum over b and s
template <typename Number>
void merge_heads(
    const std::array<const Number*, 3>& gradients,
    Number* merged,
    float* sums,
    int64_t parts,
    int64_t B,
    int64_t S,
    int64_t N,
    int64_t H) {
  const int64_t stretches = at::divup(S, POSITIONS_AT_A_TIME);
  for_rows_of_parts(B * stretches, parts, [&](int64_t part, int64_t first, int64_t last) {
    for (int64_t stretch = first; stretch < last; stretch++) {
      const int64_t b = stretch / stretches, begin = stretch % stretches * POSITIONS_AT_A_TIME;
      const int64_t end = std::min(begin + POSITIONS_AT_A_TIME, S);
      for (int64_t c = 0; c < 3 * N; c++) {
        const Number* source = gradients[c / N] + (b * N + c % N) * S * H;
        Number* target = merged + (b * S * 3 * N + c) * H;
        float* own = sums + (part * 3 * N + c) * H;
        for (int64_t j = 0; j < H; j += WIDTH) {
          Pair sum = load(own + j, H - j);
          for (int64_t s = begin; s < end; s++) {
            const Pair values = load(source + s * H + j, H - j);
            store(target + s * 3 * N * H + j, values, H - j);
            sum = sum + values;
          }
          store(own + j, sum, H - j);
        }
      }
    }
  });
}

Tensor gelu_operator(Tensor& products, const Tensor& bias) {
  const int64_t R = rows_of(products), F = products.size(-1);
  check_vector(bias, F);
  Tensor outputs = at::empty_like(products);
  for_type(products.scalar_type(), [&](auto number) {
    using Number = decltype(number);
    gelu_rows(
        products.mutable_data_ptr<Number>(),
        bias.const_data_ptr<float>(),
        outputs.mutable_data_ptr<Number>(),
        R,
        F);
  });
  return outputs;
}

std::tuple<Tensor, Tensor> gelu_backward_operator(const Tensor& gradients, const Tensor& slopes) {
  check_like(gradients, slopes);
  const int64_t R = rows_of(slopes), F = slopes.size(-1), parts = at::get_num_threads();
  Tensor outputs = at::empty_like(slopes), sums = sums_of_parts(parts, F);
  for_type(slopes.scalar_type(), [&](auto number) {
    using Number = decltype(number);
    gelu_backward_rows(
        gradients.const_data_ptr<Number>(),
        slopes.const_data_ptr<Number>(),
        outputs.mutable_data_ptr<Number>(),
        sums.mutable_data_ptr<float>(),
        parts,
        R,
        F);
  });
  return {outputs, sums.sum(0)};
}

Tensor split_heads_operator(const Tensor& projected, const Tensor& bias, int64_t heads) {
  check(projected, 3);
  const int64_t B = projected.size(0), S = projected.size(1), all = projected.size(2);
  TORCH_CHECK(heads > 0 && all % (3 * heads) == 0);
  check_vector(bias, all);
  Tensor split = at::empty({3, B, heads, S, all / 3 / heads}, projected.options());
  for_type(projected.scalar_type(), [&](auto number) {
    using Number = decltype(number);
    split_heads(
        projected.const_data_ptr<Number>(),
        bias.const_data_ptr<float>(),
        split.mutable_data_ptr<Number>(),
        B,
        S,
        heads,
        all / 3 / heads);
  });
  return split;
}

std::tuple<Tensor, Tensor> merge_heads_operator(
    const Tensor& queries, const Tensor& keys, const Tensor& values) {
  check(queries, 4);
  check_like(keys, queries);
  check_like(values, queries);
  const int64_t B = queries.size(0), N = queries.size(1), S = queries.size(2), H = queries.size(3);
  const int64_t parts = at::get_num_threads();
  Tensor merged = at::empty({B, S, 3 * N * H}, queries.options());
  Tensor sums = sums_of_parts(parts, 3 * N * H);
  for_type(queries.scalar_type(), [&](auto number) {
    using Number = decltype(number);
    merge_heads<Number>(
        {queries.const_data_ptr<Number>(),
         keys.const_data_ptr<Number>(),
         values.const_data_ptr<Number>()},
        merged.mutable_data_ptr<Number>(),
        sums.mutable_data_ptr<float>(),
        parts,
        B,
        S,
        N,
        H);
  });
  return {merged, sums.sum(0)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tupelo, library) {
  library.def("gelu_(Tensor(a!) products, Tensor bias) -> Tensor", &gelu_operator);
  library.def(
      "gelu_backward(Tensor gradients, Tensor slopes) -> (Tensor, Tensor)",
      &gelu_backward_operator);
  library.def(
      "split_heads(Tensor projected, Tensor bias, int heads) -> Tensor", &split_heads_operator);
  library.def(
      "merge_heads(Tensor queries, Tensor keys, Tensor values) -> (Tensor, Tensor)",
      &merge_heads_operator);
}
