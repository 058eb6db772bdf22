// Every CTA adds its row to a common one by a bulk reduction of f32.

#include "hopper.cuh"

constexpr int COLUMNS = 64;

extern "C" __global__ void __launch_bounds__(COLUMNS) bulk_reduce(const float* x, float* sums) {
    __shared__ alignas(16) float row[COLUMNS];
    row[threadIdx.x] = x[blockIdx.x * COLUMNS + threadIdx.x] * 0.5f;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(sums),
                     "r"(shared_address(row)), "r"(COLUMNS * 4)
                     : "memory");
        bulk_commit();
        bulk_wait<0>();
    }
}
