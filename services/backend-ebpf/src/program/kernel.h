// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Helpers and functions of the kernel that lb.bpf.c calls. They are declared here rather than taken from libbpf, so that
// clang and the headers of the C library are enough to compile it, and the result is the same with every libbpf.
#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __ksym SEC(".ksyms")
#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#ifndef BPF_FIB_LOOKUP_SRC
#define BPF_FIB_LOOKUP_SRC (1U << 4)
#endif
#ifndef BPF_FIB_LOOKUP_SKIP_NEIGH
#define BPF_FIB_LOOKUP_SKIP_NEIGH (1U << 2)
#endif

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static long (*bpf_skb_load_bytes_relative)(const void *skb, __u32 at, void *to, __u32 size, __u32 from) = (void *)68;
static long (*bpf_fib_lookup)(void *ctx, struct bpf_fib_lookup *params, int size, __u32 flags) = (void *)69;
static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)107;
static long (*bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static __u64 (*bpf_get_netns_cookie)(void *ctx) = (void *)122;
static int (*bpf_set_retval)(int value) = (void *)187;

struct nf_conn;
struct nf_conn___init;
union nf_inet_addr { __u32 all[4]; };
enum nf_nat_manip_type { MANIP_SRC, MANIP_DST };
struct ct_opts { __s32 netns_id, error; __u8 l4proto, dir, reserved[2]; };
extern struct nf_conn___init *bpf_skb_ct_alloc(struct __sk_buff *, struct bpf_sock_tuple *, __u32, struct ct_opts *, __u32) __ksym;
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *, struct bpf_sock_tuple *, __u32, struct ct_opts *, __u32) __ksym;
extern struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *) __ksym;
extern void bpf_ct_release(struct nf_conn *) __ksym;
extern void bpf_ct_set_timeout(struct nf_conn___init *, __u32) __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *, __u32) __ksym;
extern int bpf_ct_set_nat_info(struct nf_conn___init *, union nf_inet_addr *, int port, enum nf_nat_manip_type) __ksym;
