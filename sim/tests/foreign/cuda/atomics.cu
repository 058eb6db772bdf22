// Atomics of every kind on global memory, and a lock that the lanes of a warp fight for.

extern "C" __global__ void atomics(const int* x, int* ints, unsigned long long* longs, float* floats, double* doubles,
                                   int* lock, int* guarded, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    atomicMin(&ints[0], v);
    atomicMax(&ints[1], v);
    atomicAnd(&ints[2], v);
    atomicOr(&ints[3], v);
    atomicXor(&ints[4], v);
    atomicSub(&ints[5], v);
    atomicMax((unsigned*)&ints[6], (unsigned)v);
    atomicAdd(&longs[0], (unsigned long long)v);
    atomicMax(&longs[1], (unsigned long long)(unsigned)v << 20);
    atomicAdd(&floats[0], 0.25f);
    atomicAdd(&doubles[0], 0.5);
    // Saturating addition by compare and swap.
    int old = *(volatile int*)&ints[7], seen;
    do {
        seen = old;
        old = atomicCAS(&ints[7], seen, min(seen + 1, 50));
    } while (old != seen);
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            guarded[0] = guarded[0] * 3 % 1009 + 1;
            guarded[1] += v & 15;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
