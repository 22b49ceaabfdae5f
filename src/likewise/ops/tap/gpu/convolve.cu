// A convolution of a line of cells with 32 channels on Hopper's matrix units: see convolutions.py.
// K, BLOCKS (64 cells each) of a tile, GROUPS (warpgroups), TAPS, PADDED, GATED and KEEP are macros.
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define WIDTH 32
#define CELLS (64 * BLOCKS)
#define LOADS (PADDED / 8)

__device__ __forceinline__ u32 shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void copy16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ __forceinline__ void multiply(float (&d)[16], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_small(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Of four lanes, lane q has word q of the four numbers (lane, word): transposed in place.
__device__ __forceinline__ void transpose(u32 (&r)[4], int q) {
    u32 x = q & 1 ? r[0] : r[1], y = q & 1 ? r[2] : r[3];
    x = __shfl_xor_sync(~0u, x, 1);
    y = __shfl_xor_sync(~0u, y, 1);
    if (q & 1) { r[0] = x; r[2] = y; } else { r[1] = x; r[3] = y; }
    x = q & 2 ? r[0] : r[2];
    y = q & 2 ? r[1] : r[3];
    x = __shfl_xor_sync(~0u, x, 2);
    y = __shfl_xor_sync(~0u, y, 2);
    if (q & 2) { r[0] = x; r[1] = y; } else { r[2] = x; r[3] = y; }
}

__device__ __forceinline__ u32 positive(u32 gate, u32 value) {  // of two halves, those where the gate is positive
    u32 keep = 0;
    if ((short)(gate & 0xffff) > 0) keep |= 0xffff;
    if ((short)(gate >> 16) > 0) keep |= 0xffff0000u;
    return value & keep;
}

__device__ __forceinline__ float rectified(float total, bool inside) {
    float h = total <= 0 ? 0.0f : total;
    h = total > 65504.0f ? __int_as_float(0x7fffffff) : h;
    return inside ? h : 0.0f;
}

extern "C" __global__ void __launch_bounds__(128 * GROUPS, 1)
convolve(const u16* __restrict__ given, const void* __restrict__ mask, const u16* __restrict__ weights,
         const float* __restrict__ bias, const u16* __restrict__ last, u16* __restrict__ hidden,
         float* __restrict__ products, int stride, int plane, int tiles, int segments, int length, int pitch, int between) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int thread = threadIdx.x % 128, group = threadIdx.x / 128, lane = threadIdx.x % 32, q = lane % 4;
    const u32 taps_at = shared(memory), cells_at = taps_at + K * K * WIDTH * WIDTH * 2 + group * 4 * between;
    for (int i = threadIdx.x; i < K * K * WIDTH * WIDTH / 8; i += 128 * GROUPS) copy16(taps_at + 16 * i, weights + 8 * i);

    auto load = [&](int tile) {
        const u16* from = given + ((i64)tile * CELLS - (K / 2) * (i64)stride - K / 2) * WIDTH + thread % 4 * 8;
        const u32 to = cells_at + thread % 4 * between;
        for (int s = 0; s < segments; ++s)
            for (int n = thread / 4; n < length; n += 32)
                copy16(to + 16 * (s * pitch + n), from + ((i64)s * stride + n) * WIDTH);
    };

    u32 w[2][LOADS > 0 ? LOADS : 1][2];
    if (TAPS > 0)
        for (int ks = 0; ks < 2; ++ks)
            for (int nb = 0; nb < LOADS; ++nb)
                for (int part = 0; part < 2; ++part) {
                    const int row = 16 * ks + 8 * part + 2 * q, column = 8 * nb + lane / 4;
                    w[ks][nb][part] = last[row * PADDED + column] | (u32)last[(row + 1) * PADDED + column] << 16;
                }
    float b[8];
    if (!GATED)
        for (int nb = 0; nb < 4; ++nb) b[2 * nb] = bias[8 * nb + 2 * q], b[2 * nb + 1] = bias[8 * nb + 2 * q + 1];

    // Matrices without a swizzle: eight rows of 16 bytes are adjacent, so a shift by one cell is one by 16 bytes.
    const u64 cells_matrix = (u64)(128 >> 4) << 32 | (u64)(between >> 4) << 16 | (cells_at >> 4);
    const u64 taps_matrix = (u64)(128 >> 4) << 32 | (u64)(WIDTH * 16 >> 4) << 16 | (taps_at >> 4);
    const int first = blockIdx.x * GROUPS + group, step = gridDim.x * GROUPS;
    if (first < tiles) load(first);
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();  // the taps
    for (int tile = first; tile < tiles; tile += step) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        float d[BLOCKS][16];
        for (int m = 0; m < BLOCKS; ++m)
            for (int i = 0; i < 16; ++i) d[m][i] = 0;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int row = 0; row < K; ++row)
#pragma unroll
            for (int column = 0; column < K; ++column)
#pragma unroll
                for (int ks = 0; ks < 2; ++ks) {
                    const u64 right = taps_matrix + ((row * K + column) * WIDTH * WIDTH * 2 + ks * WIDTH * 32) / 16;
                    const u64 left = cells_matrix + (u32)(row * pitch + column + ks * 2 * (between >> 4));
#pragma unroll
                    for (int m = 0; m < BLOCKS; ++m) multiply(d[m], left + 64 * m, right);
                }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (int m = 0; m < BLOCKS; ++m)
            for (int i = 0; i < 16; ++i) asm volatile("" : "+f"(d[m][i])::"memory");
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        if (tile + step < tiles) load(tile + step);
#pragma unroll
        for (int m = 0; m < BLOCKS; ++m) {
            const i64 cell = (i64)tile * CELLS + 64 * m + thread / 32 * 16 + lane / 4;
            u32 h[2][4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i64 at = cell + 8 * half;
                if (GATED) {
                    u32 gate[4];
                    *(uint4*)gate = *(const uint4*)((const u16*)mask + at * WIDTH + 8 * q);
                    transpose(gate, q);
                    for (int nb = 0; nb < 4; ++nb)
                        h[half][nb] = positive(gate[nb], pack(d[m][4 * nb + 2 * half], d[m][4 * nb + 2 * half + 1]));
                } else {
                    const bool inside = ((const float*)mask)[at] >= 0;
                    for (int nb = 0; nb < 4; ++nb)
                        h[half][nb] = pack(rectified(d[m][4 * nb + 2 * half] + b[2 * nb], inside),
                                           rectified(d[m][4 * nb + 2 * half + 1] + b[2 * nb + 1], inside));
                }
            }
            if (TAPS > 0) {
#pragma unroll
                for (int nb = 0; nb < LOADS; ++nb) {
                    float found[4] = {0, 0, 0, 0};
                    for (int ks = 0; ks < 2; ++ks)
                        multiply_small(found, h[0][2 * ks], h[1][2 * ks], h[0][2 * ks + 1], h[1][2 * ks + 1], w[ks][nb][0],
                                       w[ks][nb][1]);
                    const int tap = 8 * nb + 2 * q;
                    float* to = products + (i64)tap * plane + cell;
                    if (tap < TAPS) to[0] = found[0], to[8] = found[2];
                    if (tap + 1 < TAPS) to[plane] = found[1], to[plane + 8] = found[3];
                }
            }
            if (KEEP)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    transpose(h[half], q);
                    *(uint4*)(hidden + (cell + 8 * half) * WIDTH + 8 * q) = *(uint4*)h[half];
                }
        }
    }
}
