// What stands between the matrix products of a block, for CPUs: the bias of a product with what
// follows it, in one pass forward and one back, in fp32 within a row.
//
// cpu_kernels.py tells what the operators are given.
//
// R rows (all positions of a batch), D model width, F feed-forward width; B batch, S sequence,
// N heads, H width of a head.

#include "cpu_vectors.h"

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

// Of add_and_normalize, whose residual stream and compute type may differ. What is null is left out.
template <typename Residual, typename Computed>
struct NormRows {
  int64_t R, D;
  float scale, epsilon;
  const Residual* x;
  const Computed* branch;
  const float *branch_bias, *weight, *bias;
  Residual *sum, *wide;
  Computed* narrow;
  float* statistics;  // the mean of each row, then one over the standard deviation of each

  void run() const {
    for_rows_of_parts(R, at::get_num_threads(), [&](int64_t, int64_t first, int64_t last) {
      std::vector<float> buffer(whole_pairs(D));
      for (int64_t r = first; r < last; r++) {
        const float total = add(r, buffer.data());
        if (weight != nullptr) {
          normalize(r, buffer.data(), total / D);
        }
      }
    });
  }

  // row = x + scale (branch + branch_bias); returns its sum
  float add(int64_t r, float* row) const {
    Pair total = zeros();
    for (int64_t j = 0; j < D; j += WIDTH) {
      const int64_t i = r * D + j, left = D - j;
      Pair value = load(x + i, left);
      if (branch != nullptr) {
        Pair added = load(branch + i, left);
        if (branch_bias != nullptr) {
          added = added + load(branch_bias + j, left);
        }
        value = value + added * Vector(scale);
        store(sum + i, value, left);
        value = load(sum + i, left);  // rounded: the gradient will be that of the norm of this
      }
      store(row + j, value);
      total = total + value;
    }
    return sum_of(total);
  }

  void normalize(int64_t r, float* row, float mean) const {
    const Vector shift(mean);
    std::fill(row + D, row + whole_pairs(D), mean);
    Pair squares = zeros();
    for (int64_t j = 0; j < D; j += WIDTH) {
      const Pair distance = load(row + j) - shift;
      squares = fmadd(distance, distance, squares);
    }
    statistics[r] = mean;
    statistics[R + r] = 1.0f / std::sqrt(sum_of(squares) / D + epsilon);
    const Vector factor(statistics[R + r]);
    for (int64_t j = 0; j < D; j += WIDTH) {
      const int64_t i = r * D + j, left = D - j;
      const Pair standard = (load(row + j) - shift) * factor;
      const Pair value = fmadd(standard, load(weight + j, left), load(bias + j, left));
      if (wide != nullptr) {
        store(wide + i, value, left);
      }
      if (narrow != nullptr) {
        store(narrow + i, value, left);
      }
    }
  }
};

// The gradients of NormRows. What is null is zero, or not asked for.
template <typename Residual, typename Computed>
struct NormBackwardRows {
  int64_t R, D;
  float scale;
  const Residual* sum;
  const float *statistics, *weight;
  const Residual *sum_gradient, *wide_gradient;
  const Computed* narrow_gradient;
  Residual* x_gradient;
  Computed* branch_gradient;
  float* sums;  // of weight, bias and branch_bias, for each part

  void run(int64_t parts) const {
    for_rows_of_parts(R, parts, [&](int64_t part, int64_t first, int64_t last) {
      std::vector<float> buffer(2 * whole_pairs(D));
      float *row = buffer.data(), *standard = row + whole_pairs(D), *own = sums + part * 3 * D;
      for (int64_t r = first; r < last; r++) {
        if (weight != nullptr) {
          normalize(r, row, standard, own, own + D);
        }
        add(r, row, own + 2 * D);
      }
    });
  }

  // row = gradient of the sum that is normalized
  void normalize(
      int64_t r, float* row, float* standard, float* weight_sum, float* bias_sum) const {
    const Vector shift(statistics[r]), factor(statistics[R + r]);
    Pair total = zeros(), products = zeros();
    for (int64_t j = 0; j < D; j += WIDTH) {
      const int64_t i = r * D + j, left = D - j;
      Pair gradient = zeros();
      if (wide_gradient != nullptr) {
        gradient = load(wide_gradient + i, left);
      }
      if (narrow_gradient != nullptr) {
        gradient = gradient + load(narrow_gradient + i, left);
      }
      const Pair x = (load(sum + i, left) - shift) * factor;
      store(weight_sum + j, fmadd(gradient, x, load(weight_sum + j, left)), left);
      store(bias_sum + j, load(bias_sum + j, left) + gradient, left);
      gradient = gradient * load(weight + j, left);  // zero beyond the end
      store(row + j, gradient);
      store(standard + j, x);
      total = total + gradient;
      products = fmadd(gradient, x, products);
    }
    const Vector mean_gradient(sum_of(total) / D), mean_product(-sum_of(products) / D);
    for (int64_t j = 0; j < D; j += WIDTH) {
      const Pair centred = load(row + j) - mean_gradient;
      store(row + j, (centred + load(standard + j) * mean_product) * factor);
    }
  }

  void add(int64_t r, const float* row, float* branch_bias_sum) const {
    for (int64_t j = 0; j < D; j += WIDTH) {
      const int64_t i = r * D + j, left = D - j;
      Pair gradient = weight == nullptr ? zeros() : load(row + j);
      if (sum_gradient != nullptr) {
        gradient = gradient + load(sum_gradient + i, left);
      }
      store(x_gradient + i, gradient, left);
      if (branch_gradient != nullptr) {
        gradient = gradient * Vector(scale);
        store(branch_gradient + i, gradient, left);
        store(branch_bias_sum + j, load(branch_bias_sum + j, left) + gradient, left);
      }
    }
  }
};

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

// Rows are all dimensions but the last.
int64_t rows_of(const Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu() && tensor.dim() > 0);
  return tensor.numel() / std::max<int64_t>(tensor.size(-1), 1);
}

void check_like(const Tensor& tensor, const Tensor& other) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu() && tensor.sizes() == other.sizes());
}

void check_like(const std::optional<Tensor>& tensor, const Tensor& other) {
  if (tensor.has_value()) {
    check_like(*tensor, other);
  }
}

void check_vector(const std::optional<Tensor>& tensor, int64_t size) {
  if (tensor.has_value()) {
    check(*tensor, 1);
    TORCH_CHECK(tensor->size(0) == size);
  }
}

template <typename Number>
const Number* data_of(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->const_data_ptr<Number>() : nullptr;
}

Tensor empty_if(bool wanted, const Tensor& like, at::ScalarType type) {
  return wanted ? at::empty_like(like, like.options().dtype(type)) : Tensor();
}

template <typename Number>
Number* result_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<Number>() : nullptr;
}

Tensor sums_of_parts(int64_t parts, at::IntArrayRef sizes) {
  std::vector<int64_t> all{parts};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return at::zeros(all, at::TensorOptions().dtype(at::kFloat));
}

Tensor gelu_operator(Tensor& products, const Tensor& bias) {
  const int64_t R = rows_of(products), F = products.size(-1);
  check_vector(bias, F);
  Tensor outputs = at::empty_like(products);
  for_type_of(products, [&](auto number) {
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
  Tensor outputs = at::empty_like(slopes), sums = sums_of_parts(parts, {F});
  for_type_of(slopes, [&](auto number) {
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

// Calls act(a number of the residual stream's type, a number of the compute type).
template <typename Act>
void for_types_of(const Tensor& x, at::ScalarType computed, const Act& act) {
  for_type_of(x, [&](auto residual) {
    for_type_of(at::empty({0}, x.options().dtype(computed)), [&](auto number) {
      act(residual, number);
    });
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> add_and_normalize_operator(
    const Tensor& x,
    const std::optional<Tensor>& branch,
    const std::optional<Tensor>& branch_bias,
    double scale,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double epsilon,
    at::ScalarType computed,
    bool is_wide,
    bool is_narrow) {
  check_like(branch, x);
  const int64_t R = rows_of(x), D = x.size(-1);
  for (const auto& vector : {branch_bias, weight, bias}) {
    check_vector(vector, D);
  }
  TORCH_CHECK(weight.has_value() == bias.has_value());
  Tensor sum = empty_if(branch.has_value(), x, x.scalar_type());
  Tensor wide = empty_if(is_wide, x, x.scalar_type());
  Tensor narrow = empty_if(is_narrow, x, computed);
  Tensor statistics = at::empty({2, R}, x.options().dtype(at::kFloat));
  for_types_of(x, computed, [&](auto residual, auto number) {
    using Residual = decltype(residual);
    using Computed = decltype(number);
    NormRows<Residual, Computed>{
        R,
        D,
        float(scale),
        float(epsilon),
        x.const_data_ptr<Residual>(),
        data_of<Computed>(branch),
        data_of<float>(branch_bias),
        data_of<float>(weight),
        data_of<float>(bias),
        result_of<Residual>(sum),
        result_of<Residual>(wide),
        result_of<Computed>(narrow),
        statistics.mutable_data_ptr<float>()}
        .run();
  });
  return {sum, wide, narrow, statistics};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> add_and_normalize_backward_operator(
    const Tensor& sum,
    const Tensor& statistics,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& sum_gradient,
    const std::optional<Tensor>& wide_gradient,
    const std::optional<Tensor>& narrow_gradient,
    double scale,
    at::ScalarType computed,
    bool has_branch) {
  const int64_t R = rows_of(sum), D = sum.size(-1), parts = at::get_num_threads();
  TORCH_CHECK(statistics.is_contiguous() && statistics.numel() == 2 * R);
  check_vector(weight, D);
  for (const auto& gradient : {sum_gradient, wide_gradient, narrow_gradient}) {
    check_like(gradient, sum);
  }
  Tensor x_gradient = at::empty_like(sum), sums = sums_of_parts(parts, {3, D});
  Tensor branch_gradient = empty_if(has_branch, sum, computed);
  for_types_of(sum, computed, [&](auto residual, auto number) {
    using Residual = decltype(residual);
    using Computed = decltype(number);
    NormBackwardRows<Residual, Computed>{
        R,
        D,
        float(scale),
        sum.const_data_ptr<Residual>(),
        statistics.const_data_ptr<float>(),
        data_of<float>(weight),
        data_of<Residual>(sum_gradient),
        data_of<Residual>(wide_gradient),
        data_of<Computed>(narrow_gradient),
        x_gradient.mutable_data_ptr<Residual>(),
        result_of<Computed>(branch_gradient),
        sums.mutable_data_ptr<float>()}
        .run(parts);
  });
  sums = sums.sum(0);
  return {x_gradient, branch_gradient, sums[2], sums[0], sums[1]};
}

Tensor split_heads_operator(const Tensor& projected, const Tensor& bias, int64_t heads) {
  check(projected, 3);
  const int64_t B = projected.size(0), S = projected.size(1), all = projected.size(2);
  TORCH_CHECK(heads > 0 && all % (3 * heads) == 0);
  check_vector(bias, all);
  Tensor split = at::empty({3, B, heads, S, all / 3 / heads}, projected.options());
  for_type_of(projected, [&](auto number) {
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
  Tensor sums = sums_of_parts(parts, {3 * N * H});
  for_type_of(queries, [&](auto number) {
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
      "add_and_normalize(Tensor x, Tensor? branch, Tensor? branch_bias, float scale,"
      " Tensor? weight, Tensor? bias, float epsilon, ScalarType computed, bool is_wide,"
      " bool is_narrow) -> (Tensor, Tensor, Tensor, Tensor)",
      &add_and_normalize_operator);
  library.def(
      "add_and_normalize_backward(Tensor sum, Tensor statistics, Tensor? weight,"
      " Tensor? sum_gradient, Tensor? wide_gradient, Tensor? narrow_gradient, float scale,"
      " ScalarType computed, bool has_branch) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
      &add_and_normalize_backward_operator);
  library.def(
      "split_heads(Tensor projected, Tensor bias, int heads) -> Tensor", &split_heads_operator);
  library.def(
      "merge_heads(Tensor queries, Tensor keys, Tensor values) -> (Tensor, Tensor)",
      &merge_heads_operator);
}
