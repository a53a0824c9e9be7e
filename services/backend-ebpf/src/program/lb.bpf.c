// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The load balancer of kpng-ebpf (docs/decisions/0059). Inside the node, hooks of sockets replace the address of a
// Service once, at connect() or sendmsg(). Packets from outside meet a tcx program on each interface: it decides the NAT
// of a flow at its first packet and gives it to the kernel's conntrack, which then translates every packet of the flow,
// fragments and ICMP errors included.
//
// IPv4 addresses are held as ::ffff:a.b.c.d, so that one map and one code path serve both families. The maps are made by
// layout/map-layouts.ts; sizes that are asserted here are the ones that it has.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include "kernel.h"

enum { TCP = 6, UDP = 17 };
/** Columns of `frontend.routes`. */
enum sender { POD, NODE, OUTSIDE };
/** Bits 0 to 7 of a route; bits 8 to 31 are the id of its source ranges, 0 for none; bits 32 to 63 its run. */
enum { KIND = 3, BALANCE = 1, REFUSE = 2, DROP = 3, LOCAL = 4, MASQUERADE = 8, AFFINITY = 16, PACKETS_ONLY = 32 };
/** Bits of `config.flags`. */
enum { HAS_POD_CIDR = 1, LOOPBACK_NODE_PORTS = 2, OTHERS_ARE_PODS = 4 };
/** Bits of a member. */
enum { IN_CLUSTER = 1, IN_LOCAL = 2, KEEPS_FLOWS = 4 };
#define MAPPED bpf_htonl(0xffff)

struct addr { __u32 w[4]; };
struct key { struct addr ip; __be16 port; __u8 proto, zero; };
/**
 * Never reused before an RCU grace period has passed, and neither is a run. `connections` counts those that were given an
 * endpoint, and flows of UDP. It is in the line of the cache that the route was just read from. `service` is a hash of
 * the Service that they are counted for; no program reads it.
 */
struct frontend { __u64 routes[3]; struct key key; __u32 zero; __u64 connections, service; };
/** A run of elements of `endpoints`: this header, then its endpoints. Written before a route leads to it, then fixed. */
struct header { __u64 id; __u32 count, affinity_s; __u64 zero; };
struct endpoint { struct addr ip; __be16 port; __u16 zero; __u32 zero2; };
struct member_key { __u64 id; struct addr ip; __be16 port; __u16 zero; __u32 zero2; };
struct client_key { __u64 id; struct addr client; };
struct client_choice { struct endpoint to; __u64 seen_ns; };
struct range_key { __u32 prefix, id; struct addr ip; };
/** Destinations that a socket was sent to, so that it sees answers from the address that it asked. */
struct peer { struct addr vip, to; __be16 vip_port, port; };
struct peers { __u32 next; struct peer of[4]; };
struct config { __u64 node_netns; struct addr pod_net, pod_mask; __u32 flags, refuse_mark, tcp_state_offset, zero; };
_Static_assert(sizeof(struct key) == 20 && sizeof(struct frontend) == 64 && sizeof(struct header) == 24, "");
_Static_assert(sizeof(struct endpoint) == 24 && sizeof(struct member_key) == 32 && sizeof(struct client_key) == 24, "");
_Static_assert(sizeof(struct client_choice) == 32 && sizeof(struct range_key) == 24, "");
_Static_assert(sizeof(struct peers) == 148 && sizeof(struct config) == 56, "");

// Only symbols: the loader replaces each reference by a file descriptor.
struct map { int symbol; };
SEC(".maps") struct map frontends, slots, endpoints, members, clients, ranges, node_addresses, pod_interfaces, peers, config;

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
static __always_inline __u64 exact_route(struct key *k, __u32 sender, struct frontend **found)
{
	for (int i = 0; i < 2; i++) {
		__u32 *slot = bpf_map_lookup_elem(&frontends, k), at;
		struct frontend *f;

		if (!slot) return 0;
		at = *(volatile __u32 *)slot;
		f = bpf_map_lookup_elem(&slots, &at);
		if (f && same(&f->key.ip, &k->ip) && f->key.port == k->port && f->key.proto == k->proto) {
			*found = f;
			return *(volatile __u64 *)&f->routes[sender & 3];
		}
	}
	return 0;
}

/** Returns the route of a destination: of its own frontend, or of a node port. `loopback`: the node's own sockets. */
static __always_inline __u64 route_to(struct addr *dst, __be16 port, __u8 proto, __u32 sender, int loopback,
				      struct frontend **found)
{
	struct key k = { .ip = *dst, .port = port, .proto = proto };
	// Keys with this address are node ports: a pod that connects to it means itself.
	__u64 route = unspecified(dst) ? 0 : exact_route(&k, sender, found);

	if (route || !(loopback || bpf_map_lookup_elem(&node_addresses, dst))) return route;
	// ::ffff:0.0.0.0 or ::, so that the families have node ports of their own.
	if (k.ip.w[0] == 0 && k.ip.w[1] == 0 && k.ip.w[2] == MAPPED) k.ip.w[3] = 0;
	else __builtin_memset(&k.ip, 0, sizeof k.ip);
	return exact_route(&k, sender, found);
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

/** Counts a connection. Atomic, because a packet may interrupt a process on the same CPU. */
static __always_inline void count(struct frontend *f)
{
	if (f) __sync_fetch_and_add(&f->connections, 1);
}

// ---- inside: sockets ----

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
	__u32 proto = ctx->protocol, sender = OUTSIDE;
	struct config *cfg = config_of(dst);
	// Each pod has a network namespace, so its cookie identifies a client.
	__u64 netns = bpf_get_netns_cookie(ctx), route;
	struct addr client = { { (__u32)netns, netns >> 32, 0, 0 } };
	__be16 port = ctx->user_port;
	struct frontend *found = 0;
	struct peer *peer = 0;
	struct header *h;
	struct peers *p;
	int is_known = 0;

	if ((proto != TCP && proto != UDP) || !cfg) return PASS;
	if (cfg->node_netns == netns) sender = NODE;
	else if (cfg->flags & OTHERS_ARE_PODS) sender = POD;
	route = route_to(dst, port, proto, sender,
			 sender == NODE && (cfg->flags & LOOPBACK_NODE_PORTS) && loopback_v4(dst), &found);
	if ((route & KIND) == REFUSE) return REFUSED;
	// The packets then meet the tcx program, which knows their source address and can discard and masquerade.
	if ((route & KIND) != BALANCE || route & PACKETS_ONLY) return PASS;
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
	count(found);
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

// ---- outside: packets ----

/** What the program needs of a packet. */
struct packet {
	struct addr src, dst;
	struct bpf_sock_tuple tuple;
	__be16 dport;
	__u8 proto;
};

/** Reads a packet that may begin a flow. Returns 0 for success. */
static __always_inline int read_packet(struct __sk_buff *skb, int v6, struct packet *p)
{
	struct { __be16 sport, dport; __u32 seq, ack; __u8 offset, flags; } l4 = {};
	__u32 at;

	if (v6) {
		struct { __u32 vtc; __be16 len; __u8 next, hops; struct addr src, dst; } ip;
		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof ip, BPF_HDR_START_NET)) return -1;
		p->proto = ip.next;
		p->src = ip.src;
		p->dst = ip.dst;
		at = sizeof ip;
	} else {
		struct { __u8 vhl, tos; __be16 len, id, frag; __u8 ttl, proto; __u16 sum; __u32 src, dst; } ip;
		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof ip, BPF_HDR_START_NET)) return -1;
		if (ip.frag & bpf_htons(0x1fff)) return -1; // later fragments follow the first one's conntrack entry
		p->proto = ip.proto;
		p->src.w[2] = p->dst.w[2] = MAPPED;
		p->src.w[3] = ip.src;
		p->dst.w[3] = ip.dst;
		at = (ip.vhl & 15) * 4;
	}
	if (p->proto != TCP && p->proto != UDP) return -1;
	if (bpf_skb_load_bytes_relative(skb, at, &l4, p->proto == TCP ? 14 : 4, BPF_HDR_START_NET)) return -1;
	if (p->proto == TCP && (l4.flags & 0x12) != 2) return -1; // only a SYN begins a flow
	p->dport = l4.dport;
	if (v6) {
		__builtin_memcpy(p->tuple.ipv6.saddr, &p->src, 16);
		__builtin_memcpy(p->tuple.ipv6.daddr, &p->dst, 16);
		p->tuple.ipv6.sport = l4.sport;
		p->tuple.ipv6.dport = l4.dport;
	} else {
		p->tuple.ipv4.saddr = p->src.w[3];
		p->tuple.ipv4.daddr = p->dst.w[3];
		p->tuple.ipv4.sport = l4.sport;
		p->tuple.ipv4.dport = l4.dport;
	}
	return 0;
}

static __always_inline int is_from_pod(struct __sk_buff *skb, struct config *cfg, const struct addr *src)
{
	__u32 ifindex = skb->ifindex;
	int is_in_cidr = 1;

	if (bpf_map_lookup_elem(&pod_interfaces, &ifindex)) return 1;
	if (!(cfg->flags & HAS_POD_CIDR)) return 0;
	for (int i = 0; i < 4; i++)
		if ((src->w[i] & cfg->pod_mask.w[i]) != cfg->pod_net.w[i]) is_in_cidr = 0;
	return is_in_cidr;
}

/** Whether conntrack has the flow already. */
static __always_inline int is_known_flow(struct __sk_buff *skb, struct packet *p, __u32 size, struct ct_opts *opts,
					 __u32 state_at)
{
	struct nf_conn *ct = bpf_skb_ct_lookup(skb, &p->tuple, size, opts, sizeof *opts);
	__u8 state = 0;

	if (ct && p->proto == TCP && state_at) {
		// A SYN on a finished connection: netfilter would drop that entry and begin one without our NAT.
		bpf_probe_read_kernel(&state, 1, (void *)ct + state_at);
		if (state == 7 /* TIME_WAIT */ || state == 8 /* CLOSE */) {
			bpf_ct_change_timeout(ct, 0);
			bpf_ct_release(ct);
			// Looking for an entry that has expired removes it.
			ct = bpf_skb_ct_lookup(skb, &p->tuple, size, opts, sizeof *opts);
		}
	}
	if (!ct) return 0;
	bpf_ct_release(ct);
	return 1;
}

static __always_inline int decide(struct __sk_buff *skb, int v6)
{
	struct ct_opts opts = { .netns_id = -1 };
	struct bpf_fib_lookup fib = {};
	struct endpoint to = {};
	struct packet p = {};
	union nf_inet_addr nat = {}, source = {};
	struct nf_conn___init *new;
	struct frontend *found = 0;
	struct nf_conn *ct;
	struct config *cfg;
	struct header *h;
	// Not in `p`: the verifier wants to know it, and forgets what is in memory.
	const __u32 size = v6 ? sizeof p.tuple.ipv6 : sizeof p.tuple.ipv4;
	__u64 route;
	__u32 kind;

	if (read_packet(skb, v6, &p)) return TC_ACT_UNSPEC;
	cfg = config_of(&p.dst);
	if (!cfg) return TC_ACT_UNSPEC;
	route = route_to(&p.dst, p.dport, p.proto, is_from_pod(skb, cfg, &p.src) ? POD : OUTSIDE, 0, &found);
	kind = route & KIND;
	if (!kind) return TC_ACT_UNSPEC;
	opts.l4proto = p.proto;
	if (is_known_flow(skb, &p, size, &opts, cfg->tcp_state_offset)) return TC_ACT_UNSPEC;
	if (kind == DROP) return TC_ACT_SHOT;
	if (kind == REFUSE) {
		skb->mark |= cfg->refuse_mark; // a rule of nftables rejects it
		return TC_ACT_UNSPEC;
	}
	if (route & 0xffffff00) {
		struct range_key rk = { .prefix = 160, .id = (route >> 8) & 0xffffff, .ip = p.src };
		if (!bpf_map_lookup_elem(&ranges, &rk)) return TC_ACT_SHOT;
	}
	h = header_of(route);
	if (!h || choose(route, h, &p.src, &to)) return TC_ACT_SHOT;

	new = bpf_skb_ct_alloc(skb, &p.tuple, size, &opts, sizeof opts);
	if (!new) return TC_ACT_SHOT;
	bpf_ct_set_timeout(new, 30000);
	if (v6) __builtin_memcpy(&nat, &to.ip, 16);
	else nat.all[0] = to.ip.w[3];
	bpf_ct_set_nat_info(new, &nat, bpf_ntohs(to.port), MANIP_DST);
	if (v6) __builtin_memcpy(&source, &p.src, 16);
	else source.all[0] = p.src.w[3];
	// An endpoint that reaches itself would otherwise answer itself directly.
	if (route & MASQUERADE || same(&to.ip, &p.src)) {
		fib.family = v6 ? 10 : 2;
		fib.ifindex = skb->ifindex;
		fib.tot_len = 1; // with 0, a packet larger than the way's MTU has no result
		__builtin_memcpy(fib.ipv6_dst, &nat, 16);
		// No result for an endpoint on the node itself, whose answers return here in any case.
		if (!bpf_fib_lookup(skb, &fib, sizeof fib, BPF_FIB_LOOKUP_SKIP_NEIGH | BPF_FIB_LOOKUP_SRC))
			__builtin_memcpy(&source, fib.ipv6_src, v6 ? 16 : 4);
	}
	// Also for the client's own address: netfilter finds a free port if the client uses this one for the endpoint already,
	// through another frontend. Otherwise the entry could not be inserted.
	bpf_ct_set_nat_info(new, &source, 0, MANIP_SRC);
	ct = bpf_ct_insert_entry(new);
	if (!ct) return TC_ACT_SHOT; // another CPU was first: the client sends again
	bpf_ct_release(ct);
	count(found);
	return TC_ACT_UNSPEC;
}

SEC("tcx/packets") int packets(struct __sk_buff *skb)
{
	if (skb->protocol == bpf_htons(0x0800)) return decide(skb, 0);
	if (skb->protocol == bpf_htons(0x86dd)) return decide(skb, 1);
	return TC_ACT_UNSPEC; // the next program
}

char _license[] SEC("license") = "Dual BSD/GPL";
