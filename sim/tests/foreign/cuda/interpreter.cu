// A machine of bytes: a table of jumps in a loop, a table in constant memory, a stack in local memory, a counter.

__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ unsigned programs = 5;

extern "C" __global__ void interpreter(const unsigned char* code, int* results, unsigned* serial, int length, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    code += i * length;
    int stack[16];
    int top = 0, acc = i;
    for (int pc = 0; pc < length; ++pc) {
        int argument = code[pc] >> 4;
        switch (code[pc] & 15) {
            case 0: acc += argument; break;
            case 1: acc *= primes[argument & 7]; break;
            case 2: stack[top++ & 15] = acc; break;
            case 3: acc = top > 0 ? stack[--top & 15] - acc : acc; break;
            case 4: acc ^= acc >> (argument + 1); break;
            case 5: if (acc & 1) pc += argument & 3; break;
            case 6: acc = -acc; break;
            case 7: acc = acc % (argument + 3); break;
            case 8: acc = (acc << 7) | ((unsigned)acc >> 25); break;
            case 9: acc = __popc(acc) * argument; break;
            default: acc = acc * 31 + (code[pc] & 15); break;
        }
    }
    results[i] = acc;
    if (threadIdx.x == 0) serial[blockIdx.x] = atomicAdd(&programs, 1);
}
