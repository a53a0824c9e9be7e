// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The load balancer of kpng-ebpf (docs/decisions/0059). Hooks of sockets replace the address of a Service once, at
// connect() or sendmsg(). What they leave alone meets the rules of nftables, as packets from outside do: leaving a
// destination alone is always right.
//
// IPv4 addresses are held as ::ffff:a.b.c.d, so that one map and one code path serve both families. The maps are made by
// layout/map-layouts.ts; sizes that are asserted here are the ones that it has.
#include <linux/bpf.h>
#include "kernel.h"

enum { TCP = 6, UDP = 17 };
/** Columns of `frontend.routes`. */
enum sender { POD, NODE };
/** Bits 0 to 31 of a route; bits 32 to 63 are its run. LEAVE: to the rules. */
enum { KIND = 3, BALANCE = 1, REFUSE = 2, LEAVE = 3, LOCAL = 4, AFFINITY = 8 };
/** Bits of `config.flags`. */
enum { LOOPBACK_NODE_PORTS = 1, SOCKETS_OF_PODS = 2 };
/** Bits of a member. */
enum { IN_CLUSTER = 1, IN_LOCAL = 2, KEEPS_FLOWS = 4 };
#define MAPPED bpf_htonl(0xffff)

struct addr { __u32 w[4]; };
struct key { struct addr ip; __be16 port; __u8 proto, zero; };
/** Never reused before an RCU grace period has passed, and neither is a run. */
struct frontend { __u64 routes[2]; struct key key; __u32 zero; };
/** A run of elements of `endpoints`: this header, then its endpoints. Written before a route leads to it, then fixed. */
struct header { __u64 id; __u32 count, affinity_s; __u64 zero; };
struct endpoint { struct addr ip; __be16 port; __u16 zero; __u32 zero2; };
struct member_key { __u64 id; struct addr ip; __be16 port; __u16 zero; __u32 zero2; };
struct client_key { __u64 id; struct addr client; };
struct client_choice { struct endpoint to; __u64 seen_ns; };
/** Destinations that a socket was sent to, so that it sees answers from the address that it asked. */
struct peer { struct addr vip, to; __be16 vip_port, port; };
struct peers { __u32 next; struct peer of[4]; };
struct config { __u64 node_netns; __u32 flags, zero; };
_Static_assert(sizeof(struct key) == 20 && sizeof(struct frontend) == 40 && sizeof(struct header) == 24, "");
_Static_assert(sizeof(struct endpoint) == 24 && sizeof(struct member_key) == 32 && sizeof(struct client_key) == 24, "");
_Static_assert(sizeof(struct client_choice) == 32 && sizeof(struct peers) == 148 && sizeof(struct config) == 16, "");

// Only symbols: the loader replaces each reference by a file descriptor.
struct map { int symbol; };
SEC(".maps") struct map frontends, slots, endpoints, members, clients, node_addresses, peers, config;

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

/** A connection to 0.0.0.0 is one to 127.0.0.1. */
static __always_inline int loopback_v4(const struct addr *a)
{
	return !(a->w[0] | a->w[1]) && a->w[2] == MAPPED &&
	       ((a->w[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) || !a->w[3]);
}

/**
 * Returns the route of one frontend for one kind of sender; 0 if there is none. An element of a hash may be recycled for
 * another key while it is read, so the slot that it names must have the key that was asked for.
 */
static __always_inline __u64 exact_route(struct key *k, __u32 sender)
{
	for (int i = 0; i < 2; i++) {
		__u32 *slot = bpf_map_lookup_elem(&frontends, k), at;
		struct frontend *f;

		if (!slot) return 0;
		at = *(volatile __u32 *)slot;
		f = bpf_map_lookup_elem(&slots, &at);
		if (f && same(&f->key.ip, &k->ip) && f->key.port == k->port && f->key.proto == k->proto)
			return *(volatile __u64 *)&f->routes[sender & 1];
	}
	return 0;
}

/**
 * Returns the route of a destination: of its own frontend, or of a node port. `loopback`: the node's own sockets. As with
 * rules, a node port answers where another Service has its place and no endpoint.
 */
static __always_inline __u64 route_to(struct addr *dst, __be16 port, __u8 proto, __u32 sender, int loopback)
{
	struct key k = { .ip = *dst, .port = port, .proto = proto };
	// Keys with this address are node ports: a pod that connects to it means itself.
	__u64 route = unspecified(dst) ? 0 : exact_route(&k, sender), at_node;

	if ((route && (route & KIND) != REFUSE) || !(loopback || bpf_map_lookup_elem(&node_addresses, dst))) return route;
	// ::ffff:0.0.0.0 or ::, so that the families have node ports of their own.
	if (k.ip.w[0] == 0 && k.ip.w[1] == 0 && k.ip.w[2] == MAPPED) k.ip.w[3] = 0;
	else __builtin_memset(&k.ip, 0, sizeof k.ip);
	at_node = exact_route(&k, sender);
	return at_node ? at_node : route;
}

static __always_inline struct header *header_of(__u64 route)
{
	__u32 first = route >> 32;
	return bpf_map_lookup_elem(&endpoints, &first);
}

static __always_inline __u32 member(__u64 id, const struct endpoint *e)
{
	struct member_key k = { .id = id, .ip = e->ip, .port = e->port };
	__u32 *flags = bpf_map_lookup_elem(&members, &k);
	return flags ? *flags : 0;
}

/** Distinguishes what a client chose among local endpoints from what it chose among all, in the id of its key. */
#define LOCAL_CHOICE (1ull << 63)

/**
 * Chooses an endpoint for a client: the one of before, with affinity, otherwise a random one. Returns 0 for success.
 * A Service may have endpoints in its local set only (those that shut down) and others in the other set only. So a
 * client has a choice for each set: with one for both, asking at two frontends by turns would change it each time.
 */
static __always_inline int choose(__u64 route, struct header *h, struct addr *client, struct endpoint *to)
{
	struct client_key ck = { .id = h->id ^ (route & LOCAL ? LOCAL_CHOICE : 0), .client = *client };
	__u32 count = h->count, at;
	struct endpoint *e;

	if (!count) return -1;
	if (route & AFFINITY) {
		__u64 now = bpf_ktime_get_ns();

		// What it chose in the other set is its first choice in this one, if it is a member.
		for (int is_other = 0; is_other < 2; is_other++, ck.id ^= LOCAL_CHOICE) {
			struct client_choice *c = bpf_map_lookup_elem(&clients, &ck);

			// Another CPU may have written a time after `now`.
			if (!c || c->seen_ns + h->affinity_s * 1000000000ull <= now) continue;
			// A recycled element may hold a mixture; only an endpoint of the set is taken from it.
			*to = c->to;
			if (!(member(h->id, to) & (route & LOCAL ? IN_LOCAL : IN_CLUSTER))) continue;
			c->seen_ns = now;
			if (!is_other) return 0;
			ck.id ^= LOCAL_CHOICE;
			goto remember;
		}
	}
	at = (route >> 32) + 1 + bpf_get_prandom_u32() % count;
	e = bpf_map_lookup_elem(&endpoints, &at);
	if (!e) return -1;
	*to = *e;
remember:
	if (route & AFFINITY) {
		struct client_choice c = { .to = *to, .seen_ns = bpf_ktime_get_ns() };
		bpf_map_update_elem(&clients, &ck, &c, BPF_ANY);
	}
	return 0;
}

/**
 * Whether a process of the same network namespace listens at exactly this address, as NodeLocal DNSCache does at the
 * address of the cluster's DNS Service. Rules decide then who gets the packets, as they do about those of pods.
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
	sk = ctx->protocol == TCP ? bpf_sk_lookup_tcp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0)
				  : bpf_sk_lookup_udp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk) return 0;
	// One that listens at all addresses of the node may have nothing to do with the Service.
	// Reads that depend on the family would make the compiler compute addresses, which the verifier prohibits.
	at.w[0] = *(volatile __u32 *)&sk->src_ip6[0];
	at.w[1] = *(volatile __u32 *)&sk->src_ip6[1];
	at.w[2] = *(volatile __u32 *)&sk->src_ip6[2];
	at.w[3] = *(volatile __u32 *)&sk->src_ip6[3];
	ip4 = *(volatile __u32 *)&sk->src_ip4;
	is_exact = v4 ? ip4 == dst->w[3] : same(&at, dst);
	bpf_sk_release(sk);
	return is_exact;
}

enum { PASS, REWRITTEN, REFUSED };

/** Returns the place for a destination in the storage of a socket: the one that it had, or the oldest. */
static __always_inline struct peer *peer_for(struct peers *p, const struct addr *vip, __be16 port, int *is_known)
{
	for (int i = 0; i < 4; i++)
		if (p->of[i].vip_port == port && same(&p->of[i].vip, vip)) {
			*is_known = 1;
			return &p->of[i];
		}
	return &p->of[p->next++ & 3];
}

static __always_inline int forward(struct bpf_sock_addr *ctx, struct addr *dst, struct endpoint *to)
{
	__u32 proto = ctx->protocol, sender = POD;
	struct config *cfg = config_of(dst);
	// Each pod has a network namespace, so its cookie identifies a client.
	__u64 netns = bpf_get_netns_cookie(ctx), route;
	struct addr client = { { (__u32)netns, netns >> 32, 0, 0 } };
	__be16 port = ctx->user_port;
	struct peer *peer = 0;
	struct header *h;
	struct peers *p;
	int is_known = 0;

	if ((proto != TCP && proto != UDP) || !cfg) return PASS;
	if (cfg->node_netns == netns) sender = NODE;
	else if (!(cfg->flags & SOCKETS_OF_PODS)) return PASS;
	route = route_to(dst, port, proto, sender,
			 sender == NODE && (cfg->flags & LOOPBACK_NODE_PORTS) && loopback_v4(dst));
	if ((route & KIND) == 0 || (route & KIND) == LEAVE) return PASS;
	if (sender == NODE && !loopback_v4(dst) && has_listener(ctx, dst, port)) return PASS;
	if ((route & KIND) == REFUSE) return REFUSED;
	h = header_of(route);
	if (!h) return PASS;
	p = bpf_sk_storage_get(&peers, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (p) peer = peer_for(p, dst, port, &is_known);
	if (peer && is_known && proto == UDP) {
		// Datagrams of a socket to one address are a flow: it stays while its endpoint serves.
		to->ip = peer->to;
		to->port = peer->port;
		if (member(h->id, to)) return REWRITTEN;
	}
	if (choose(route, h, &client, to)) return PASS;
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
	__be16 port = ctx->user_port;
	struct peers *p = ctx->sk ? bpf_sk_storage_get(&peers, ctx->sk, 0, 0) : 0;

	if (!p) return 0;
	for (int i = 0; i < 4; i++)
		if (p->of[i].port == port && same(&p->of[i].to, from)) return &p->of[i];
	return 0;
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

// Each is loaded for two hooks: connect and sendmsg, recvmsg and getpeername.

SEC("socket/forward4") int forward4(struct bpf_sock_addr *ctx)
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

SEC("socket/forward6") int forward6(struct bpf_sock_addr *ctx)
{
	struct addr dst = { { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] } };
	struct endpoint to = {};
	int result = forward(ctx, &dst, &to);

	if (result == REFUSED) return refuse();
	if (result == REWRITTEN) set_v6(ctx, &to.ip, to.port);
	return 1;
}

SEC("socket/restore4") int restore4(struct bpf_sock_addr *ctx)
{
	struct addr from = { { 0, 0, MAPPED, ctx->user_ip4 } };
	struct peer *peer = asked(ctx, &from);

	if (peer) {
		ctx->user_ip4 = peer->vip.w[3];
		ctx->user_port = peer->vip_port;
	}
	return 1;
}

SEC("socket/restore6") int restore6(struct bpf_sock_addr *ctx)
{
	struct addr from = { { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] } };
	struct peer *peer = asked(ctx, &from);

	if (peer) set_v6(ctx, &peer->vip, peer->vip_port);
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
