import { spawnSync } from "node:child_process";

/** Runs the benchmarks: `npm run bench` runs all, `npm run bench -- fan-out` one with the arguments that follow. */
const benchmarks: Readonly<Record<string, readonly string[]>> = {
  "fan-out": ["node", "test/scale/fan-out.ts"],
  newcomers: ["node", "test/scale/newcomers.ts"],
  model: ["node", "test/scale/model/main.ts"],
  userspace: ["node", "test/scale/carry/bench.ts"],
  // Sets its rules in a new network namespace.
  "iptables-alone": ["unshare", "--net", "node", "services/backend-iptables/src/testing/bench.ts"],
  "nft-patch": ["node", "test/scale/proxies/nft-patch.ts"],
  "beside-kube-proxy": ["node", "test/scale/proxies/beside-kube-proxy.ts"],
  // Its maps are in a BPF file system of its own.
  "ebpf-alone": [
    ...["unshare", "--net", "--mount", "sh", "-c"],
    'mount -t bpf bpf /sys/fs/bpf && exec node services/backend-ebpf/src/testing/bench.ts "$@"',
    "sh",
  ],
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
