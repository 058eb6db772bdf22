/* Launches kernels from C on the CPU, in every way that the header offers, and makes mistakes. */
#include "arrays.h"

#include <math.h>
#include <pthread.h>

static DLTensor matrix(float *data, int64_t *shape, int64_t *strides) {
  DLTensor t = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  return t;
}

static AtlasArg tensor(const DLTensor *t) {
  AtlasArg arg = {ATLAS_ARG_TENSOR, 0, {.tensor = t}};
  return arg;
}

static AtlasArg real(double x) {
  AtlasArg arg = {ATLAS_ARG_FLOAT, 0, {.real = x}};
  return arg;
}

/* The sum of each row of a softmax is 1, and its order is that of the row. */
static void check_softmax(const float *x, const float *y, int n, int d) {
  for (int i = 0; i < n; i++) {
    double total = 0, below = 0;
    for (int j = 0; j < d; j++) below += exp((double)x[i * d + j]);
    for (int j = 0; j < d; j++) {
      double want = exp((double)x[i * d + j]) / below;
      CHECK(fabs(y[i * d + j] - want) < 1e-6);
      total += y[i * d + j];
    }
    CHECK(fabs(total - 1) < 1e-5);
  }
}

/* A message after the values of the thread are gone is empty, and no fault. */
static void at_the_end(void *device) {
  DLTensor none = matrix(NULL, NULL, NULL);
  AtlasArg arg = tensor(&none);
  CHECK(atlas_launch(device, NULL, "softmax", &arg, 1) == ATLAS_STATUS_ERROR);
  CHECK(strlen(atlas_last_error()) < 1000 && atlas_last_error_code() < 1000);
}

static void *in_a_thread_that_ends(void *device) {
  pthread_key_t key;
  CHECK(pthread_key_create(&key, at_the_end) == 0 && pthread_setspecific(key, device) == 0);
  CHECK(atlas_launch(device, NULL, "nothing", NULL, 0) == ATLAS_STATUS_ERROR);
  return NULL;
}

static void *in_a_thread(void *device) {
  enum { N = 5, D = 7 };
  float x[N * D], y[N * D];
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < N * D; i++) x[i] = (float)((i * 7 + round) % 11) / 4;
    int64_t shape[2] = {N, D};
    DLTensor tx = matrix(x, shape, NULL), ty = matrix(y, shape, NULL);
    AtlasArg args[2] = {tensor(&tx), tensor(&ty)};
    CHECK(atlas_launch(device, NULL, "softmax", args, 2) == ATLAS_STATUS_OK);
    check_softmax(x, y, N, D);
  }
  CHECK(atlas_last_error_code() == 0);
  return NULL;
}

int main(void) {
  CHECK(atlas_abi_version() == ATLAS_ABI_VERSION);
  CHECK(strlen(atlas_version()) >= 5);
  CHECK(atlas_last_error_code() == 0 && *atlas_last_error() == 0);

  /* Kernels by name. */
  size_t count = atlas_kernel_count();
  CHECK(count > 50 && atlas_kernel_name(count) == NULL);
  int found = 0;
  for (size_t i = 0; i < count; i++) {
    CHECK(i == 0 || strcmp(atlas_kernel_name(i - 1), atlas_kernel_name(i)) < 0);
    found += strcmp(atlas_kernel_name(i), "softmax") == 0;
  }
  CHECK(found == 1);
  const char *signature = NULL;
  CHECK(atlas_kernel_signature("softmax", &signature) == ATLAS_STATUS_OK);
  CHECK(strcmp(signature, "softmax<T: bf16 | f16 | f32>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)") == 0);
  fails(atlas_kernel_signature("soft_max", &signature), 696, "no kernel `soft_max`");

  /* Devices. */
  AtlasDevice *device = NULL;
  fails(atlas_device_open("gpu", &device), 696, "the devices are cpu, cuda:0");
  fails(atlas_device_open(NULL, &device), 696, "null");
  fails(atlas_device_open("cpu", NULL), 696, "null");
  CHECK(device == NULL);
  int somewhere = 0;
  device = (AtlasDevice *)&somewhere;
  fails(atlas_device_open("gpu", &device), 696, "no device `gpu`");
  CHECK(device == NULL);
  CHECK(atlas_device_open("cpu", &device) == ATLAS_STATUS_OK);

  /* A launch, of a row-major tensor and of one with strides and an offset. */
  enum { N = 3, D = 5 };
  float x[N * D], y[N * D];
  for (int i = 0; i < N * D; i++) x[i] = (float)((i * 5) % 7) / 3;
  int64_t shape[2] = {N, D};
  DLTensor tx = matrix(x, shape, NULL), ty = matrix(y, shape, NULL);
  AtlasArg args[2] = {tensor(&tx), tensor(&ty)};
  memset(y, 0, sizeof y);
  CHECK(atlas_launch(device, NULL, "softmax", args, 2) == ATLAS_STATUS_OK);
  check_softmax(x, y, N, D);

  float wide[1 + N * 2 * D];
  int64_t apart[2] = {2 * D, 1};
  for (int i = 0; i < 1 + N * 2 * D; i++) wide[i] = -100;
  DLTensor tw = matrix(wide, shape, apart);
  tw.byte_offset = sizeof(float);
  args[1] = tensor(&tw);
  CHECK(atlas_launch(device, NULL, "softmax", args, 2) == ATLAS_STATUS_OK);
  CHECK(wide[0] == -100);
  for (int i = 0; i < N; i++) {
    CHECK(memcmp(&wide[1 + i * 2 * D], &y[i * D], D * sizeof(float)) == 0);
    CHECK(wide[1 + i * 2 * D + D] == -100);
  }

  /* Numbers, and a launch that is prepared. */
  float w[D] = {1, 1, 2, 1, 1};
  int64_t one[1] = {D};
  DLTensor weights = {w, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, one, NULL, 0};
  AtlasArg norm[4] = {tensor(&tx), tensor(&weights), tensor(&ty), real(1e-6)};
  AtlasPrepared *prepared = NULL;
  memset(y, 0, sizeof y);
  CHECK(atlas_kernel_signature("rms_norm", &signature) == ATLAS_STATUS_OK);
  CHECK(atlas_prepare(device, "rms_norm", norm, 4, &prepared) == ATLAS_STATUS_OK);
  CHECK(y[0] == 0 && y[1] == 0);
  CHECK(atlas_prepared_launch(prepared, NULL, norm, 4) == ATLAS_STATUS_OK);
  double squares = 0;
  for (int j = 0; j < D; j++) squares += x[j] * x[j];
  for (int j = 0; j < D; j++) CHECK(fabs(y[j] - w[j] * x[j] / sqrt(squares / D + 1e-6)) < 1e-5);

  /* A whole number where a float is wanted. */
  AtlasArg whole = {ATLAS_ARG_INT, 0, {.whole = 1}};
  AtlasArg by_one[4] = {norm[0], norm[1], norm[2], whole};
  CHECK(atlas_launch(device, NULL, "rms_norm", by_one, 4) == ATLAS_STATUS_OK);
  CHECK(fabs(y[1] - w[1] * x[1] / sqrt(squares / D + 1)) < 1e-5);

  /* A stream: on the CPU only a name. */
  AtlasStream *stream = NULL;
  CHECK(atlas_stream_open(device, NULL, &stream) == ATLAS_STATUS_OK);
  CHECK(atlas_prepared_launch(prepared, stream, norm, 4) == ATLAS_STATUS_OK);
  CHECK(atlas_device_synchronize(device) == ATLAS_STATUS_OK);

  /* Mistakes: nothing is written. */
  args[1] = tensor(&ty);
  memset(y, 0, sizeof y);
  fails(atlas_launch(device, stream, "softmax", args, 1), 601, "softmax");
  fails(atlas_launch(device, stream, "softmax", NULL, 2), 696, "null");
  fails(atlas_launch(NULL, stream, "softmax", args, 2), 696, "device is null");
  fails(atlas_launch(device, stream, NULL, args, 2), 696, "null");
  DLTensor bad = ty;
  int64_t other[2] = {N, D + 1};
  AtlasArg with[2] = {tensor(&tx), tensor(&bad)};
  bad.shape = other;
  fails(atlas_launch(device, stream, "softmax", with, 2), 604, "`D`");
  bad = ty, bad.dtype.bits = 8;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "`y` has elements of code 2, 8 bits");
  bad = ty, bad.dtype.lanes = 2;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "2 lanes");
  bad = ty, bad.device.device_type = 2;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "`y` is on cuda:0, but the launch is on cpu");
  bad = ty, bad.ndim = -1;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "-1 axes");
  bad = ty, bad.shape = NULL;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "shape is null");
  int64_t negative[2] = {-N, D};
  bad = ty, bad.shape = negative;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "size -3");
  int64_t backwards[2] = {-D, 1};
  bad = ty, bad.strides = backwards;
  fails(atlas_launch(device, stream, "softmax", with, 2), 653, "argument `y`");
  bad = ty, bad.byte_offset = 2;
  fails(atlas_launch(device, stream, "softmax", with, 2), 654, "argument `y`");
  bad = tx;
  fails(atlas_launch(device, stream, "softmax", with, 2), 609, "`y`");
  bad = ty, bad.data = NULL, bad.byte_offset = 64;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "data is null");
  bad = ty, with[1].reserved = 77;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "`reserved` of argument 1");
  with[1].reserved = 0;
  with[1].value.tensor = NULL;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "argument 1 of `softmax`");
  with[1].kind = 9;
  fails(atlas_launch(device, stream, "softmax", with, 2), 696, "kind 9");
  with[1] = real(1);
  fails(atlas_launch(device, stream, "softmax", with, 2), 602, "`y`");
  fails(atlas_prepared_launch(prepared, stream, args, 2), 615, "rms_norm");
  fails(atlas_device_add_bundle(device, (const uint8_t *)"no bundle", 9), 650, "bundle");
  for (int i = 0; i < N * D; i++) CHECK(y[i] == 0);

  /* No elements: an address is not needed. */
  int64_t none[2] = {0, D};
  DLTensor empty = matrix(NULL, none, NULL);
  AtlasArg nothing[2] = {tensor(&empty), tensor(&empty)};
  CHECK(atlas_launch(device, stream, "softmax", nothing, 2) == ATLAS_STATUS_OK);

  /* Two threads share a device. A message belongs to its thread. */
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, in_a_thread, device) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);

  CHECK(pthread_create(&threads[0], NULL, in_a_thread_that_ends, device) == 0 && pthread_join(threads[0], NULL) == 0);

  atlas_stream_close(stream);
  atlas_prepared_close(prepared);
  atlas_device_close(device);
  atlas_stream_close(NULL);
  atlas_prepared_close(NULL);
  atlas_device_close(NULL);
  puts("all right");
  return 0;
}
