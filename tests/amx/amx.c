/* The AMX instructions in software, for processors without them: preloaded into a program, this runs every instruction
 * that the processor does not know in the handler of SIGILL. So the machine code that is meant for AMX can be checked on
 * any x86-64 Linux: the encodings, the tiles' shapes and the results. Anything that a processor would refuse, or that
 * nobody has needed here so far, ends the process with 99 and a line on stderr.
 *
 * Bits as in Intel's Software Developer's Manual: products of bfloat16 pairs with fused multiply-adds, the even and the
 * odd ones summed apart, subnormal numbers taken for zero. Slow: about 10 us an instruction.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { TILES = 8, ROWS = 16, ROW = 64, FLUSH_SUBNORMALS = 0x8040, DEFAULT_MODE = 0x1f80 };
enum { NONE = 0, F3 = 2, F2 = 3 }; /* the VEX prefix */

static __thread unsigned char tile[TILES][ROWS * ROW];
static __thread unsigned char config[64];
static __thread int ready;
static long done;

static int rows(int t) { return config[48 + t]; }
static int width(int t) { return config[16 + 2 * t] | config[17 + 2 * t] << 8; }

static void refuse(const char *why, const unsigned char *at)
{
    fprintf(stderr, "AMX in software: %s:", why);
    for (int i = 0; i < 8; i++)
        fprintf(stderr, " %02x", at[i]);
    fprintf(stderr, "\n");
    _exit(99);
}

static float widened(const unsigned char *p)
{
    uint32_t bits = (uint32_t)p[1] << 24 | (uint32_t)p[0] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void configure(const unsigned char *from, const unsigned char *at)
{
    memcpy(config, from, sizeof config);
    if (config[0] != 1)
        refuse("unknown palette", at);
    for (int i = 1; i < 16; i++)
        if (config[i])
            refuse("reserved bytes of the configuration are set", at);
    for (int t = 0; t < TILES; t++)
        if (rows(t) > ROWS || width(t) > ROW || width(t) % 4)
            refuse("impossible shape of a tile", at);
    memset(tile, 0, sizeof tile);
    ready = 1;
}

static void dot(int d, int x, int y, const unsigned char *at)
{
    if (d == x || d == y || x == y || d >= TILES || x >= TILES || y >= TILES)
        refuse("tiles of a product must differ", at);
    if (width(x) / 4 != rows(y) || rows(d) != rows(x) || width(d) != width(y))
        refuse("shapes do not fit together", at);
    unsigned mode = _mm_getcsr();
    _mm_setcsr(DEFAULT_MODE | FLUSH_SUBNORMALS);
    for (int m = 0; m < rows(d); m++) {
        float even[16] = {0}, odd[16] = {0}, total[16];
        for (int k = 0; k < width(x) / 4; k++) {
            const unsigned char *pair = tile[x] + ROW * m + 4 * k;
            float first = widened(pair), second = widened(pair + 2);
            for (int n = 0; n < width(d) / 4; n++) {
                const unsigned char *other = tile[y] + ROW * k + 4 * n;
                even[n] = __builtin_fmaf(first, widened(other), even[n]);
                odd[n] = __builtin_fmaf(second, widened(other + 2), odd[n]);
            }
        }
        memcpy(total, tile[d] + ROW * m, ROW);
        for (int n = 0; n < width(d) / 4; n++)
            total[n] += even[n] + odd[n];
        memcpy(tile[d] + ROW * m, total, ROW);
    }
    _mm_setcsr(mode);
}

/* The memory operand after ModRM at p[4]: base and stride; returns the instruction's length. */
static int operand(const unsigned char *p, greg_t *registers, uint64_t *base, uint64_t *stride)
{
    static const int number[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    int high_index = p[1] & 0x40 ? 0 : 8, high_base = p[1] & 0x20 ? 0 : 8;
    int mode = p[4] >> 6, low = p[4] & 7, length = 5, shift = 0;
    *base = *stride = 0;
    if (low == 4) {
        int index = (p[5] >> 3 & 7) | high_index;
        length = 6;
        if (index != 4)
            *stride = (uint64_t)registers[number[index]] << (p[5] >> 6);
        low = p[5] & 7;
    }
    if (mode == 0 && low == 5) {
        if (length == 5)
            refuse("an address relative to the instruction", p);
        memcpy(&shift, p + length, 4);
        length += 4;
    } else {
        *base = registers[number[low | high_base]];
    }
    if (mode == 1) {
        shift = (signed char)p[length];
        length += 1;
    } else if (mode == 2) {
        memcpy(&shift, p + length, 4);
        length += 4;
    }
    *base += shift;
    return length;
}

static void unknown_instruction(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *p = (const unsigned char *)registers[REG_RIP];
    if (p[0] != 0xC4 || (p[1] & 0x1f) != 2 || p[2] & 0x84)
        refuse("not an AMX instruction", p);
    int t = (p[4] >> 3 & 7) | (p[1] & 0x80 ? 0 : 8), other = (~(p[2] >> 3)) & 15, prefix = p[2] & 3, code = p[3];
    int in_memory = p[4] >> 6 != 3, length = 5;
    uint64_t base = 0, stride = 0;
    if (in_memory)
        length = operand(p, registers, &base, &stride);
    if (code == 0x49 && prefix == NONE && in_memory && t == 0) {
        configure((const unsigned char *)(base + stride), p);
    } else if (code == 0x49 && prefix == NONE && p[4] == 0xC0) {
        memset(tile, 0xEE, sizeof tile);
        memset(config, 0, sizeof config);
        ready = 0;
    } else if (!ready || t >= TILES) {
        refuse("tiles without a shape", p);
    } else if (code == 0x49 && prefix == F2 && !in_memory) {
        memset(tile[t], 0, sizeof tile[t]);
    } else if (code == 0x4B && prefix == F2 && in_memory) {
        for (int i = 0; i < rows(t); i++)
            memcpy(tile[t] + ROW * i, (const void *)(base + stride * i), width(t));
    } else if (code == 0x4B && prefix == F3 && in_memory) {
        for (int i = 0; i < rows(t); i++)
            memcpy((void *)(base + stride * i), tile[t] + ROW * i, width(t));
    } else if (code == 0x5C && prefix == F3 && !in_memory) {
        dot(t, (p[4] & 7) | (p[1] & 0x20 ? 0 : 8), other, p);
    } else {
        refuse("not an instruction that is known here", p);
    }
    __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED);
    registers[REG_RIP] += length;
}

__attribute__((constructor)) static void start(void)
{
    struct sigaction action = {0};
    action.sa_sigaction = unknown_instruction;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, NULL);
}

__attribute__((destructor)) static void finish(void)
{
    if (done && getenv("AMX_COUNT"))
        fprintf(stderr, "%ld AMX instructions in software\n", done);
}
