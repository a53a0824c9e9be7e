import { readFileSync } from "node:fs";
import { configFields } from "@kpng/backend-kit/config/config-file.ts";
import { expect, test } from "vitest";
import { knownOptions } from "./command-faults.ts";
import { distinctMatches } from "./documents.ts";

/**
 * Flags of kube-proxy 1.36.3. *Source:* its `--help`; the deprecated `--healthz-port` and `--metrics-port`, which that
 * does not list; and `cmd/kube-proxy/app/init_windows.go`.
 */
const kubeProxyFlags: readonly string[] = `
--bind-address --bind-address-hard-fail --boot-id-file --cleanup --cluster-cidr --config --config-sync-period
--conntrack-max-per-core --conntrack-min --conntrack-tcp-be-liberal --conntrack-tcp-timeout-close-wait
--conntrack-tcp-timeout-established --conntrack-udp-timeout --conntrack-udp-timeout-stream --detect-local-mode
--feature-gates --healthz-bind-address --help --hostname-override --init-only --iptables-localhost-nodeports
--iptables-masquerade-bit --iptables-min-sync-period --iptables-sync-period --ipvs-exclude-cidrs
--ipvs-min-sync-period --ipvs-scheduler --ipvs-strict-arp --ipvs-sync-period --ipvs-tcp-timeout --ipvs-tcpfin-timeout
--ipvs-udp-timeout --kube-api-burst --kube-api-content-type --kube-api-qps --kubeconfig --log-flush-frequency
--log-json-info-buffer-size --log-json-split-stream --log-text-info-buffer-size --log-text-split-stream
--logging-format --machine-id-file --masquerade-all --master --metrics-bind-address --nodeport-addresses
--oom-score-adj --pod-bridge-interface --pod-interface-name-prefix --profiling --proxy-mode
--show-hidden-metrics-for-version --v --version --vmodule --write-config-to
--healthz-port --metrics-port
--enable-dsr --forward-healthcheck-vip --network-name --root-hnsendpoint-name --source-vip --windows-service
`
  .trim()
  .split(/\s+/);

interface Row {
  readonly flags: readonly string[];
  readonly fields: readonly string[];
  readonly options: readonly string[];
  readonly comparison: string;
}

const rows: readonly Row[] = readFileSync("docs/reference/kube-proxy-flags.md", "utf8")
  .split("\n")
  .filter((line) => line.startsWith("| ") && !line.startsWith("| kube-proxy |"))
  .map((line) => {
    const [flags = "", fields = "", options = "", comparison = ""] = line.replace(/^\| ?/, "").split(/ ?\| ?/);
    return { flags: codeIn(flags), fields: codeIn(fields), options: codeIn(options), comparison };
  });

function codeIn(cell: string): readonly string[] {
  return distinctMatches(cell, /`([^`]+)`/g);
}

test("the page names each flag of kube-proxy once, and no other", () => {
  expect(rows.flatMap(({ flags }) => flags).toSorted()).toEqual(kubeProxyFlags.toSorted());
});

test("each option that the page names for a flag or field exists", () => {
  const unknown = rows.flatMap(({ options }) => options).filter((option) => !knownOptions.has(option));
  expect(unknown).toEqual([]);
});

test.each(Object.entries(configFields))(
  "the page has the option that --config sets for the field %s",
  (field, flag) => {
    const options = rows.filter(({ fields }) => fields.includes(field)).flatMap((row) => row.options);
    expect(options).toEqual([flag]);
  },
);

test("a field with an option on the page, besides the mode and those that are ignored, is one that --config reads", () => {
  const others = rows
    .filter(({ options, comparison }) => options.length > 0 && !/ignored/.test(comparison))
    .flatMap(({ fields }) => fields.filter((field) => configFields[field] === undefined));
  expect(others).toEqual([]);
});

test("each row says whether kpng does the same", () => {
  const unclear = rows.filter(({ options, comparison }) => {
    if (/^(?:same|differs)\b/.test(comparison)) return false;
    return !comparison.startsWith("not supported") || options.length > 0;
  });
  expect(unclear).toEqual([]);
});
