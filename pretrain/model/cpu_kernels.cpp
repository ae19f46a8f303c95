// Softmax with a bias that the batch shares, its gradient, and cross-entropy, for CPUs.
//
// Each turns its first tensor into the result in place, in fp32 within a row, and reads every
// number of it from memory once or twice. Written with ATen's vectors, so that the same text
// serves AVX2 and AVX-512; cpu_kernels.py compiles it and tells what the operators are given.
//
// B batch, N heads, S queries, K keys; M predicted positions, V vocabulary.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

namespace {

using at::BFloat16;
using at::Tensor;
using Vector = at::vec::Vectorized<float>;

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// Scores of all sequences that one thread works on at a time: they, and the part of the bias that
// belongs to them, stay in the second cache of a core.
constexpr int64_t SCORES_AT_A_TIME = 1 << 18;

// As many numbers as one vector of bf16 holds.
struct Pair {
  Vector low, high;
};
constexpr int64_t WIDTH = 2 * Vector::size();

inline Pair operator+(const Pair& x, const Pair& y) {
  return {x.low + y.low, x.high + y.high};
}

inline Pair operator*(const Pair& x, const Vector& y) {
  return {x.low * y, x.high * y};
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
  at::vec::convert_from_float<BFloat16>(values.low, values.high).store(target);
}

// Loads `left` numbers if a pair has room for more, and fills it up.
template <typename Number>
inline Pair load(const Number* source, int64_t left, float filling) {
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

inline float sum_of(const Pair& values) {
  return at::vec::vec_reduce_all<float>(
      [](Vector& x, Vector& y) { return x + y; }, values.low + values.high);
}

inline float largest_of(const Pair& values) {
  return at::vec::vec_reduce_all<float>(
      [](Vector& x, Vector& y) { return at::vec::maximum(x, y); },
      at::vec::maximum(values.low, values.high));
}

int64_t whole_pairs(int64_t size) {
  return (size + WIDTH - 1) / WIDTH * WIDTH;
}

// row = scores + bias, filled up with -inf; returns the largest.
template <typename Number>
inline float add_bias(const Number* scores, const float* bias, float* row, int64_t size) {
  Pair largest{Vector(LOWEST), Vector(LOWEST)};
  for (int64_t i = 0; i < size; i += WIDTH) {
    Pair values = load(scores + i, size - i, LOWEST);
    if (bias != nullptr) {
      values = values + load(bias + i, size - i, 0.0f);
    }
    store(row + i, values);
    largest = {
        at::vec::maximum(largest.low, values.low), at::vec::maximum(largest.high, values.high)};
  }
  return largest_of(largest);
}

// row = exp(row - largest); returns the sum, or NaN where the largest is not finite: the
// exponential of NaN may be a number.
inline float exponentiate(float* row, float largest, int64_t size) {
  const Vector shifts(largest);
  Pair sum{Vector(0.0f), Vector(0.0f)};
  for (int64_t i = 0; i < size; i += WIDTH) {
    const Pair values = load(row + i);
    const Pair found{(values.low - shifts).exp_u20(), (values.high - shifts).exp_u20()};
    store(row + i, found);
    sum = sum + found;
  }
  return std::isfinite(largest) ? sum_of(sum) : std::numeric_limits<float>::quiet_NaN();
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

// Calls act(head, first, last) for the rows first <= i < last of a head, in all threads.
template <typename Act>
void for_rows_of_heads(
    int64_t heads, int64_t queries, int64_t scores_of_a_query, const Act& act) {
  // Neither an empty batch nor an empty sequence divides by zero.
  const int64_t most = SCORES_AT_A_TIME / std::max<int64_t>(scores_of_a_query, 1);
  const int64_t rows = std::clamp<int64_t>(most, 1, std::max<int64_t>(queries, 1));
  const int64_t blocks = (queries + rows - 1) / rows;
  for_each_part(heads * blocks, [&](int64_t part) {
    const int64_t first = part % blocks * rows;
    act(part / blocks, first, std::min(first + rows, queries));
  });
}

template <typename Number>
void softmax(const Tensor& scores, const float* bias, const int32_t* lengths) {
  const int64_t B = scores.size(0), N = scores.size(1), S = scores.size(2), K = scores.size(3);
  Number* all = scores.mutable_data_ptr<Number>();
  for_rows_of_heads(N, S, B * K, [&](int64_t head, int64_t first, int64_t last) {
    std::vector<float> buffer(whole_pairs(K));
    float* row = buffer.data();
    for (int64_t b = 0; b < B; b++) {
      const int64_t size = lengths == nullptr ? K : lengths[b];
      TORCH_CHECK_INDEX(size >= 1 && size <= K, "a length of ", size, " for ", K, " keys");
      for (int64_t i = first; i < last; i++) {
        Number* own = all + ((b * N + head) * S + i) * K;
        const float* own_bias = bias == nullptr ? nullptr : bias + (head * S + i) * K;
        const float largest = add_bias(own, own_bias, row, size);
        const Vector factor(1.0f / exponentiate(row, largest, size));
        for (int64_t j = 0; j < size; j += WIDTH) {
          store(own + j, load(row + j) * factor, size - j);
        }
        std::fill(own + size, own + K, Number(0.0f));
      }
    }
  });
}

// gradients = weights * (gradients - sum(gradients * weights))
template <typename Number>
inline void softmax_backward_row(Number* gradients, const Number* weights, int64_t size) {
  Pair products{Vector(0.0f), Vector(0.0f)};
  for (int64_t j = 0; j < size; j += WIDTH) {
    const Pair x = load(gradients + j, size - j, 0.0f), y = load(weights + j, size - j, 0.0f);
    products = {
        at::vec::fmadd(x.low, y.low, products.low), at::vec::fmadd(x.high, y.high, products.high)};
  }
  const Vector mean(sum_of(products));
  for (int64_t j = 0; j < size; j += WIDTH) {
    const Pair x = load(gradients + j, size - j, 0.0f), y = load(weights + j, size - j, 0.0f);
    store(gradients + j, {(x.low - mean) * y.low, (x.high - mean) * y.high}, size - j);
  }
}

template <typename Number>
void softmax_backward(const Tensor& gradients, const Tensor& weights, float* bias_gradient) {
  const int64_t B = gradients.size(0), N = gradients.size(1), S = gradients.size(2);
  const int64_t K = gradients.size(3), sequence = N * S * K;
  Number* all = gradients.mutable_data_ptr<Number>();
  const Number* all_weights = weights.const_data_ptr<Number>();
  for_rows_of_heads(N, S, B * K, [&](int64_t head, int64_t first, int64_t last) {
    const int64_t begin = (head * S + first) * K, size = (last - first) * K;
    for (int64_t b = 0; b < B; b++) {
      for (int64_t row = begin; row < begin + size; row += K) {
        softmax_backward_row(all + b * sequence + row, all_weights + b * sequence + row, K);
      }
    }
    if (bias_gradient == nullptr) {
      return;
    }
    for (int64_t j = 0; j < size; j += WIDTH) {  // what was written last is still in the cache
      Pair sum{Vector(0.0f), Vector(0.0f)};
      for (int64_t b = 0; b < B; b++) {
        sum = sum + load(all + b * sequence + begin + j, size - j, 0.0f);
      }
      store(bias_gradient + begin + j, sum, size - j);
    }
  });
}

template <typename Number>
void cross_entropy(
    const Tensor& logits,
    const float* bias,
    const int64_t* labels,
    int64_t ignored,
    float* losses,
    float* bias_gradients,
    int64_t parts) {
  const int64_t M = logits.size(0), V = logits.size(1), rows = at::divup(M, parts);
  Number* all = logits.mutable_data_ptr<Number>();
  for_each_part(parts, [&](int64_t part) {
    std::vector<float> buffer(whole_pairs(V));
    float* row = buffer.data();
    float* bias_gradient = bias_gradients + part * V;
    for (int64_t m = part * rows; m < std::min(M, (part + 1) * rows); m++) {
      Number* own = all + m * V;
      if (labels[m] == ignored) {
        losses[m] = 0.0f;
        std::fill(own, own + V, Number(0.0f));
        continue;
      }
      TORCH_CHECK_INDEX(
          labels[m] >= 0 && labels[m] < V, "label ", labels[m], " of ", V, " words");
      const float largest = add_bias(own, bias, row, V), chosen = row[labels[m]];
      const float sum = exponentiate(row, largest, V);
      losses[m] = largest + std::log(sum) - chosen;
      row[labels[m]] -= sum;
      const Vector factor(1.0f / sum);
      for (int64_t j = 0; j < V; j += WIDTH) {
        const Pair gradient = load(row + j) * factor;
        store(own + j, gradient, V - j);
        store(bias_gradient + j, load(bias_gradient + j, V - j, 0.0f) + gradient, V - j);
      }
    }
  });
}

void check(const Tensor& tensor, int64_t dimensions) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.dim() == dimensions && tensor.is_cpu());
}

template <typename Act>
void for_type_of(const Tensor& tensor, const Act& act) {
  AT_DISPATCH_SWITCH(
      tensor.scalar_type(),
      "tupelo",
      AT_DISPATCH_CASE(at::kFloat, [&] { act(scalar_t()); })
      AT_DISPATCH_CASE(at::kBFloat16, [&] { act(scalar_t()); }));
}

void softmax_operator(
    Tensor& scores, const std::optional<Tensor>& bias, const std::optional<Tensor>& lengths) {
  check(scores, 4);
  if (bias.has_value()) {
    check(*bias, 3);
    TORCH_CHECK(bias->sizes() == scores.sizes().slice(1));
  }
  if (lengths.has_value()) {
    check(*lengths, 1);
    TORCH_CHECK(lengths->size(0) == scores.size(0));
  }
  for_type_of(scores, [&](auto number) {
    softmax<decltype(number)>(
        scores,
        bias.has_value() ? bias->const_data_ptr<float>() : nullptr,
        lengths.has_value() ? lengths->const_data_ptr<int32_t>() : nullptr);
  });
}

Tensor softmax_backward_operator(Tensor& gradients, const Tensor& weights, bool has_bias) {
  check(gradients, 4);
  check(weights, 4);
  TORCH_CHECK(weights.sizes() == gradients.sizes());
  Tensor bias_gradient = at::empty(
      has_bias ? gradients.sizes().slice(1) : at::IntArrayRef({0}),
      gradients.options().dtype(at::kFloat));
  for_type_of(gradients, [&](auto number) {
    softmax_backward<decltype(number)>(
        gradients, weights, has_bias ? bias_gradient.mutable_data_ptr<float>() : nullptr);
  });
  return bias_gradient;
}

std::tuple<Tensor, Tensor> cross_entropy_operator(
    Tensor& logits, const Tensor& bias, const Tensor& labels, int64_t ignored) {
  check(logits, 2);
  check(bias, 1);
  check(labels, 1);
  TORCH_CHECK(bias.size(0) == logits.size(1) && labels.size(0) == logits.size(0));
  Tensor losses = at::empty({logits.size(0)}, bias.options());
  // One for each part of the rows, added up in their order: the same bits in every run. As many as
  // threads, but not theirs: another OpenMP user may change their number before the loop begins.
  const int64_t parts = at::get_num_threads();
  Tensor bias_gradients = at::zeros({parts, logits.size(1)}, bias.options());
  for_type_of(logits, [&](auto number) {
    cross_entropy<decltype(number)>(
        logits,
        bias.const_data_ptr<float>(),
        labels.const_data_ptr<int64_t>(),
        ignored,
        losses.mutable_data_ptr<float>(),
        bias_gradients.mutable_data_ptr<float>(),
        parts);
  });
  return {losses, bias_gradients.sum(0)};
}

}  // namespace

TORCH_LIBRARY(tupelo, library) {
  library.def(
      "softmax_(Tensor(a!) scores, Tensor? bias, Tensor? lengths) -> ()", &softmax_operator);
  library.def(
      "softmax_backward_(Tensor(a!) gradients, Tensor weights, bool has_bias) -> Tensor",
      &softmax_backward_operator);
  library.def(
      "cross_entropy_(Tensor(a!) logits, Tensor bias, Tensor labels, int ignored)"
      " -> (Tensor, Tensor)",
      &cross_entropy_operator);
}
