import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { addOptions } from "@kpng/process/options.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { Command } from "commander";
import { expect, test } from "vitest";
import { Sysctls } from "../sysctl/sysctls.ts";
import { createReadableLog } from "../testing/steps.ts";
import { applySettings, conntrackOptions, desiredSettings } from "./conntrack-settings.ts";

function desired(cpuCount: number, ...args: readonly string[]): Readonly<Record<string, number>> {
  const command = addOptions(new Command(), conntrackOptions).parse([...args], { from: "user" });
  return Object.fromEntries(
    desiredSettings(command.opts(), cpuCount).map(({ name, value }) => [basename(name), value]),
  );
}

const timeouts = { nf_conntrack_tcp_timeout_established: 86_400, nf_conntrack_tcp_timeout_close_wait: 3_600 };

test.each([
  {
    name: "few CPUs get the minimum",
    cpus: 2,
    args: [],
    settings: { nf_conntrack_max: 131_072, hashsize: 32_768, ...timeouts },
  },
  {
    name: "many CPUs get the limit per CPU",
    cpus: 16,
    args: [],
    settings: { nf_conntrack_max: 524_288, hashsize: 131_072, ...timeouts },
  },
  {
    name: "very many CPUs get the overall maximum",
    cpus: 256,
    args: [],
    settings: { nf_conntrack_max: 1_048_576, hashsize: 262_144, ...timeouts },
  },
  { name: "0 per CPU keeps the kernel's limit", cpus: 4, args: ["--conntrack-max-per-core", "0"], settings: timeouts },
  {
    name: "each setting has an option",
    cpus: 4,
    args: [
      ...["--conntrack-max-per-core=1000", "--conntrack-min=0", "--conntrack-tcp-be-liberal"],
      ...["--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"],
      ...["--conntrack-udp-timeout=1m", "--conntrack-udp-timeout-stream=90s"],
    ],
    settings: {
      nf_conntrack_max: 4_000,
      hashsize: 1_000,
      nf_conntrack_tcp_be_liberal: 1,
      nf_conntrack_udp_timeout: 60,
      nf_conntrack_udp_timeout_stream: 90,
    },
  },
])("$name", ({ cpus, args, settings }) => {
  expect(desired(cpus, ...args)).toEqual(settings);
});

test("missing settings are written, a larger limit stays, and a setting that cannot be written is logged", async () => {
  const folder = temporaryFolder();
  const at = (name: string): string => join(folder, name);
  mkdirSync(at("unwritable"));
  writeFileSync(at("max"), "262144\n");
  writeFileSync(at("hashsize"), "1024\n");
  writeFileSync(at("timeout"), "30\n");
  const { log, lines } = createReadableLog();
  const settings = [
    { name: "max", value: 131_072, isMinimum: true },
    { name: at("hashsize"), value: 32_768, isMinimum: true },
    { name: "timeout", value: 60 },
    { name: "unwritable", value: 1 },
  ];
  await applySettings(settings, new Sysctls(folder), log);
  const read = (name: string): string => readFileSync(at(name), "utf8").trim();
  expect([read("max"), read("hashsize"), read("timeout")]).toEqual(["262144", "32768", "60"]);
  expect(lines.map(({ msg, path }) => `${msg} ${path}`)).toEqual([
    `kernel setting changed ${at("hashsize")}`,
    `kernel setting changed ${at("timeout")}`,
    `kernel setting not changed ${at("unwritable")}`,
  ]);
});
