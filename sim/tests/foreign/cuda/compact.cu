// Keeps the elements that are multiples of seven: ballot, population count, one atomic a warp; labels by match.

extern "C" __global__ void compact(const unsigned* in, unsigned* out, unsigned* kept, unsigned* classes, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned v = i < n ? in[i] : 1;
    unsigned mask = __ballot_sync(~0u, v % 7 == 0);
    unsigned base = 0;
    if (mask) {
        int leader = __ffs(mask) - 1;
        if (lane == leader) base = atomicAdd(kept, __popc(mask));
        base = __shfl_sync(~0u, base, leader);
        if (mask >> lane & 1) out[base + __popc(mask & ((1u << lane) - 1))] = v;
    }
    unsigned same = __match_any_sync(~0u, v & 3);
    unsigned widest = __reduce_max_sync(~0u, __popc(same));
    if (i < n) classes[i] = widest << 16 | __popc(same) << 8 | (__clz(v | 1) & 0xff);
}
