// Column sums by a cluster of four: each CTA sums its rows, and all read the others' shared memory.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int COLUMNS = 128, CTAS = 4;

extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(COLUMNS)
    cluster_reduce(const float* x, float* sums, int rows) {
    __shared__ float part[COLUMNS];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank();
    const float* matrix = x + (long long)(blockIdx.x / CTAS) * rows * COLUMNS;
    float sum = 0;
    for (int r = rank; r < rows; r += CTAS) sum += matrix[r * COLUMNS + threadIdx.x];
    part[threadIdx.x] = sum;
    cluster.sync();
    if (threadIdx.x < COLUMNS / CTAS) {
        int column = rank * (COLUMNS / CTAS) + threadIdx.x;
        float total = 0;
        for (int i = 0; i < CTAS; ++i) total += cluster.map_shared_rank(part, i)[column];
        sums[(blockIdx.x / CTAS) * COLUMNS + column] = total;
    }
    // Nobody leaves while others may read.
    cluster.sync();
}
