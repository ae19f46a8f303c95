// x + scale (branch + bias) and its LayerNorm, and the gradients, for CPUs: one pass over memory
// forward, one back. Each part may be left out.
//
// cpu_kernels.py tells what the operators are given.
//
// R rows, all positions of a batch; D model width.

#include "vectors.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace {

using namespace tupelo;

// The type of the residual stream and that of the products may differ. What is null is left out.
template <typename Residual, typename Computed>
struct NormRows {
  int64_t R, D;
  float scale, epsilon;
  const Residual* x;
  const Computed* branch;
  const float *branch_bias, *weight, *bias;
  Residual *sum, *wide;
  Computed* narrow;
  // The mean of each row, then one over the standard deviation of each; unset without a norm.
  float* statistics;

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

// Calls act(a number of the residual stream's type, a number of the compute type).
template <typename Act>
void for_types(at::ScalarType residual, at::ScalarType computed, const Act& act) {
  for_type(residual, [&](auto wide) {
    for_type(computed, [&](auto narrow) { act(wide, narrow); });
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
  for_types(x.scalar_type(), computed, [&](auto residual, auto number) {
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
  Tensor x_gradient = at::empty_like(sum), sums = sums_of_parts(parts, 3 * D);
  Tensor branch_gradient = empty_if(has_branch, sum, computed);
  for_types(sum.scalar_type(), computed, [&](auto residual, auto number) {
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
  sums = sums.sum(0).view({3, D});
  return {x_gradient, branch_gradient, sums[2], sums[0], sums[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tupelo, library) {
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
}
