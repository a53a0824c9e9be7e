import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { elsewhere, readBlocks, whereElse } from "./blocks.ts";
import { type Ended, isEndless, Machine, type Running } from "./machine.ts";

// Each block of commands in the documents, typed on a machine of its own: real programs, ports and rules.

vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

/** Exit codes other than 0 that the documents explain: findings, differences, and a count of 0. */
const alsoRight: readonly (readonly [pattern: RegExp, exitCode: number])[] = [
  [/^kpng (file .* )?analyze\b/, 1],
  [/ --diff\b/, 1],
  [/\| grep --count\b/, 1],
];

/** The machines: the example of the README, that of the other documents, and one with TLS and names of hosts. */
type Place = "input" | "example" | "hosts";

function placeOf(path: string, command: string): Place {
  if (/watcher:12090|10\.0\.0\.11|\/proxy\.sock/.test(command)) return "hosts";
  return path === "README.md" ? "input" : "example";
}

/** Puts names of the example in the place of the reader's. */
function withNames(command: string): string {
  return command.replaceAll(/\bNODE\b/g, "n1").replaceAll(/\b1234\b/g, "1");
}

test.each(elsewhere)("commands that match $pattern exist, and so does the test that runs them", (one) => {
  const all = readBlocks().flatMap(({ path, commands }) => commands.map((command) => whereElse(path, command)));
  expect(all).toContain(one);
  expect(existsSync(one.test), one.test).toBe(true);
});

function describeBlocks(name: string, own: Place, prepare: (machine: Machine) => Promise<void>): void {
  const blocks = readBlocks()
    .map(({ path, place, commands }) => ({
      place,
      commands: commands.filter((one) => !whereElse(path, one) && placeOf(path, one) === own),
    }))
    .filter(({ commands }) => commands.length > 0);
  describePackets(name, () => {
    let machine: Machine;
    /** For commands that serve: the default ports are taken on the first machine. */
    let free: Machine;
    beforeAll(async () => {
      [machine, free] = await Promise.all([Machine.open(), Machine.open()]);
      for (const one of [machine, free]) await one.run("cp test/documents/example.yaml state.yaml");
      await prepare(machine);
    });
    afterAll(async () => {
      await Promise.all([machine.close(), free.close()]);
    });
    test.for(blocks)("$place works as typed", async ({ commands }, { skip }) => {
      if (commands.some((one) => one.includes("pip install")) && !hasWheels && process.env.CI !== "true")
        skip("pip cannot download grpcio and protobuf");
      const running: (readonly [string, Running])[] = [];
      const check = (command: string, { exitCode, output }: Ended): void => {
        const right = alsoRight.flatMap(([pattern, code]) => (pattern.test(command) ? [code] : []));
        expect([0, "served", ...right], `${command}\n${output}`).toContain(exitCode);
        expect(output, command).not.toMatch(/command not found|: (error|Error): /);
      };
      try {
        for (const command of commands.map(withNames)) {
          const where = /\bto-api\b/.test(command) && own !== "hosts" ? free : machine;
          // The next commands of a block use what the ones before it serve; a recording is complete when it has ended.
          if (!isEndless(command)) check(command, await where.run(command));
          else if (/^kpng record\b/.test(command)) check(command, await (await where.follow(command)).end());
          else running.push([command, await where.follow(command)]);
        }
      } finally {
        for (const [command, one] of running.reverse()) check(command, await one.end());
      }
    });
  });
}

const watcher = "kpng file -i FILE to-api --metrics-bind-address :12091 --healthz-bind-address :9100";

describeBlocks("the commands of the README", "input", async (machine) => {
  await machine.serve(watcher.replace("FILE", "test/fixtures/kpng/input.yaml"), '"msg":"input read"');
});

describeBlocks("the commands of the other documents", "example", async (machine) => {
  const labels = "--with-service-labels '*' --with-node-labels '*'";
  await machine.serve(`${watcher.replace("FILE", "state.yaml")} ${labels}`, '"msg":"input read"');
  const node = "--api 127.0.0.1:12090 --node-name n1";
  await machine.serve(
    `kpng-nft ${node} --healthz-bind-address 127.0.0.1:10256 --inspect-socket /run/kpng/inspect.sock`,
    '"msg":"stream in sync"',
  );
  await machine.run("ln -s inspect.sock /run/kpng/nft.sock");
  preparePython(machine);
  // As a network plugin sets it up.
  await machine.run(
    "mount -t sysfs sysfs /sys; ip link add cni0 type bridge; ip link add veth0 type veth peer name eth0; " +
      "ip link set veth0 master cni0; bridge link set dev veth0 hairpin on",
  );
  const quiet = "--healthz-bind-address 127.0.0.1:10266 --metrics-bind-address 127.0.0.1:10259";
  await machine.serve(
    `kpng-iptables ${node} ${quiet} --dry-run --inspect-socket /run/kpng/iptables.sock`,
    '"msg":"stream in sync"',
  );
});

/** False if pip could not download the packages of the backend in Python. */
let hasWheels = false;

/** Downloads the packages of the backend in Python, because a machine has no network. */
function preparePython({ folder }: Machine): void {
  const download = "pip download --quiet --dest wheels grpcio protobuf";
  hasWheels = spawnSync("python3", ["-m", ...download.split(" ")], { cwd: folder, stdio: "ignore" }).status === 0;
}

describeBlocks("the commands for other hosts", "hosts", async (machine) => {
  await machine.run(
    "ip address add 10.0.0.11/32 dev lo; (cat /etc/hosts; echo 10.0.0.11 watcher) > hosts; mount --bind hosts /etc/hosts",
  );
  const rights = { operator: "inspection", relay: "state", node: "node/n1 --right kpng://node/$(hostname)" };
  const { exitCode, output } = await machine.run(
    [
      "kpng certificates serving --name 10.0.0.11 --name watcher",
      ...Object.entries(rights).map(([name, right]) => `kpng certificates client ${name} --right kpng://${right}`),
      "cd kpng-certificates; for one in key crt; do cp serving.$one tls.$one; done; cp *.key *.crt ..",
    ].join("\n"),
  );
  expect(exitCode, output).toBe(0);
  const tls = "--listen-tls-key tls.key --listen-tls-crt tls.crt --listen-tls-ca ca.crt";
  await machine.serve(`kpng file -i state.yaml to-api --listen tcp://10.0.0.11:12090 ${tls}`, '"msg":"input read"');
});
