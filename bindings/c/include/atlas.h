/* Atlas: kernels by name, on tensors of DLPack and on any CUDA stream.
 *
 * If a program has a header of DLPack of its own, include that first.
 *
 * Link with libatlas_c.so, or with libatlas_c.a and -lm. No CUDA toolkit is needed: the driver is opened when a GPU is.
 *
 * Every call that can fail returns an AtlasStatus, and leaves a message for `atlas_last_error` in the calling thread. Calls
 * may come from any thread with a stack of at least 256 KiB. Memory that the library itself lacks ends the process.
 *
 * Made from the crate atlas-gpu-c by cbindgen. Do not change it here. */


#ifndef ATLAS_H
#define ATLAS_H

#include <stddef.h>
#include <stdint.h>

// DLPack's own header where there is one, else the structs that this interface takes from it.
#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAManaged = 13 };
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 };
// `device_type` is kDLCPU, kDLCUDA or kDLCUDAManaged.
typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;
// `code` is kDLInt, kDLUInt, kDLFloat, kDLBfloat, kDLFloat8_e4m3fn or kDLFloat8_e5m2. `lanes` is 1.
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
// `strides`, in elements, is null for a row-major tensor without gaps.
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
#endif


// The version of this interface. A library serves programs that were compiled for the same version.
#define ATLAS_ABI_VERSION 1

// `AtlasArg::kind` of a tensor. Whether a kernel reads or writes it is up to the kernel.
#define ATLAS_ARG_TENSOR 0

// `AtlasArg::kind` of a number, for parameters of floats. It is rounded to the parameter's type, and refused if that has no
// number near it.
#define ATLAS_ARG_FLOAT 1

// `AtlasArg::kind` of a whole number, for parameters of integers, and for those of floats if f64 has it.
#define ATLAS_ARG_INT 2

// The result of a call.
typedef enum {
  // It did what it says.
  ATLAS_STATUS_OK = 0,
  // It did nothing. `atlas_last_error` says why, and what to do about it.
  ATLAS_STATUS_ERROR = 1,
  // It stopped at a fault of the library itself. `atlas_last_error` has the details for a report.
  ATLAS_STATUS_PANIC = 2,
} AtlasStatus;

// A device. Threads may share one.
typedef struct AtlasDevice AtlasDevice;

// The workspace of an Omega rule on packed documents. It serves one launch at a time: calls from several threads follow each other, but
// launches on several streams race unless the caller orders them.
typedef struct AtlasOmegaPacked AtlasOmegaPacked;

// An Omega rule on a sequence that comes in pieces of any lengths. It keeps the tokens of the chunk that is not full yet and those that
// windows reach; the memory is the caller's. It serves one push at a time: calls from several threads follow each other.
typedef struct AtlasOmegaStream AtlasOmegaStream;

// The workspace of forward and backward passes of an Omega rule over sequences of one length. All layers of such sizes may share one. It
// serves one pass at a time: calls from several threads follow each other, but passes on several streams race unless the caller
// orders them.
typedef struct AtlasOmegaTraining AtlasOmegaTraining;

// A kernel that is ready for one problem: sizes, strides, types and alignments of its arguments.
typedef struct AtlasPrepared AtlasPrepared;

// A chain that is ready for one problem: sizes, strides, types and alignments of its arguments.
typedef struct AtlasPreparedChain AtlasPreparedChain;

// A queue of launches on one device: a CUDA stream of the caller. Threads may share one.
typedef struct AtlasStream AtlasStream;

// A chain and the tensors that its kernels pass to each other, for arguments of some sizes. It serves one run at a time: calls from
// several threads follow each other, but launches on several streams race unless the caller orders them.
typedef struct AtlasWorkspace AtlasWorkspace;

// The value of an argument.
typedef union {
  // For `ATLAS_ARG_TENSOR`.
  const DLTensor *tensor;
  // For `ATLAS_ARG_FLOAT`.
  double real;
  // For `ATLAS_ARG_INT`.
  int64_t whole;
} AtlasValue;

// One argument of a launch.
typedef struct {
  // One of `ATLAS_ARG_TENSOR`, `ATLAS_ARG_FLOAT` and `ATLAS_ARG_INT`.
  uint32_t kind;
  // 0.
  uint32_t reserved;
  // Its value.
  AtlasValue value;
} AtlasArg;

// The size of a dim, by its name.
typedef struct {
  // The name of the dim, such as `L`.
  const char *name;
  // How large it is.
  size_t size;
} AtlasSize;

// An Omega rule, as far as the choice of its chain depends on it.
typedef struct {
  // What the memory computes: `linear`, `mlp`, `gated` or `normed`.
  const char *memory;
  // How it steps: `descent`, `muon_by_token` or `muon_by_chunk`.
  const char *step;
  // Tokens of a chunk.
  size_t chunk;
  // Tokens of a window, the token itself among them.
  size_t window;
  // Elements of a key.
  size_t key;
  // Elements of a value.
  size_t value;
  // Hidden elements of the memory; 0 for a linear one.
  size_t hidden;
  // The element type of keys and values.
  DLDataType dtype;
} AtlasOmega;

// An Omega rule in full, and the sizes that it runs on. Memories and their matrices are those of `omega_linear`, `omega_mlp`,
// `omega_gated` and `omega_normed`: weights and then momenta, `[B, H, .., ..]` in f32.
typedef struct {
  // The memory, its step, chunks and windows, and the sizes of its rows.
  AtlasOmega of;
  // What the memory is trained for: `square`, `half_square`, `mean_square`, `dot`, or `scaled`, which is `scale` times half a square.
  const char *loss;
  // The factor of the loss `scaled`; not used by others.
  float scale;
  // What the norm inside a memory `normed` adds to a variance; not used by others.
  float eps;
  // 0 if a token reads the memory after its own step; 1 if before.
  uint32_t before;
  // 0.
  uint32_t reserved;
  // Sequences that are read at once: the `B` of tokens and memories. Of packed documents, how many there are.
  size_t sequences;
  // Heads: `H`.
  size_t heads;
  // Of a training the tokens of a sequence; of a stream the longest piece that is computed at once; of packed documents the tokens
  // of the longest one.
  size_t tokens;
} AtlasOmegaRule;

// Tokens of an Omega rule: `T` of them in each of `B` sequences, with `H` heads. Queries, keys, values and residuals have the element type
// of the rule. Gates and weights in the window are f32.
typedef struct {
  // Queries `[B, T, H, D]`.
  const DLTensor *q;
  // Keys `[B, T, H, D]`.
  const DLTensor *k;
  // Values `[B, T, H, E]`.
  const DLTensor *v;
  // Residuals of queries `[B, T, H, E]`; null for zeros.
  const DLTensor *rq;
  // Residuals of keys `[B, T, H, E]`; null for zeros.
  const DLTensor *rk;
  // What is kept of the memory `[B, T, H]`.
  const DLTensor *alpha;
  // What is kept of the momentum `[B, T, H]`.
  const DLTensor *theta;
  // Steps `[B, T, H]`.
  const DLTensor *eta;
  // Weights in the window `[B, T, H, W]`, the oldest token first.
  const DLTensor *gamma;
} AtlasOmegaTokens;

// Room for gradients, all f32. One that is null is not given out. Those with `P` tokens have room for whole chunks: `P` is `T`, rounded
// up to a multiple of the chunk, and what stands behind the first `T` tokens then means nothing.
typedef struct {
  // By queries `[B, P, H, D]`.
  const DLTensor *q;
  // By keys `[B, T, H, D]`.
  const DLTensor *k;
  // By values `[B, T, H, E]`.
  const DLTensor *v;
  // By residuals of keys `[B, T, H, E]`. Those by residuals of queries are the gradients of what is read.
  const DLTensor *rk;
  // By the gates that keep the memory `[B, P, H]`.
  const DLTensor *alpha;
  // By the gates that keep the momentum `[B, P, H]`.
  const DLTensor *theta;
  // By steps `[B, P, H]`.
  const DLTensor *eta;
  // By weights in the window `[B, P, H, W]`.
  const DLTensor *gamma;
  // By the weight of the norm inside the memory `[H, E]`.
  const DLTensor *norm;
  // By the memory before the first token, weights and then momenta; null, or as many as the memory has.
  const DLTensor *const *memory;
  // How many these are; 0 if `memory` is null.
  size_t memory_count;
} AtlasOmegaGradients;

// One step of an iteration: `X <- (a + b X X^T + c (X X^T)^2) X`. The product is taken about `centre`, which changes nothing but the
// rounding: the mean eigenvalue of `X X^T` before the step is a good one, and 0 an allowed one.
typedef struct {
  // The coefficient of `X`.
  double a;
  // The coefficient of `X X^T X`.
  double b;
  // The coefficient of `(X X^T)^2 X`.
  double c;
  // The number that the product is taken about.
  double centre;
} AtlasIterationStep;

// An iteration, which begins with `X = g / (stretch |g| + eps)`, or with `X = g / max(stretch |g|, eps)`.
typedef struct {
  // Its steps.
  const AtlasIterationStep *steps;
  // How many they are.
  size_t step_count;
  // What the norm is multiplied by.
  float stretch;
  // What keeps it away from 0.
  float eps;
  // 0 if `eps` is added to the norm; 1 if the norm is at least that, as by `torch.optim.Muon`.
  uint32_t eps_is_least;
  // 0 for the plain form; else the iteration goes on with `X X^T`, which is faster for matrices that are four times as long as wide,
  // and starts again after so many steps.
  uint32_t restart;
} AtlasIteration;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this interface that the library has, to compare with `ATLAS_ABI_VERSION`.
uint32_t atlas_abi_version(void);

// The version of Atlas, such as `0.1.0`.
const char *atlas_version(void);

// The message of the thread's last failed call, with what to do about it; empty before the first one. Valid until the
// next failure in this thread.
const char *atlas_last_error(void);

// The number of the kind of mistake of the thread's last failed call: 611 for `ATL611`. The book explains each. 0
// before the first one.
uint32_t atlas_last_error_code(void);

// The number of kernels in the library.
size_t atlas_kernel_count(void);

// The name of a kernel, by its number from 0, in alphabetical order; null beyond the last one. It stays valid.
const char *atlas_kernel_name(size_t number);

// Gives the signature of a kernel, in the order of the arguments of a launch, such as
// `softmax<T: bf16 | f16 | f32>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)`. It stays valid.
//
// # Safety
// `name` is a string that ends with a zero byte; `signature` is a place for a pointer.
AtlasStatus atlas_kernel_signature(const char *name, const char **signature);

// Opens a device: `cpu`, `cuda:0` and so on, or `best`, which is the first GPU that Atlas supports, else the CPU. Opening a
// GPU uses its primary context, which is that of CUDA's runtime, PyTorch and cudarc. If it fails, `*device` is null.
//
// # Safety
// `name` is a string that ends with a zero byte; `device` is a place for a pointer.
AtlasStatus atlas_device_open(const char *name,
                              AtlasDevice **device);

// Closes a device. What was made from it stays valid. Null is ignored.
//
// # Safety
// The device came from `atlas_device_open`, and is not used again.
void atlas_device_close(AtlasDevice *device);

// Adds a bundle of compiled kernels, as `atlas bundle` writes it, to all uses of this device in the process. The bytes are
// copied.
//
// # Safety
// The device is open; `bytes` has `len` bytes.
AtlasStatus atlas_device_add_bundle(const AtlasDevice *device,
                                    const uint8_t *bytes,
                                    size_t len);

// Names a bundle for all GPUs that the process opens from now on, such as one that stands beside the library. They search it after
// all other bundles, those too that `atlas_device_add_bundle` adds later. The file is read when the first of them is opened, and
// never for the CPU. If it cannot be read then, launches that find no kernel say so.
//
// # Safety
// `path` is a string that ends with a zero byte.
AtlasStatus atlas_bundle_for_gpus(const char *path);

// Waits until everything queued on the device has run. Reports a fault of an earlier launch.
//
// # Safety
// The device is open.
AtlasStatus atlas_device_synchronize(const AtlasDevice *device);

// Wraps a CUDA stream: a `CUstream`, which is a `cudaStream_t`. Null is CUDA's legacy default stream, and on the CPU the only
// choice. Keep the result for many launches, because it owns what they need besides their arguments. If it fails, `*stream` is null.
//
// # Safety
// The device is open; `cuda_stream` is a stream of the device's primary context and lives as long as the result; `stream`
// is a place for a pointer.
AtlasStatus atlas_stream_open(const AtlasDevice *device,
                              void *cuda_stream,
                              AtlasStream **stream);

// Closes a stream of `atlas_stream_open`, but not the CUDA stream. Launches that are queued still run. Null is ignored.
//
// # Safety
// The stream came from `atlas_stream_open`, and is not used again; its CUDA stream is alive.
void atlas_stream_close(AtlasStream *stream);

// Launches a kernel: on a stream of `atlas_stream_open`, or on the device's default stream if that is null. On a GPU it is
// queued, and on the CPU done, when this returns.
//
// If the arguments do not fit the kernel, nothing is written. A CUDA graph may record the launch if `atlas_prepare` was called
// for such arguments, and what it gave lives as long as the graph.
//
// # Safety
// Device and stream are open. `kernel` is a string that ends with a zero byte. `args` has `count` arguments. Tensors are
// as DLPack says: their memory, from the first element to the last, is allocated until the launch has run, and no other work that is
// not ordered with the stream writes what the kernel reads, or touches what it writes.
AtlasStatus atlas_launch(const AtlasDevice *device,
                         const AtlasStream *stream,
                         const char *kernel,
                         const AtlasArg *args,
                         size_t count);

// Makes a kernel ready for arguments such as these: chooses its config and loads its code. Nothing runs. If it fails,
// `*prepared` is null.
//
// # Safety
// As `atlas_launch`; `prepared` is a place for a pointer.
AtlasStatus atlas_prepare(const AtlasDevice *device,
                          const char *kernel,
                          const AtlasArg *args,
                          size_t count,
                          AtlasPrepared **prepared);

// Launches a prepared kernel with arguments of the same sizes, strides, types and alignments: on a stream of `atlas_stream_open`,
// or on the device's default stream if that is null.
//
// # Safety
// As `atlas_launch`; `prepared` came from `atlas_prepare`.
AtlasStatus atlas_prepared_launch(const AtlasPrepared *prepared,
                                  const AtlasStream *stream,
                                  const AtlasArg *args,
                                  size_t count);

// Closes a prepared launch. Launches that are queued still run. Null is ignored.
//
// # Safety
// It came from `atlas_prepare`, and is not used again, nor is a CUDA graph that recorded its launches.
void atlas_prepared_close(AtlasPrepared *prepared);

// The number of chains in the library: kernels that run one after the other, and pass tensors to each other in a workspace.
size_t atlas_chain_count(void);

// The name of a chain, by its number from 0, in alphabetical order; null beyond the last one. It stays valid.
const char *atlas_chain_name(size_t number);

// Gives the signature of a chain, in the order of the arguments of a launch and, behind a semicolon, the dims whose sizes
// `atlas_chain_workspace` is given: `attention_decode<..>(q: &Tensor<T, [S, J, R, D]>, .., scale: f32; X)`. It stays valid.
//
// # Safety
// `name` is a string that ends with a zero byte; `signature` is a place for a pointer.
AtlasStatus atlas_chain_signature(const char *name,
                                  const char **signature);

// Allocates the workspace of a chain, for launches with such arguments. Nothing runs, and elements are neither read nor written.
// `sizes` has those dims that stand behind the semicolon of the chain's signature. Memory is allocated on the device's default
// stream, and there when this returns. If it fails, `*workspace` is null.
//
// # Safety
// As `atlas_launch`. `sizes` has `size_count` sizes, whose names end with a zero byte; `workspace` is a place for a pointer.
AtlasStatus atlas_chain_workspace(const AtlasDevice *device,
                                  const char *chain,
                                  const AtlasArg *args,
                                  size_t count,
                                  const AtlasSize *sizes,
                                  size_t size_count,
                                  AtlasWorkspace **workspace);

// The bytes that a workspace takes on its device; 0 for null.
//
// # Safety
// It came from `atlas_chain_workspace`, and is not closed.
uint64_t atlas_workspace_bytes(const AtlasWorkspace *workspace);

// Closes a workspace. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run before.
// Null is ignored.
//
// # Safety
// It came from `atlas_chain_workspace`, and is not used again, nor is a CUDA graph that recorded its launches.
void atlas_workspace_close(AtlasWorkspace *workspace);

// Launches the kernels of a chain one after the other: on a stream of `atlas_stream_open`, or on the device's default stream if that is
// null. All arguments are checked, and all kernels are loaded, before the first one runs: if something does not fit, nothing is
// written.
//
// # Safety
// As `atlas_launch`; the workspace is open, and no other work that uses it runs at the same time.
AtlasStatus atlas_chain_launch(const AtlasWorkspace *workspace,
                               const AtlasStream *stream,
                               const AtlasArg *args,
                               size_t count);

// Makes a chain ready for arguments such as these: chooses the config of each kernel and loads its code. Nothing runs. A CUDA graph may
// record launches of the result, and both the result and the workspace live as long as the graph. If it fails, `*prepared` is null.
//
// # Safety
// As `atlas_chain_launch`; `prepared` is a place for a pointer.
AtlasStatus atlas_chain_prepare(const AtlasWorkspace *workspace,
                                const AtlasArg *args,
                                size_t count,
                                AtlasPreparedChain **prepared);

// Launches a prepared chain with arguments of the same sizes, strides, types and alignments, and with a workspace for them.
//
// # Safety
// As `atlas_chain_launch`; `prepared` came from `atlas_chain_prepare`.
AtlasStatus atlas_prepared_chain_launch(const AtlasPreparedChain *prepared,
                                        const AtlasWorkspace *workspace,
                                        const AtlasStream *stream,
                                        const AtlasArg *args,
                                        size_t count);

// Closes a prepared chain. Launches that are queued still run. Null is ignored.
//
// # Safety
// It came from `atlas_chain_prepare`, and is not used again, nor is a CUDA graph that recorded its launches.
void atlas_prepared_chain_close(AtlasPreparedChain *prepared);

// Gives the name of the chain that computes a rule, and how many keys a chunk sees, which is the size `K` of its workspace. The name
// stays valid.
//
// # Safety
// `rule` points to a rule whose strings end with a zero byte; `chain` and `keys` are places for a pointer and a number.
AtlasStatus atlas_omega_chain(const AtlasOmega *rule,
                              const char **chain,
                              size_t *keys);

// Makes the training of a rule. `segment` chunks are gone back over at once: a forward pass keeps the state before each such
// segment, and the backward pass computes the states inside of it again. 0 stands for about the square root of all chunks. Memory
// is allocated on the device's default stream, and there when this returns. A rule without gradients is refused (ATL651): one with a step
// for each token, or with a step for each chunk that is read after it. If it fails, `*training` is null.
//
// # Safety
// The device is open. `rule` points to a rule whose strings end with a zero byte; `training` is a place for a pointer.
AtlasStatus atlas_omega_training_open(const AtlasDevice *device,
                                      const AtlasOmegaRule *rule,
                                      size_t segment,
                                      AtlasOmegaTraining **training);

// How many segments a training has, which is the size `S` of what a forward pass keeps; 0 for null.
//
// # Safety
// It came from `atlas_omega_training_open`, and is not closed.
size_t atlas_omega_training_segments(const AtlasOmegaTraining *training);

// The bytes of a training's workspace on its device; 0 for null.
//
// # Safety
// It came from `atlas_omega_training_open`, and is not closed.
uint64_t atlas_omega_training_bytes(const AtlasOmegaTraining *training);

// Reads and trains the memory on all tokens, and writes what is read to `y`, `[B, T, H, E]`: on a stream of `atlas_stream_open`, or on
// the device's default stream if that is null. `memory` has the weights and then the momenta, which go on. `norm`, `[H, E]` in the
// element type of tokens, is the weight of the norm inside a memory that has one, and null for others. `kept` has a tensor for each of the
// memory, `[S, B, H, .., ..]` in f32 without gaps, for `atlas_omega_training_backward`; what stands in them does not matter.
//
// If something does not fit, nothing is written.
//
// # Safety
// As `atlas_launch`. `memory` and `kept` have as many tensors as is said; no other pass with the training runs at the same time.
AtlasStatus atlas_omega_training_forward(const AtlasOmegaTraining *training,
                                         const AtlasStream *stream,
                                         const AtlasOmegaTokens *tokens,
                                         const DLTensor *norm,
                                         const DLTensor *const *memory,
                                         size_t memory_count,
                                         const DLTensor *y,
                                         const DLTensor *const *kept,
                                         size_t kept_count);

// From the gradients `dy` by what was read, `[B, T, H, E]` in the element type of tokens, and those by the memory after the last
// token, f32, to the gradients by everything that the forward pass took. `tokens` and `norm` are those of that pass, and `kept` is what
// it kept. `final_memory` has a tensor for each of the memory; null with a count of 0 stands for zeros.
//
// If something does not fit, nothing is written.
//
// # Safety
// As `atlas_omega_training_forward`; `gradients` points to gradients.
AtlasStatus atlas_omega_training_backward(const AtlasOmegaTraining *training,
                                          const AtlasStream *stream,
                                          const AtlasOmegaTokens *tokens,
                                          const DLTensor *norm,
                                          const DLTensor *const *kept,
                                          size_t kept_count,
                                          const DLTensor *dy,
                                          const DLTensor *const *final_memory,
                                          size_t final_count,
                                          const AtlasOmegaGradients *gradients);

// Closes a training. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run before. Null
// is ignored.
//
// # Safety
// It came from `atlas_omega_training_open`, and is not used again, nor is a CUDA graph that recorded its passes.
void atlas_omega_training_close(AtlasOmegaTraining *training);

// Makes a stream at the start of a sequence. `norm`, `[H, E]` in the element type of tokens, is the weight of the norm inside a
// memory that has one, and null for others. Memory is allocated on the device's default stream, and there when this returns. A rule
// that would read what later tokens have taught is refused (ATL652). If it fails, `*stream` is null.
//
// # Safety
// The device is open. `rule` points to a rule whose strings end with a zero byte. `norm` is null or a tensor whose memory lives as long
// as the result, and is as `atlas_launch` says at each push. `stream` is a place for a pointer.
AtlasStatus atlas_omega_stream_open(const AtlasDevice *device,
                                    const AtlasOmegaRule *rule,
                                    const DLTensor *norm,
                                    AtlasOmegaStream **stream);

// Reads and trains the memory on the tokens that come next, and writes what is read to `y`, `[B, T, H, E]`: on a stream of
// `atlas_stream_open`, or on the device's default stream if that is null. `memory` has the weights and then the momenta, `[B, H, .., ..]`,
// which go on: behind a push they stand behind the last chunk that is full. The first push with a memory of some sizes allocates, waits
// for the stream, and runs on the default stream. No CUDA graph should record a push: a replay would not go on in the sequence.
//
// If something does not fit, nothing is written, and the stream stays where it is.
//
// # Safety
// As `atlas_launch`. `memory` has `memory_count` tensors; pushes on several streams are ordered by the caller.
AtlasStatus atlas_omega_stream_push(const AtlasOmegaStream *stream,
                                    const AtlasStream *on,
                                    const AtlasOmegaTokens *tokens,
                                    const DLTensor *const *memory,
                                    size_t memory_count,
                                    const DLTensor *y);

// Forgets the tokens so far: what comes next is the start of a sequence. The memory is the caller's to reset. Null is ignored.
//
// # Safety
// It came from `atlas_omega_stream_open`, and is not closed.
void atlas_omega_stream_restart(const AtlasOmegaStream *stream);

// The bytes that a stream holds on its device, the memory left out; 0 for null.
//
// # Safety
// It came from `atlas_omega_stream_open`, and is not closed.
uint64_t atlas_omega_stream_bytes(const AtlasOmegaStream *stream);

// Closes a stream. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run before. Null
// is ignored.
//
// # Safety
// It came from `atlas_omega_stream_open`, and is not used again.
void atlas_omega_stream_close(AtlasOmegaStream *stream);

// Makes room for `sequences` documents of at most `tokens` tokens each. `norm`, `[H, E]` in the element type of tokens, is the weight
// of the norm inside a memory that has one, and null for others. Memory is allocated on the device's default stream, and there when
// this returns. A rule that would read what later tokens have taught is refused (ATL652). If it fails, `*packed` is null.
//
// # Safety
// The device is open. `rule` points to a rule whose strings end with a zero byte. `norm` is null or a tensor whose memory lives as long
// as the result, and is as `atlas_launch` says at each launch. `packed` is a place for a pointer.
AtlasStatus atlas_omega_packed_open(const AtlasDevice *device,
                                    const AtlasOmegaRule *rule,
                                    const DLTensor *norm,
                                    AtlasOmegaPacked **packed);

// Reads and trains a memory on each document, and writes what is read to `y`: on a stream of `atlas_stream_open`, or on the device's default
// stream if that is null. `tokens` and `y` are of one sequence, `[1, P, ..]`, with the documents one after the other. `starts`,
// `[B + 1]` in i32, ascends: document `b` has the tokens from `starts[b]` to before `starts[b + 1]`, and may have none. `memory` has
// the weights and then the momenta, `[B, H, .., ..]`: one for each document. What is read of tokens in no document is 0. Of a document that
// is longer than there is room for, the memory is trained on the first tokens, and what is read of the others is NaN.
//
// The first launch with a memory of some sizes allocates, waits for the stream, and runs on the default stream. If something does not
// fit, nothing is written.
//
// # Safety
// As `atlas_launch`. `memory` has `memory_count` tensors; no other launch with it runs at the same time.
AtlasStatus atlas_omega_packed_launch(const AtlasOmegaPacked *packed,
                                      const AtlasStream *stream,
                                      const AtlasOmegaTokens *tokens,
                                      const DLTensor *starts,
                                      const DLTensor *const *memory,
                                      size_t memory_count,
                                      const DLTensor *y);

// The bytes that it holds on its device; 0 for null.
//
// # Safety
// It came from `atlas_omega_packed_open`, and is not closed.
uint64_t atlas_omega_packed_bytes(const AtlasOmegaPacked *packed);

// Closes the room for documents. Its memory is freed when the default stream comes to it, so work on other streams that uses it has run
// before. Null is ignored.
//
// # Safety
// It came from `atlas_omega_packed_open`, and is not used again, nor is a CUDA graph that recorded its launches.
void atlas_omega_packed_close(AtlasOmegaPacked *packed);

// Writes the iteration of each matrix of `g` to `out`, both `[B, M, N]`, on a stream of `atlas_stream_open`, or on the device's default
// stream if that is null. What it needs besides is allocated and freed in the order of the stream. The iteration has the element type
// of `out`. If something does not fit, nothing is written.
//
// # Safety
// As `atlas_launch`; `iteration` has as many steps as it says.
AtlasStatus atlas_newton_schulz(const AtlasDevice *device,
                                const AtlasStream *stream,
                                const DLTensor *g,
                                const DLTensor *out,
                                const AtlasIteration *iteration);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ATLAS_H */
