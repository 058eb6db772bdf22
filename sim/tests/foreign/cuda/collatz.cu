// Steps of the Collatz sequence: every lane leaves its loop at another time; 64-bit arithmetic, find-first-set.

extern "C" __global__ void collatz(const unsigned long long* start, unsigned* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = start[i];
    unsigned count = 0;
    while (v > 1) {
        if (v & 1) {
            v = 3 * v + 1;
            ++count;
        } else {
            int zeros = __ffsll(v) - 1;
            v >>= zeros;
            count += zeros;
        }
        if (count > 400) break;
    }
    steps[i] = count;
}
