// Constants of nftables messages. Source: linux/netlink.h, linux/netfilter/{nfnetlink,nf_tables}.h.

/** NLM_F_*. */
export const flags = {
  request: 0x1,
  ack: 0x4,
  dumpInterrupted: 0x10,
  dump: 0x300,
  create: 0x400,
  append: 0x800,
} as const;

/** Message types that all netlink and netfilter subsystems share. */
export const messageType = { error: 2, done: 3, batchBegin: 16, batchEnd: 17 } as const;

/** NFNL_SUBSYS_NFTABLES. */
export const nftablesSubsystem = 10;

/** `subsystem << 8 | NFT_MSG_*`. */
export const nftables = {
  getTable: (nftablesSubsystem << 8) | 1,
  newChain: (nftablesSubsystem << 8) | 3,
  getChain: (nftablesSubsystem << 8) | 4,
  newRule: (nftablesSubsystem << 8) | 6,
  getRule: (nftablesSubsystem << 8) | 7,
  deleteRule: (nftablesSubsystem << 8) | 8,
  getSet: (nftablesSubsystem << 8) | 10,
  newElement: (nftablesSubsystem << 8) | 12,
  getElement: (nftablesSubsystem << 8) | 13,
  deleteElement: (nftablesSubsystem << 8) | 14,
  newGeneration: (nftablesSubsystem << 8) | 15,
  getGeneration: (nftablesSubsystem << 8) | 16,
} as const;

/** Types of attributes: NFTA_TABLE_* and so on; `list` is NFTA_LIST_*. */
export const attribute = {
  batch: { generation: 1 },
  generation: { id: 1 },
  table: { name: 1, flags: 2 },
  chain: { table: 1, name: 3, hook: 4, policy: 5, type: 7 },
  hook: { number: 1, priority: 2 },
  rule: { table: 1, chain: 2, expressions: 4 },
  expression: { name: 1, data: 2 },
  set: { table: 1, name: 2, flags: 3 },
  /** NFTA_SET_ELEM_LIST_*. */
  elementList: { table: 1, set: 2, elements: 3 },
  /** NFTA_SET_ELEM_*. */
  element: { key: 1, data: 2, userData: 6 },
  list: { item: 1 },
  data: { value: 1, verdict: 2 },
  verdict: { code: 1, chain: 2 },
} as const;

/** NFT_JUMP and NFT_GOTO: negative numbers, as unsigned 32-bit integers. */
export const verdictCode = { jump: 0xffff_fffd, goto: 0xffff_fffc } as const;

/** NFTNL_UDATA_SET_ELEM_COMMENT: type of the user data record that nft shows as the comment of an element. */
export const commentRecord = 0;

/** NFT_TABLE_F_DORMANT. */
export const dormantFlag = 1;

/** NFT_SET_MAP. */
export const mapFlag = 8;

/** Names of the hooks of tables ip and ip6, by number (NF_INET_*). */
export const hookNames = ["prerouting", "input", "forward", "output", "postrouting"] as const;

/** NF_ACCEPT. */
export const acceptPolicy = 1;

/** NFT_META_PRIORITY. */
export const metaPriority = 2;

/**
 * Registers of the nftables virtual machine: NFT_REG_1 holds 16 bytes; NFT_REG32_01 is the second group of 4 of these
 * bytes.
 */
export const register = { first: 1, second: 9 } as const;
