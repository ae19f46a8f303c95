// The gradient of a linear layer's weight, for CPUs that multiply bf16.
//
// torch's products round their results to the type of their factors; here this one, a sum over all
// positions, stays in fp32. cpu_kernels.py tells what the operator is given.
//
// R rows, I inner size, C columns.

#include "tiles.h"

#include <torch/library.h>

#ifdef TUPELO_TILES

namespace {

using namespace tupelo;

// A panel of the right factor, INNER x PANEL, fits into a quarter of a second cache of 1 MiB; rows of the
// left one that were a power of two apart would push each other out of the first.
constexpr int64_t INNER = 2048, PANEL = 64, ROWS = 256, GAP = 32;

// Calls act(first, size) for the columns first <= c < first + size of each panel, in all threads.
template <typename Act>
void for_each_panel(int64_t C, const Act& act) {
  for_each_part(at::divup(C, PANEL), [&](int64_t panel) {
    act(panel * PANEL, std::min(PANEL, C - panel * PANEL));
  });
}

// products = left right, whose panels of pairs of rows follow each other
void multiply_by_panels(
    const BFloat16* left,
    int64_t stride,
    const RowPair* panels,
    int64_t R,
    int64_t I,
    int64_t C,
    float* products) {
  const int64_t blocks = at::divup(R, ROWS), inner = even(I);
  for_parts_with_products(at::divup(C, PANEL) * blocks, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; part++) {
      const int64_t row = part % blocks * ROWS, rows = std::min(ROWS, R - row);
      const int64_t column = part / blocks * PANEL, columns = std::min(PANEL, C - column);
      for (int64_t i = 0; i < inner; i += INNER) {
        multiply(
            rows,
            columns,
            std::min(INNER, inner - i),
            left + row * stride + i,
            stride,
            panels + (column * inner + i * columns) / 2,
            products + row * C + column,
            C,
            i > 0);
      }
    }
  });
}

void check_matrices(const Tensor& left, const Tensor& right) {
  for (const Tensor& matrix : {left, right}) {
    check(matrix, 2);
    TORCH_CHECK(matrix.scalar_type() == at::kBFloat16);
  }
}

Tensor weight_gradient_operator(const Tensor& gradients, const Tensor& inputs) {
  check_matrices(gradients, inputs);
  const int64_t I = gradients.size(0), R = gradients.size(1), C = inputs.size(1);
  TORCH_CHECK(inputs.size(0) == I);
  if (I == 0) {
    return at::zeros({R, C}, gradients.options().dtype(at::kFloat));
  }
  const int64_t stride = even(I) + GAP;
  Tensor columns = at::empty({R, stride}, gradients.options());
  Tensor panels = at::empty({even(I), C}, inputs.options());
  Tensor products = at::empty({R, C}, gradients.options().dtype(at::kFloat));
  const BFloat16* left = gradients.const_data_ptr<BFloat16>();
  auto* transposed = reinterpret_cast<RowPair*>(columns.mutable_data_ptr<BFloat16>());
  for_each_panel(R, [&](int64_t first, int64_t size) {
    RowPair pairs[ROWS / 2 * PANEL];
    for (int64_t i = 0; i < I; i += ROWS) {
      const int64_t rows = std::min(ROWS, I - i);
      pair_rows(left + i * R + first, R, rows, size, pairs);
      transpose(
          pairs, size, even(rows) / 2, size, transposed + (first * stride + i) / 2, stride / 2);
    }
  });
  const BFloat16* right = inputs.const_data_ptr<BFloat16>();
  auto* paired = reinterpret_cast<RowPair*>(panels.mutable_data_ptr<BFloat16>());
  for_each_panel(C, [&](int64_t first, int64_t size) {
    pair_rows(right + first, C, I, size, paired + first * even(I) / 2);
  });
  multiply_by_panels(
      columns.const_data_ptr<BFloat16>(), stride, paired, R, I, C, products.mutable_data_ptr<float>());
  return products;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tupelo, library) {
  library.def(
      "weight_gradient(Tensor gradients, Tensor inputs) -> Tensor", &weight_gradient_operator);
}

#endif
