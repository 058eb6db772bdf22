// y = 2 x: one warp fills a ring by bulk copies, four warps empty it and send their results off by bulk copies.

#include "hopper.cuh"

constexpr int CHUNK = 256, STAGES = 3, CONSUMERS = 128;

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32) bulk_copy(const float* x, float* y, int chunks) {
    __shared__ alignas(128) float in[STAGES][CHUNK], out[2][CHUNK];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], CONSUMERS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    int turn = 0;
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS)
            for (int c = blockIdx.x; c < chunks; c += gridDim.x, ++turn) {
                int i = turn % STAGES;
                if (turn >= STAGES) barrier_wait(&empty[i], (turn / STAGES - 1) % 2);
                barrier_expect(&full[i], CHUNK * 4);
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                             ::"r"(shared_address(in[i])), "l"(x + (long long)c * CHUNK), "r"(CHUNK * 4),
                             "r"(shared_address(&full[i]))
                             : "memory");
            }
        return;
    }
    for (int c = blockIdx.x; c < chunks; c += gridDim.x, ++turn) {
        int i = turn % STAGES;
        if (threadIdx.x == 0) bulk_wait_read<1>();
        asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
        barrier_wait(&full[i], turn / STAGES % 2);
        for (int e = threadIdx.x; e < CHUNK; e += CONSUMERS) out[turn % 2][e] = 2 * in[i][e];
        barrier_arrive(&empty[i]);
        fence_proxy_async();
        asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + (long long)c * CHUNK),
                         "r"(shared_address(out[turn % 2])), "r"(CHUNK * 4)
                         : "memory");
            bulk_commit();
        }
    }
    if (threadIdx.x == 0) bulk_wait<0>();
}
