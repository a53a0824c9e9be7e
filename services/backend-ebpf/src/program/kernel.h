// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Kernel helpers that lb.bpf.c calls. They are declared here instead of including libbpf, so that lb.bpf.c can be
// compiled with only clang and the C library headers, and the result does not depend on the version of libbpf.
#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define bpf_htonl(x) __builtin_bswap32(x)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static struct bpf_sock *(*bpf_sk_lookup_tcp)(void *ctx, void *tuple, __u32 size, __u64 netns, __u64 flags) = (void *)84;
static long (*bpf_sk_release)(void *sock) = (void *)86;
static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)107;
static __u64 (*bpf_get_netns_cookie)(void *ctx) = (void *)122;
static int (*bpf_set_retval)(int value) = (void *)187;
