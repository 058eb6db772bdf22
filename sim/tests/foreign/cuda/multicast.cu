// Two CTAs each fetch half of a tile for both by multicast; each says by a remote arrival that it has read its copy.

#include "hopper.cuh"

constexpr int ROWS = 16, COLUMNS = 32, THREADS = 64;

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS)
    multicast(const __grid_constant__ TensorMap map, float* out, int steps) {
    __shared__ alignas(128) float tile[ROWS * COLUMNS];
    __shared__ uint64_t full, empty;
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        barrier_init(&full, 1);
        // A thread of each CTA arrives.
        barrier_init(&empty, 2);
        fence_barrier_init();
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    float sum = 0;
    for (int t = 0; t < steps; ++t) {
        if (threadIdx.x == 0) {
            if (t > 0) barrier_wait(&empty, (t - 1) % 2);
            barrier_expect(&full, sizeof(tile));
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                         ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(
                             shared_address(tile + rank * ROWS / 2 * COLUMNS)),
                         "l"(&map), "r"(shared_address(&full)), "r"(0), "r"(t * ROWS + rank * ROWS / 2), "h"((short)3)
                         : "memory");
        }
        barrier_wait(&full, t % 2);
        // Each CTA sums its half of the columns.
        if (threadIdx.x < COLUMNS / 2)
            for (int r = 0; r < ROWS; ++r) sum += tile[r * COLUMNS + rank * COLUMNS / 2 + threadIdx.x];
        __syncthreads();
        if (threadIdx.x < 2)
            asm volatile(
                "{\n"
                ".reg .b32 remote;\n"
                "mapa.shared::cluster.u32 remote, %0, %1;\n"
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
                "}" ::"r"(shared_address(&empty)),
                "r"(threadIdx.x)
                : "memory");
    }
    if (threadIdx.x < COLUMNS / 2) out[rank * COLUMNS / 2 + threadIdx.x] = sum;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
