// Keeps positive numbers with one atomic for each group of lanes that happen to run together.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void coalesced(const int* in, int* out, int* kept, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) {
        cg::coalesced_group group = cg::coalesced_threads();
        int base = 0;
        if (group.thread_rank() == 0) base = atomicAdd(kept, group.size());
        out[group.shfl(base, 0) + group.thread_rank()] = in[i];
    }
}
