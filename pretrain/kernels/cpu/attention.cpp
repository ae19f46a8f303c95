// Attention with a bias that the batch shares, and its gradients, for CPUs that multiply bf16.
//
// One head of one sequence is computed at a time, some queries after the other, so that what stands
// between two products stays in the second cache of a core. cpu_kernels.py tells what the operators
// are given.
//
// B batch, N heads, S positions, H head width.

#include "tiles.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#ifdef TUPELO_TILES

namespace {

using namespace tupelo;

// Scores of the queries that are computed at a time, in fp32 a quarter of a second cache of 1 MiB.
constexpr int64_t SCORES_AT_A_TIME = 1 << 16;

// Of which one step of the softmax is computed before the next: they stay in the first cache.
constexpr int64_t ROWS_AT_A_TIME = 8;

// Writes rows of fp32 that lie one after the other to rows that stand apart.
void write_rows(
    const float* source, int64_t rows, int64_t width, BFloat16* target, int64_t stride) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < width; c += WIDTH) {
      store(target + r * stride + c, load(source + r * width + c, width - c), width - c);
    }
  }
}

struct Shape {
  int64_t B, N, S, H;
  int64_t stride;  // of a row of scores, filled up with zeros
  int64_t queries;  // computed at a time, an even number

  explicit Shape(const Tensor& heads)
      : B(heads.size(0)),
        N(heads.size(1)),
        S(heads.size(2)),
        H(heads.size(3)),
        stride(whole_pairs(S)),
        queries(even(std::min(S, std::max<int64_t>(SCORES_AT_A_TIME / (stride + 1), 2)))) {}

  // Calls act(first, rows) for the queries first <= i < first + rows.
  template <typename Act>
  void for_queries(const Act& act) const {
    for (int64_t first = 0; first < S; first += queries) {
      act(first, std::min(queries, S - first));
    }
  }
};

// weights = softmax(scale scores + bias) of the first `size` keys. Each step ends with a sum or a
// maximum that the next one waits for, so that the rows take a step one after the other.
void weigh(
    int64_t rows,
    int64_t keys,
    int64_t size,
    int64_t stride,
    float* scores,
    float scale,
    const float* bias,
    BFloat16* weights) {
  float found[ROWS_AT_A_TIME];
  for (int64_t i = 0; i < rows; i++) {
    const float* own_bias = bias == nullptr ? nullptr : bias + i * keys;
    found[i] = add_bias(scores + i * stride, scale, own_bias, scores + i * stride, size);
  }
  for (int64_t i = 0; i < rows; i++) {
    found[i] = 1.0f / exponentiate<BFloat16>(scores + i * stride, found[i], size);
  }
  for (int64_t i = 0; i < rows; i++) {
    BFloat16* own = weights + i * stride;
    for (int64_t j = 0; j < size; j += WIDTH) {
      store(own + j, load(scores + i * stride + j) * Vector(found[i]), size - j);
    }
    std::fill(own + size, own + stride, BFloat16(0.0f));
  }
}

void attend(
    const Shape& shape,
    const BFloat16* queries,
    const BFloat16* keys,
    const BFloat16* values,
    float scale,
    const float* bias,
    const int32_t* lengths,
    BFloat16* mixed,
    BFloat16* weights) {
  const auto [B, N, S, H, stride, at_a_time] = shape;
  // The sequences of a head follow each other: its bias stays in the cache.
  for_parts_with_products(N * B, [&](int64_t begin, int64_t end) {
    std::vector<RowPair> key_columns(H / 2 * S), value_pairs(even(S) / 2 * H);
    std::vector<float> scores(at_a_time * stride), found(at_a_time * H);
    for (int64_t part = begin; part < end; part++) {
      const int64_t n = part / B, b = part % B, head = (b * N + n) * S;
      const int64_t size = lengths == nullptr ? S : lengths[b];
      transpose(in_pairs(keys + head * H), H / 2, S, H / 2, key_columns.data(), S);
      pair_rows(values + head * H, H, S, H, value_pairs.data());
      shape.for_queries([&](int64_t first, int64_t rows) {
        BFloat16* own = weights + (head + first) * stride;
        multiply(rows, S, H, queries + (head + first) * H, H, key_columns.data(), scores.data(), stride);
        for (int64_t i = 0; i < rows; i += ROWS_AT_A_TIME) {
          weigh(
              std::min(ROWS_AT_A_TIME, rows - i),
              S,
              size,
              stride,
              scores.data() + i * stride,
              scale,
              bias == nullptr ? nullptr : bias + (n * S + first + i) * S,
              own + i * stride);
        }
        multiply(rows, H, even(S), own, stride, value_pairs.data(), found.data(), H);
        write_rows(found.data(), rows, H, mixed + ((b * S + first) * N + n) * H, N * H);
      });
    }
  });
}

// Turns the gradients of a row of weights into those of its scores; before they are scaled, they are
// those of the bias.
void differentiate(
    const float* gradients,
    const BFloat16* weights,
    float scale,
    int64_t size,
    int64_t stride,
    BFloat16* score_gradients,
    float* bias_gradients,
    bool is_added) {
  Pair products = zeros();
  for (int64_t j = 0; j < stride; j += WIDTH) {
    products = fmadd(load(gradients + j), load(weights + j), products);
  }
  const Vector mean(sum_of(products)), factor(scale);
  for (int64_t j = 0; j < stride; j += WIDTH) {
    Pair found = (load(gradients + j) - mean) * load(weights + j);
    store(score_gradients + j, found * factor);
    if (bias_gradients != nullptr && j < size) {
      if (is_added) {
        found = found + load(bias_gradients + j, size - j);
      }
      store(bias_gradients + j, found, size - j);
    }
  }
}

void attend_backward(
    const Shape& shape,
    const BFloat16* mixed_gradients,
    const BFloat16* queries,
    const BFloat16* keys,
    const BFloat16* values,
    const BFloat16* weights,
    float scale,
    BFloat16* query_gradients,
    BFloat16* key_gradients,
    BFloat16* value_gradients,
    float* bias_gradients,
    int64_t parts) {
  const auto [B, N, S, H, stride, at_a_time] = shape;
  for_parts_with_products(N * parts, [&](int64_t begin, int64_t end) {
    std::vector<RowPair> value_columns(H / 2 * S), key_pairs(even(S) / 2 * H);
    std::vector<RowPair> query_pairs(at_a_time / 2 * H), gradient_pairs(at_a_time / 2 * H);
    std::vector<RowPair> score_pairs(at_a_time / 2 * stride), columns(stride * at_a_time / 2);
    std::vector<float> gradients(at_a_time * stride), query_found(at_a_time * H);
    std::vector<float> key_found(S * H), value_found(S * H);
    std::vector<BFloat16> score_gradients(at_a_time * stride);
    // found (+)= scores^T right, for scores of these rows of queries
    const auto multiply_transposed = [&](const BFloat16* scores, int64_t rows, bool is_added,
                                         const RowPair* right, float* found) {
      const int64_t pairs = even(rows) / 2;
      pair_rows(scores, stride, rows, S, score_pairs.data());
      transpose(score_pairs.data(), S, pairs, S, columns.data(), pairs);
      const auto* left = reinterpret_cast<const BFloat16*>(columns.data());
      multiply(S, H, 2 * pairs, left, 2 * pairs, right, found, H, is_added);
    };
    for (int64_t part = begin; part < end; part++) {
      const int64_t n = part / parts, size = at::divup(B, parts), first_b = part % parts * size;
      const int64_t last_b = std::min(B, first_b + size);
      for (int64_t b = first_b; b < last_b; b++) {
        const int64_t head = (b * N + n) * S;
        transpose(in_pairs(values + head * H), H / 2, S, H / 2, value_columns.data(), S);
        pair_rows(keys + head * H, H, S, H, key_pairs.data());
        shape.for_queries([&](int64_t first, int64_t rows) {
          const BFloat16* given = mixed_gradients + ((b * S + first) * N + n) * H;
          const BFloat16* own_weights = weights + (head + first) * stride;
          multiply(rows, S, H, given, N * H, value_columns.data(), gradients.data(), stride);
          for (int64_t i = 0; i < rows; i++) {
            differentiate(
                gradients.data() + i * stride,
                own_weights + i * stride,
                scale,
                S,
                stride,
                score_gradients.data() + i * stride,
                bias_gradients == nullptr
                    ? nullptr
                    : bias_gradients + ((part % parts * N + n) * S + first + i) * S,
                b > first_b);
          }
          multiply(
              rows, H, even(S), score_gradients.data(), stride, key_pairs.data(), query_found.data(), H);
          write_rows(query_found.data(), rows, H, query_gradients + (head + first) * H, H);
          pair_rows(queries + (head + first) * H, H, rows, H, query_pairs.data());
          multiply_transposed(
              score_gradients.data(), rows, first > 0, query_pairs.data(), key_found.data());
          pair_rows(given, N * H, rows, H, gradient_pairs.data());
          multiply_transposed(
              own_weights, rows, first > 0, gradient_pairs.data(), value_found.data());
        });
        write_rows(key_found.data(), S, H, key_gradients + head * H, H);
        write_rows(value_found.data(), S, H, value_gradients + head * H, H);
      }
    }
  });
}

void check_heads(const Tensor& heads, at::IntArrayRef sizes) {
  check(heads, 4);
  TORCH_CHECK(heads.scalar_type() == at::kBFloat16 && heads.sizes() == sizes);
}

std::tuple<Tensor, Tensor> attention_operator(
    const Tensor& queries,
    const Tensor& keys,
    const Tensor& values,
    double scale,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& lengths) {
  for (const Tensor& heads : {queries, keys, values}) {
    check_heads(heads, queries.sizes());
  }
  const Shape shape(queries);
  TORCH_CHECK(shape.H % 2 == 0);
  check_bias_and_lengths(bias, lengths, {shape.B, shape.N, shape.S, shape.S});
  Tensor mixed = at::empty({shape.B, shape.S, shape.N, shape.H}, queries.options());
  Tensor weights = at::empty({shape.B, shape.N, shape.S, shape.stride}, queries.options());
  attend(
      shape,
      queries.const_data_ptr<BFloat16>(),
      keys.const_data_ptr<BFloat16>(),
      values.const_data_ptr<BFloat16>(),
      float(scale),
      bias.has_value() ? bias->const_data_ptr<float>() : nullptr,
      lengths.has_value() ? lengths->const_data_ptr<int32_t>() : nullptr,
      mixed.mutable_data_ptr<BFloat16>(),
      weights.mutable_data_ptr<BFloat16>());
  return {mixed, weights};
}

std::tuple<Tensor, Tensor, Tensor, std::optional<Tensor>> attention_backward_operator(
    const Tensor& mixed_gradients,
    const Tensor& queries,
    const Tensor& keys,
    const Tensor& values,
    const Tensor& weights,
    double scale,
    bool has_bias) {
  for (const Tensor& heads : {queries, keys, values}) {
    check_heads(heads, queries.sizes());
  }
  const Shape shape(queries);
  check_heads(mixed_gradients, {shape.B, shape.S, shape.N, shape.H});
  check_heads(weights, {shape.B, shape.N, shape.S, shape.stride});
  Tensor query_gradients = at::empty_like(queries), key_gradients = at::empty_like(keys);
  Tensor value_gradients = at::empty_like(values);
  // The sum over the batch is made in parts, none of them empty, where there are few heads.
  int64_t parts = shape.B;
  std::optional<Tensor> bias_gradients;
  if (has_bias) {
    const int64_t most = std::max<int64_t>(shape.B, 1);
    const int64_t wanted = std::min(most, at::divup(2 * at::get_num_threads(), shape.N));
    parts = at::divup(most, at::divup(most, wanted));
    const auto options = queries.options().dtype(at::kFloat);
    const std::vector<int64_t> sizes{parts, shape.N, shape.S, shape.S};
    bias_gradients = shape.B == 0 ? at::zeros(sizes, options) : at::empty(sizes, options);
  }
  attend_backward(
      shape,
      mixed_gradients.const_data_ptr<BFloat16>(),
      queries.const_data_ptr<BFloat16>(),
      keys.const_data_ptr<BFloat16>(),
      values.const_data_ptr<BFloat16>(),
      weights.const_data_ptr<BFloat16>(),
      float(scale),
      query_gradients.mutable_data_ptr<BFloat16>(),
      key_gradients.mutable_data_ptr<BFloat16>(),
      value_gradients.mutable_data_ptr<BFloat16>(),
      has_bias ? bias_gradients->mutable_data_ptr<float>() : nullptr,
      parts);
  if (has_bias) {
    bias_gradients = parts == 1 ? bias_gradients->squeeze(0) : bias_gradients->sum(0);
  }
  return {query_gradients, key_gradients, value_gradients, bias_gradients};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tupelo, library) {
  library.def(
      "attend_heads(Tensor queries, Tensor keys, Tensor values, float scale, Tensor? bias,"
      " Tensor? lengths) -> (Tensor, Tensor)",
      &attention_operator);
  library.def(
      "attend_heads_backward(Tensor mixed_gradients, Tensor queries, Tensor keys, Tensor values,"
      " Tensor weights, float scale, bool has_bias) -> (Tensor, Tensor, Tensor, Tensor?)",
      &attention_backward_operator);
}

#endif
