// The header in C++: a product, with handles that close themselves.
#include "atlas.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(AtlasStatus status) {
  if (status != ATLAS_STATUS_OK) throw std::runtime_error(atlas_last_error());
}

struct Close {
  void operator()(AtlasDevice *device) const { atlas_device_close(device); }
};

class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns) : shape{rows, columns}, values(rows * columns) {}
  float &at(std::int64_t i, std::int64_t j) { return values[i * shape[1] + j]; }
  AtlasArg arg() {
    view = DLTensor{values.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), nullptr, 0};
    AtlasArg arg{};
    arg.kind = ATLAS_ARG_TENSOR;
    arg.value.tensor = &view;
    return arg;
  }

 private:
  std::array<std::int64_t, 2> shape;
  std::vector<float> values;
  DLTensor view{};
};

}  // namespace

int main() {
  AtlasDevice *opened = nullptr;
  check(atlas_device_open("cpu", &opened));
  std::unique_ptr<AtlasDevice, Close> device(opened);

  constexpr int M = 17, K = 9, N = 13;
  Matrix a(M, K), b(N, K), c(M, N);
  for (int i = 0; i < M; i++)
    for (int k = 0; k < K; k++) a.at(i, k) = static_cast<float>((i * k) % 5);
  for (int k = 0; k < K; k++)
    for (int j = 0; j < N; j++) b.at(j, k) = static_cast<float>((k + j) % 7);
  std::array<AtlasArg, 3> args{a.arg(), b.arg(), c.arg()};
  check(atlas_launch(device.get(), nullptr, "matmul", args.data(), args.size()));
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float want = 0;
      for (int k = 0; k < K; k++) want += a.at(i, k) * b.at(j, k);
      if (std::fabs(c.at(i, j) - want) > 1e-4f) return 1;
    }
  std::puts("all right");
  return 0;
}
