import { fileURLToPath } from "node:url";
import { ebpfBackend } from "@kpng/backend-ebpf/backend.ts";
import { iptablesBackend } from "@kpng/backend-iptables/backend.ts";
import { ipvsBackend } from "@kpng/backend-ipvs/backend.ts";
import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { nftBackend } from "@kpng/backend-nft/backend.ts";
import { userspaceBackend } from "@kpng/backend-userspace/backend.ts";

/** One cell of the fault matrix: a fault of the watcher, its moment, and the rules in the kernel. */
export interface FaultCell {
  /** Moment of the fault. */
  readonly phase: "start" | "running" | "restart" | "reboot";
  /** The watcher from then on: none, a new one, one with an old state, or one that sends an invalid stream. */
  readonly watcher: "away" | "restarted" | "stale" | "hostile";
  /** Rules in the kernel: after a reboot, "installed" ones are old and were restored by another program. */
  readonly rules: "installed" | "absent" | "damaged" | "foreign";
  /** Endpoint that must answer at the cluster IP in the end; "" for none. */
  readonly wanted: string;
  /** Whether /healthz must answer 200 in the end. */
  readonly isHealthy: boolean;
}

/** A backend of the fault matrix, and shell commands that change its rules as other programs would. */
export interface FaultSubject {
  readonly backend: BackendCommand;
  /** Options that let it sync without a pause. */
  readonly options: ParsedOptions;
  /** Makes what the backend needs besides the node's network, and removes it. `$FOLDER` is a folder for files. */
  readonly prepare?: string;
  readonly finish?: string;
  /** Removes all rules of the node. */
  readonly removeRules: string;
  /**
   * Brings the rules of an earlier run into the state of a cell. Rows of a state that it lacks are left out: the jumps
   * of rules are tested as they are repaired, in `soak.nightly.test.ts`.
   */
  readonly make: Readonly<Record<FaultCell["rules"], string>>;
  /**
   * Rows of the matrix that cannot exist for this backend, or are not tested with it, with the reason. Default: none.
   */
  readonly leftOut?: Partial<Record<FaultCell["phase"], Partial<Record<FaultCell["rules"], string>>>>;
  /**
   * Whether damaged rules of an earlier run do not count as installed, so that the saved view replaces them at once.
   * Default false: the next watcher's view does.
   */
  readonly noticesDamage?: boolean;
  /** Whether the rules end with the process: /healthz fails until they are installed again. Default false. */
  readonly endsWithProcess?: boolean;
}

/** A table of another program, with a hook before ours. */
const addOtherTable =
  "nft 'add table ip other; add chain ip other output { type nat hook output priority -110; }; add rule ip other output ip daddr 192.0.2.1 dnat to 192.0.2.2'";

/** Maps of several backends are in memory at the same time. */
const smallMaps = { maxFrontends: 64, maxEndpoints: 64, maxAffinityClients: 64 };
const damageProgram = fileURLToPath(new URL("../../../services/backend-ebpf/src/testing/damage.ts", import.meta.url));
const damageMaps = `'${process.execPath}' '${damageProgram}' frontends '${JSON.stringify(smallMaps)}'`;
const removeMaps = "rm -rf /sys/fs/bpf/kpng-ebpf; nft flush ruleset";

const ended = "the rules of an earlier run ended with it";

const removeIpvs = `ipvsadm -C
ip link delete kube-ipvs0 2>/dev/null || true
for c in iptables ip6tables; do for t in mangle nat filter; do $c -t $t -F; $c -t $t -X; done; done
for s in $(ipset list -n); do ipset destroy $s; done`;
const firstStart = "all scenarios of kpng-ipvs.test.ts begin without rules";
const asOthers = "the kit decides what happens, as other backends test";

/** Repeated, because a backend that runs may repair its rules between the two commands. */
const flushIptables =
  "for c in iptables ip6tables; do for t in nat filter; do until $c -t $t -F && $c -t $t -X; do sleep 0.1; done; done; done";

/** All backends of the matrix, by name; `run-cells.ts` runs one of them. */
export const faultSubjects = {
  iptables: {
    backend: iptablesBackend,
    options: { iptablesMinSyncPeriod: 0 },
    removeRules: flushIptables,
    make: {
      installed: "true",
      absent: flushIptables,
      damaged:
        "for c in $(iptables-save -t nat | grep -o '^:KPNG-SVC-[^ ]*' | tr -d :); do iptables -t nat -F $c; done",
      foreign: "iptables -t nat -N OTHER 2>/dev/null || true; iptables -t nat -I OUTPUT -d 192.0.2.1 -j OTHER",
    },
  },
  nft: {
    backend: nftBackend,
    options: { nftablesMinSyncPeriod: 0 },
    removeRules: "nft flush ruleset",
    make: {
      installed: "true",
      absent: "nft flush ruleset",
      damaged: "nft flush map ip kpng slots",
      // A chain of another program in our table, too.
      foreign: `${addOtherTable}; nft add chain ip kpng other 2>/dev/null || true`,
    },
  },
  userspace: {
    backend: userspaceBackend,
    options: { nftablesMinSyncPeriod: 0, entry: "redirect" },
    removeRules: "nft flush ruleset",
    make: {
      installed: "true",
      absent: "nft flush ruleset",
      damaged: "nft flush map ip kpng-user frontends",
      foreign: addOtherTable,
    },
    leftOut: {
      restart: { installed: ended, damaged: ended },
      reboot: { installed: ended, damaged: ended },
    },
    endsWithProcess: true,
  },
  ebpf: {
    backend: ebpfBackend,
    options: { nftablesMinSyncPeriod: 0, cgroup: "/mnt", ...smallMaps },
    // Sockets of this process are served, and not those of the machine.
    prepare: `mount -t bpf bpf /sys/fs/bpf
cgroup=$(mktemp -d "$(sed -n 's/^[^ ]* \\([^ ]*\\) cgroup2 .*/\\1/p' /proc/self/mounts | head -n 1)/kpng-faults-XXXXXX")
echo "$cgroup" >"$FOLDER/cgroup"
mount --bind "$cgroup" /mnt
echo $PPID >/mnt/cgroup.procs`,
    finish: `cgroup=$(cat "$FOLDER/cgroup")
for id in $PPID $$; do echo $id >"$(dirname "$cgroup")/cgroup.procs"; done
rmdir "$cgroup"`,
    removeRules: removeMaps,
    make: {
      installed: "true",
      absent: removeMaps,
      damaged: `${damageMaps}; nft flush map ip kpng-ebpf slots`,
      // A chain of another program in our table, too.
      foreign: `${addOtherTable}; nft add chain ip kpng-ebpf other 2>/dev/null || true`,
    },
  },
  // In a guest, where a cell takes 15 s.
  ipvs: {
    backend: ipvsBackend,
    options: { ipvsMinSyncPeriod: 0, ipvsSyncPeriod: 100 },
    removeRules: removeIpvs,
    make: {
      installed: "true",
      absent: removeIpvs,
      damaged: "ipvsadm -C",
      foreign: "ipvsadm -A -t 203.0.113.9:80 -s lc",
    },
    noticesDamage: true,
    leftOut: {
      start: { absent: firstStart, foreign: firstStart },
      running: { installed: asOthers, absent: asOthers, foreign: asOthers },
      restart: { foreign: "a check of kpng-ipvs.test.ts has foreign virtual servers" },
      reboot: { damaged: "old rules are replaced as a whole, damaged or not" },
    },
  },
} as const satisfies Readonly<Record<string, FaultSubject>>;

export type FaultSubjectName = keyof typeof faultSubjects;
