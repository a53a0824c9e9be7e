// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The load balancer of kpng-ebpf (docs/design/ebpf.md). At connect() of a TCP socket, it replaces the address of a
// Service with the address of an endpoint. If it leaves a destination alone, the nftables rules translate the packets,
// as they do for packets from outside; so leaving a destination alone is always correct.
//
// IPv4 addresses are stored as ::ffff:a.b.c.d, so that one map and one code path serve both families. layout/layout.ts
// defines the maps; the sizes asserted here must be equal to the sizes there.
#include <linux/bpf.h>
#include "kernel.h"

#define AF_INET6 10

enum { TCP = 6 };
/** Indexes of `frontend.routes`. */
enum sender { POD, NODE };
/** Bits 0 to 31 of a route; bits 32 to 63 are its run. LEAVE means that the rules handle the packets. */
enum { BALANCE = 1, REFUSE = 2, LEAVE = 3 };
/** Bits of `config.flags`. */
enum { LOOPBACK_NODE_PORTS = 1, SOCKETS_OF_PODS = 2 };
#define MAPPED bpf_htonl(0xffff)

struct addr { __u32 w[4]; };
struct key { struct addr ip; __be16 port; __u16 zero; };
/** Neither a frontend nor a run is reused before an RCU grace period has passed. */
struct frontend { __u64 routes[2]; struct key key; __u32 zero; };
/**
 * Header of a run, which consists of elements of `endpoints`: this header, then the endpoints. A run is written before
 * a route leads to it, and is not changed afterwards.
 */
struct header { __u32 count, zero[5]; };
/** Padded to a multiple of 8 bytes, because the kernel rounds the size of elements up. */
struct endpoint { struct addr ip; __be16 port; __u16 zero; __u32 zero2; };
/** The destination of a socket, stored so that getpeername() returns the address to which the process connected. */
struct peer { struct addr vip, to; __be16 vip_port, port; };
struct config { __u64 node_netns; __u32 flags, zero; };
_Static_assert(sizeof(struct key) == 20 && sizeof(struct frontend) == 40 && sizeof(struct header) == 24, "");
_Static_assert(sizeof(struct endpoint) == 24 && sizeof(struct peer) == 36 && sizeof(struct config) == 16, "");

// The maps are only symbols here: the loader replaces each reference with a file descriptor.
struct map { int symbol; };
SEC(".maps") struct map frontends, slots, endpoints, node_addresses, peers, config;

static __always_inline int same(const struct addr *a, const struct addr *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2] && a->w[3] == b->w[3];
}

static __always_inline struct config *config_of(const struct addr *dst)
{
	__u32 family = !(dst->w[0] == 0 && dst->w[1] == 0 && dst->w[2] == MAPPED);
	return bpf_map_lookup_elem(&config, &family);
}

static __always_inline int unspecified(const struct addr *a)
{
	return !(a->w[0] | a->w[1] | a->w[3]) && (!a->w[2] || a->w[2] == MAPPED);
}

/** True for loopback addresses, and for 0.0.0.0, because a connection to it is a connection to 127.0.0.1. */
static __always_inline int loopback_v4(const struct addr *a)
{
	return !(a->w[0] | a->w[1]) && a->w[2] == MAPPED &&
	       ((a->w[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) || !a->w[3]);
}

/**
 * Returns the route of one frontend for one kind of sender; 0 if there is none. A hash element may be recycled for
 * another key while it is read, so the slot that it names must contain the requested key.
 */
static __always_inline __u64 exact_route(struct key *k, __u32 sender)
{
	for (int i = 0; i < 2; i++) {
		__u32 *slot = bpf_map_lookup_elem(&frontends, k), at;
		struct frontend *f;

		if (!slot) return 0;
		at = *(volatile __u32 *)slot;
		f = bpf_map_lookup_elem(&slots, &at);
		if (f && same(&f->key.ip, &k->ip) && f->key.port == k->port)
			return *(volatile __u64 *)&f->routes[sender & 1];
	}
	return 0;
}

/**
 * Returns the route of a destination, either of its own frontend or of a node port. `loopback` is true if node ports
 * answer at this destination without being in `node_addresses`. As with rules, a node port answers if the destination's
 * own frontend has no endpoint.
 */
static __always_inline __u64 route_to(struct addr *dst, __be16 port, __u32 sender, int loopback)
{
	struct key k = { .ip = *dst, .port = port };
	// Keys with the unspecified address are node ports, but a pod that connects to this address means itself.
	__u64 route = unspecified(dst) ? 0 : exact_route(&k, sender), at_node;

	if ((route && (__u32)route != REFUSE) || !(loopback || bpf_map_lookup_elem(&node_addresses, dst))) return route;
	// The key is ::ffff:0.0.0.0 or ::, so that each family has its own node ports.
	if (k.ip.w[0] == 0 && k.ip.w[1] == 0 && k.ip.w[2] == MAPPED) k.ip.w[3] = 0;
	else __builtin_memset(&k.ip, 0, sizeof k.ip);
	at_node = exact_route(&k, sender);
	return at_node ? at_node : route;
}

/** Chooses an endpoint of a route at random. Returns 0 on success. */
static __always_inline int choose(__u64 route, struct endpoint *to)
{
	__u32 at = route >> 32;
	struct header *h = bpf_map_lookup_elem(&endpoints, &at);
	struct endpoint *e;

	if (!h || !h->count) return -1;
	at += 1 + bpf_get_prandom_u32() % h->count;
	e = bpf_map_lookup_elem(&endpoints, &at);
	if (!e) return -1;
	*to = *e;
	return 0;
}

/**
 * Whether a process in the same network namespace listens at exactly this address, as NodeLocal DNSCache does at the
 * address of the cluster's DNS Service. In that case the rules decide who gets the packets, as they do for packets from
 * pods.
 */
static __always_inline int has_listener(struct bpf_sock_addr *ctx, const struct addr *dst, __be16 port)
{
	int v4 = !(dst->w[0] | dst->w[1]) && dst->w[2] == MAPPED, is_exact;
	struct addr at;
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 size = v4 ? sizeof t.ipv4 : sizeof t.ipv6, ip4;

	if (v4) {
		t.ipv4.daddr = dst->w[3];
		t.ipv4.dport = port;
	} else {
		__builtin_memcpy(t.ipv6.daddr, dst, 16);
		t.ipv6.dport = port;
	}
	sk = bpf_sk_lookup_tcp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk) return 0;
	// Only an exact match counts, because a process that listens at all addresses may have nothing to do with the Service.
	// All fields are read for both families: reads that depend on the family would make the compiler compute addresses,
	// which the verifier prohibits.
	at.w[0] = *(volatile __u32 *)&sk->src_ip6[0];
	at.w[1] = *(volatile __u32 *)&sk->src_ip6[1];
	at.w[2] = *(volatile __u32 *)&sk->src_ip6[2];
	at.w[3] = *(volatile __u32 *)&sk->src_ip6[3];
	ip4 = *(volatile __u32 *)&sk->src_ip4;
	is_exact = v4 ? ip4 == dst->w[3] : same(&at, dst);
	bpf_sk_release(sk);
	return is_exact;
}

/**
 * Whether a process has chosen the source address of its socket. Such connections are left to the rules, which
 * masquerade them if this is necessary for answers to come back.
 */
static __always_inline int has_source(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return !sk || sk->src_ip4 ||
	       (sk->family == AF_INET6 && (sk->src_ip6[0] | sk->src_ip6[1] | sk->src_ip6[2] | sk->src_ip6[3]));
}

enum { PASS, REWRITTEN, REFUSED };

static __always_inline int forward(struct bpf_sock_addr *ctx, struct addr *dst, struct endpoint *to)
{
	__u32 sender = POD;
	struct config *cfg = config_of(dst);
	__u64 netns = bpf_get_netns_cookie(ctx), route;
	__be16 port = ctx->user_port;
	struct peer *peer;

	if (ctx->protocol != TCP || !cfg || has_source(ctx)) return PASS;
	if (cfg->node_netns == netns) sender = NODE;
	else if (!(cfg->flags & SOCKETS_OF_PODS)) return PASS;
	route = route_to(dst, port, sender, sender == NODE && (cfg->flags & LOOPBACK_NODE_PORTS) && loopback_v4(dst));
	if ((__u32)route != BALANCE && (__u32)route != REFUSE) return PASS;
	if (sender == NODE && !loopback_v4(dst) && has_listener(ctx, dst, port)) return PASS;
	if ((__u32)route == REFUSE) return REFUSED;
	if (choose(route, to)) return PASS;
	peer = bpf_sk_storage_get(&peers, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (peer) {
		peer->vip = *dst;
		peer->vip_port = port;
		peer->to = to->ip;
		peer->port = to->port;
	}
	return REWRITTEN;
}

static __always_inline struct peer *asked(struct bpf_sock_addr *ctx, struct addr *from)
{
	struct peer *peer = ctx->sk ? bpf_sk_storage_get(&peers, ctx->sk, 0, 0) : 0;

	return peer && peer->port == ctx->user_port && same(&peer->to, from) ? peer : 0;
}

static __always_inline int refuse(void)
{
	bpf_set_retval(-111 /* ECONNREFUSED */);
	return 0;
}

static __always_inline void set_v6(struct bpf_sock_addr *ctx, const struct addr *a, __be16 port)
{
	ctx->user_ip6[0] = a->w[0];
	ctx->user_ip6[1] = a->w[1];
	ctx->user_ip6[2] = a->w[2];
	ctx->user_ip6[3] = a->w[3];
	ctx->user_port = port;
}

SEC("socket/connect4") int connect4(struct bpf_sock_addr *ctx)
{
	struct addr dst = { { 0, 0, MAPPED, ctx->user_ip4 } };
	struct endpoint to = {};
	int result = forward(ctx, &dst, &to);

	if (result == REFUSED) return refuse();
	if (result == REWRITTEN) {
		ctx->user_ip4 = to.ip.w[3];
		ctx->user_port = to.port;
	}
	return 1;
}

SEC("socket/connect6") int connect6(struct bpf_sock_addr *ctx)
{
	struct addr dst = { { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] } };
	struct endpoint to = {};
	int result = forward(ctx, &dst, &to);

	if (result == REFUSED) return refuse();
	if (result == REWRITTEN) set_v6(ctx, &to.ip, to.port);
	return 1;
}

SEC("socket/getpeername4") int getpeername4(struct bpf_sock_addr *ctx)
{
	struct addr from = { { 0, 0, MAPPED, ctx->user_ip4 } };
	struct peer *peer = asked(ctx, &from);

	if (peer) {
		ctx->user_ip4 = peer->vip.w[3];
		ctx->user_port = peer->vip_port;
	}
	return 1;
}

SEC("socket/getpeername6") int getpeername6(struct bpf_sock_addr *ctx)
{
	struct addr from = { { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] } };
	struct peer *peer = asked(ctx, &from);

	if (peer) set_v6(ctx, &peer->vip, peer->vip_port);
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
