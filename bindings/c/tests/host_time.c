/* Host time of a prepared launch, beside what the driver takes for a launch of a kernel with as many bytes of parameters, on one GPU.
 * It prints JSON. Rounds of the two take turns, and none fills the queue.
 *
 *   cc -O2 -I bindings/c/include bindings/c/tests/host_time.c -L target/release -latlas_c -ldl -o host_time
 */
#define _POSIX_C_SOURCE 200809L
#include "arrays.h"

#include <dlfcn.h>
#include <time.h>

enum { ROUNDS = 61, CALLS = 100 };

/* A kernel that does nothing, with the bytes of parameters that a softmax of Atlas has. */
static const char NOTHING[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry nothing(.param .align 8 .b8 bytes[64])\n{\n  ret;\n}\n";

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *times) {
  qsort(times, ROUNDS, sizeof *times, by_size);
  return times[ROUNDS / 2];
}

int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(driver);
#define DRIVER(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))(size_t)dlsym(driver, #name)
  DRIVER(cuInit, unsigned);
  DRIVER(cuDevicePrimaryCtxRetain, void **, int);
  DRIVER(cuCtxSetCurrent, void *);
  DRIVER(cuMemAlloc_v2, unsigned long long *, size_t);
  DRIVER(cuModuleLoadData, void **, const void *);
  DRIVER(cuModuleGetFunction, void **, void *, const char *);
  DRIVER(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  DRIVER(cuCtxSynchronize, void);
  void *context = NULL, *module = NULL, *nothing = NULL;
  CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context));
  CHECK(!cuModuleLoadData(&module, NOTHING) && !cuModuleGetFunction(&nothing, module, "nothing"));

  enum { N = 64, D = 1024 };
  unsigned long long x = 0, y = 0;
  CHECK(!cuMemAlloc_v2(&x, N * D * 2) && !cuMemAlloc_v2(&y, N * D * 2));
  int64_t shape[2] = {N, D};
  DLTensor tx = {(void *)(size_t)x, {kDLCUDA, 0}, 2, {kDLBfloat, 16, 1}, shape, NULL, 0}, ty = tx;
  ty.data = (void *)(size_t)y;
  AtlasArg args[2] = {{ATLAS_ARG_TENSOR, 0, {.tensor = &tx}}, {ATLAS_ARG_TENSOR, 0, {.tensor = &ty}}};
  AtlasDevice *device = NULL;
  AtlasPrepared *prepared = NULL;
  CHECK(!atlas_device_open("cuda:0", &device) && !atlas_prepare(device, "softmax", args, 2, &prepared));

  char bytes[64] = {0};
  void *params[1] = {bytes};
  double ours[ROUNDS], theirs[ROUNDS];
  for (int round = -3; round < ROUNDS; round++) {
    double begun = microseconds();
    for (int i = 0; i < CALLS; i++) CHECK(!atlas_prepared_launch(prepared, NULL, args, 2));
    double between = microseconds();
    CHECK(!cuCtxSynchronize());
    double again = microseconds();
    for (int i = 0; i < CALLS; i++) CHECK(!cuLaunchKernel(nothing, N, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
    double end = microseconds();
    CHECK(!cuCtxSynchronize());
    if (round >= 0) ours[round] = (between - begun) / CALLS, theirs[round] = (end - again) / CALLS;
  }
  double launch = median(ours), least = median(theirs);
  printf("{\"atlas_prepared_launch_us\": %.2f, \"cuLaunchKernel_us\": %.2f, \"difference_us\": %.2f, \"rounds\": %d, \"calls\": %d}\n", launch,
         least, launch - least, ROUNDS, CALLS);
  atlas_prepared_close(prepared);
  atlas_device_close(device);
  return 0;
}
