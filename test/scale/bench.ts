import { spawnSync } from "node:child_process";

/** Runs the benchmarks: `npm run bench` runs all, `npm run bench -- kube-source` one with the arguments that follow. */
const benchmarks: Readonly<Record<string, readonly string[]>> = {
  "fan-out": ["node", "test/scale/fan-out.ts"],
  newcomers: ["node", "test/scale/newcomers.ts"],
  "kube-source": ["node", "test/scale/kube-source.ts"],
  iptables: ["node", "test/scale/iptables.ts"],
  relays: ["node", "test/scale/relays.ts"],
  userspace: ["node", "test/scale/carry/bench.ts"],
  // Sets its rules in a new network namespace.
  "iptables-alone": ["unshare", "--net", "node", "services/backend-iptables/src/testing/bench.ts"],
  "nft-patch": ["node", "test/scale/proxies/nft-patch.ts"],
  nft: ["node", "test/scale/proxies/nft.ts"],
  // Its maps are in a BPF file system of its own.
  "ebpf-alone": [
    ...["unshare", "--net", "--mount", "sh", "-c"],
    'mount -t bpf bpf /sys/fs/bpf && exec node services/backend-ebpf/src/testing/bench.ts "$@"',
    "sh",
  ],
  "nft-alone": ["unshare", "--net", "node", "services/nftables/src/testing/bench.ts"],
};

const [name, ...rest] = process.argv.slice(2);
const chosen = name === undefined ? Object.keys(benchmarks) : [name];
for (const one of chosen) {
  const command = benchmarks[one];
  if (command === undefined) {
    process.stderr.write(`unknown benchmark "${one}": use one of ${Object.keys(benchmarks).join(", ")}\n`);
    process.exit(2);
  }
  process.stdout.write(`\n# ${one}\n\n`);
  const [program = "", ...args] = [...command, ...rest];
  const { status } = spawnSync(program, args, { stdio: "inherit" });
  if (status !== 0) process.exitCode = 1;
}
