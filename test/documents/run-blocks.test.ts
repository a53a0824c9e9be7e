import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { type Block, readBlocks } from "./blocks.ts";
import { whereElse } from "./elsewhere.ts";
import { Machine } from "./machine.ts";

// Each block of commands in the documents, typed on a machine of its own: real programs, ports and rules.

vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

/** Exit codes other than 0 that the documents explain: findings, differences, and a count of 0. */
const alsoRight: readonly (readonly [pattern: RegExp, exitCode: number])[] = [
  [/^kpng (file .* )?analyze\b/, 1],
  [/^kpng diff\b/, 1],
  [/\| grep --count\b/, 1],
];

/** The documents whose examples are about test/fixtures/kpng/input.yaml. */
const isAboutInput = ({ path }: Block): boolean => path === "README.md" || path === "docs/first-hour.md";

function describeBlocks(name: string, blocks: readonly Block[], prepare: (machine: Machine) => Promise<void>): void {
  const own = blocks
    .map(({ path, place, commands }) => ({ place, commands: commands.filter((one) => !whereElse(path, one)) }))
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
    test.each(own)("$place works as typed", async ({ commands }) => {
      for (const command of commands) {
        const { exitCode, output } = await (/\bto-api\b/.test(command) ? free : machine).run(command);
        const right = alsoRight.flatMap(([pattern, code]) => (pattern.test(command) ? [code] : []));
        expect([0, "served", ...right], `${command}\n${output}`).toContain(exitCode);
        expect(output, command).not.toMatch(/command not found|: (error|Error): /);
      }
    });
  });
}

const blocks = readBlocks();
const watcher = "kpng file -i FILE to-api --metrics-bind-address :12091 --healthz-bind-address :9100";

describeBlocks("the commands of the README and the first hour", blocks.filter(isAboutInput), async (machine) => {
  await machine.serve(watcher.replace("FILE", "test/fixtures/kpng/input.yaml"), '"msg":"input read"');
});

const others = blocks.filter((block) => !isAboutInput(block));

describeBlocks("the commands of the other documents", others, async (machine) => {
  const labels = "--with-service-labels '*' --with-node-labels '*'";
  await machine.serve(`${watcher.replace("FILE", "state.yaml")} ${labels}`, '"msg":"input read"');
  const node = "--api 127.0.0.1:12090 --node-name n1";
  await machine.serve(
    `kpng-nft ${node} --service-traffic --healthz-bind-address 127.0.0.1:10256 --inspect-socket /run/kpng/inspect.sock`,
    '"msg":"stream in sync"',
  );
  await machine.run("ln -s inspect.sock /run/kpng/nft.sock");
  const quiet = "--healthz-bind-address 127.0.0.1:10266 --metrics-bind-address 127.0.0.1:10259";
  await machine.serve(
    `kpng-iptables ${node} ${quiet} --dry-run --inspect-socket /run/kpng/iptables.sock`,
    '"msg":"stream in sync"',
  );
});
