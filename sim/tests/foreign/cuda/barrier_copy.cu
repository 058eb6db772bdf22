// Doubles a vector through shared memory with the library's barrier and asynchronous copies.

#include <cuda/barrier>

constexpr int CHUNK = 128;

extern "C" __global__ void __launch_bounds__(CHUNK) barrier_copy(const int* x, int* y, int chunks) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    __shared__ alignas(16) int buffer[CHUNK];
    if (threadIdx.x == 0) init(&bar, CHUNK);
    __syncthreads();
    for (int c = 0; c < chunks; ++c) {
        cuda::memcpy_async(buffer + threadIdx.x, x + c * CHUNK + threadIdx.x, cuda::aligned_size_t<4>(4), bar);
        bar.arrive_and_wait();
        y[c * CHUNK + threadIdx.x] = 2 * buffer[CHUNK - 1 - threadIdx.x];
        bar.arrive_and_wait();
    }
}
