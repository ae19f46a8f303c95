// Softmax with a bias that the batch shares, its gradient, and cross-entropy, for CPUs.
//
// Each overwrites its first tensor with the result, computes in fp32 within a row, and reads every
// number from memory once or twice. cpu_kernels.py calls them. Headers of torch but its vectors would
// take most of the time of compiling.
//
// B batch, N heads, S queries, K keys; M predicted positions, V vocabulary.

#include "vectors.h"

#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace tupelo;

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

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

// Scores of all sequences that one thread works on at a time: they, and the part of the bias that
// belongs to them, stay in the second cache of a core.
constexpr int64_t SCORES_AT_A_TIME = 1 << 18;

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
void softmax(
    Number* all, int64_t B, int64_t N, int64_t S, int64_t K, float scale, const float* bias,
    const int32_t* lengths) {
  for_rows_of_heads(N, S, B * K, [&](int64_t head, int64_t first, int64_t last) {
    std::vector<float> buffer(whole_pairs(K));
    float* row = buffer.data();
    for (int64_t b = 0; b < B; b++) {
      const int64_t size = lengths == nullptr ? K : lengths[b];
      for (int64_t i = first; i < last; i++) {
        Number* own = all + ((b * N + head) * S + i) * K;
        const float* own_bias = bias == nullptr ? nullptr : bias + (head * S + i) * K;
        const float largest = add_bias(own, scale, own_bias, row, size);
        const Vector factor(1.0f / exponentiate<Number>(row, largest, size));
        for (int64_t j = 0; j < size; j += WIDTH) {
          store(own + j, load(row + j) * factor, size - j);
        }
        std::fill(own + size, own + K, Number(0.0f));
      }
    }
  });
}

// gradients = scale weights (gradients - sum(gradients weights))
template <typename Number>
inline void softmax_backward_row(
    Number* gradients, float scale, const Number* weights, int64_t size) {
  Pair products = zeros();
  for (int64_t j = 0; j < size; j += WIDTH) {
    products = fmadd(load(gradients + j, size - j), load(weights + j, size - j), products);
  }
  const Vector mean(sum_of(products)), factor(scale);
  for (int64_t j = 0; j < size; j += WIDTH) {
    const Pair x = load(gradients + j, size - j) - mean;
    store(gradients + j, x * load(weights + j, size - j) * factor, size - j);
  }
}

template <typename Number>
void softmax_backward(
    Number* all, int64_t B, int64_t N, int64_t S, int64_t K, float scale, const Number* all_weights,
    float* bias_gradient) {
  const int64_t sequence = N * S * K;
  for_rows_of_heads(N, S, B * K, [&](int64_t head, int64_t first, int64_t last) {
    const int64_t begin = (head * S + first) * K, size = (last - first) * K;
    for (int64_t b = 0; b < B; b++) {
      for (int64_t row = begin; row < begin + size; row += K) {
        softmax_backward_row(
            all + b * sequence + row, scale, all_weights + b * sequence + row, K);
      }
    }
    if (bias_gradient == nullptr) {
      return;
    }
    for (int64_t j = 0; j < size; j += WIDTH) {  // what was written last is still in the cache
      Pair sum = zeros();
      for (int64_t b = 0; b < B; b++) {
        sum = sum + load(all + b * sequence + begin + j, size - j);
      }
      store(bias_gradient + begin + j, sum * Vector(1.0f / scale), size - j);
    }
  });
}

// The gradient of the bias is summed by parts, which are added in their order: the same bits in
// every run. There are as many parts as threads, but part and thread are not the same: another user
// of OpenMP may change the number of threads at any time.
template <typename Number>
void cross_entropy(
    Number* all,
    int64_t M,
    int64_t V,
    const float* bias,
    const int64_t* labels,
    int64_t ignored,
    float* losses,
    float* bias_gradients,
    int64_t parts) {
  const int64_t size = (M + parts - 1) / parts;
  for_each_part(parts, [&](int64_t part) {
    const int64_t first = std::min(M, part * size), last = std::min(M, first + size);
    std::vector<float> buffer(whole_pairs(V));
    float* row = buffer.data();
    float* bias_gradient = bias_gradients + part * V;
    for (int64_t m = first; m < last; m++) {
      Number* own = all + m * V;
      if (labels[m] == ignored) {
        losses[m] = 0.0f;
        std::fill(own, own + V, Number(0.0f));
        continue;
      }
      const float largest = add_bias(own, 1.0f, bias, row, V), chosen = row[labels[m]];
      const float sum = exponentiate<float>(row, largest, V);
      losses[m] = largest + std::log(sum) - chosen;
      row[labels[m]] -= sum;
      const Vector factor(1.0f / sum);
      for (int64_t j = 0; j < V; j += WIDTH) {
        const Pair gradient = load(row + j) * factor;
        store(own + j, gradient, V - j);
        store(bias_gradient + j, load(bias_gradient + j, V - j) + gradient, V - j);
      }
    }
  });
}

}  // namespace

// Each returns whether lengths or labels are within bounds, and else has done nothing.
extern "C" {

int softmax_(
    void* scores, bool is_bf16, int64_t B, int64_t N, int64_t S, int64_t K, float scale,
    const float* bias, const int32_t* lengths) {
  for (int64_t b = 0; b < B && lengths != nullptr; b++) {
    if (lengths[b] < 1 || lengths[b] > K) {
      return 0;
    }
  }
  for_type(is_bf16, [&](auto number) {
    softmax(static_cast<decltype(number)*>(scores), B, N, S, K, scale, bias, lengths);
  });
  return 1;
}

int softmax_backward_(
    void* gradients, bool is_bf16, int64_t B, int64_t N, int64_t S, int64_t K, float scale,
    const void* weights, float* bias_gradient) {
  for_type(is_bf16, [&](auto number) {
    using Number = decltype(number);
    softmax_backward(
        static_cast<Number*>(gradients), B, N, S, K, scale, static_cast<const Number*>(weights),
        bias_gradient);
  });
  return 1;
}

int cross_entropy_(
    void* logits, bool is_bf16, int64_t M, int64_t V, const float* bias, const int64_t* labels,
    int64_t ignored, float* losses, float* bias_gradients, int64_t parts) {
  for (int64_t m = 0; m < M; m++) {
    if (labels[m] != ignored && (labels[m] < 0 || labels[m] >= V)) {
      return 0;
    }
  }
  for_type(is_bf16, [&](auto number) {
    cross_entropy(
        static_cast<decltype(number)*>(logits), M, V, bias, labels, ignored, losses,
        bias_gradients, parts);
  });
  return 1;
}

}  // extern "C"
