import { isIP } from "node:net";
import { isRecord } from "@kpng/model/is-record.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { KubeConnection } from "@kpng/watcher/source/kube/connection.ts";
import type { SubjectName } from "./issue.ts";

const dnsName = /^(?:\*\.)?(?:[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?$/;

/**
 * Returns the name of a watcher as it is in the certificate. *Shape:* `10.0.0.11`, `fd00::11`, `watcher.example`.
 *
 * `kpng certificates serving` calls it for `--name`. The functions of this file are separate from `issue.ts`, which
 * trusts its arguments: they check what the user or the API server gave.
 *
 * Errors: BAD_OPTION.
 */
export function subjectNameOf(text: string): SubjectName {
  if (isIP(text) !== 0) return { type: "ip", value: text };
  if (text.length <= 253 && dnsName.test(text)) return { type: "dns", value: text };
  throw new ProcessError("BAD_OPTION", `--name "${text}" is neither an address nor a DNS name: write 10.0.0.11`);
}

const nodeName = /^kpng:\/\/node\/(?:\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$/;

/**
 * Returns a right of a client as it is in the certificate; `rightsOfCertificate` of the watcher lists them. For the
 * option `--right` of `kpng certificates client`.
 *
 * Errors: BAD_OPTION.
 */
export function rightNameOf(text: string): SubjectName {
  if (text === "kpng://state" || text === "kpng://inspection" || nodeName.test(text))
    return { type: "url", value: text };
  const known = "kpng://node/NAME, kpng://node/*, kpng://state, kpng://inspection";
  throw new ProcessError("BAD_OPTION", `--right "${text}" is not a right: use ${known}`);
}

/** Kinds of node addresses that other nodes reach. */
const usedTypes = new Set(["InternalIP", "InternalDNS", "Hostname"]);

const limitMs = 20_000;

/**
 * Returns the internal addresses and names of the Nodes with a label, which the API server knows. For the option
 * `--node-selector`. *Shape of `selector`:* as for `kubectl get nodes --selector`.
 *
 * Errors: REQUEST_FAILED, also if no Node matches.
 */
export async function namesOfNodes(
  connection: KubeConnection,
  selector: string,
  signal: AbortSignal,
): Promise<readonly SubjectName[]> {
  const nodes = await list(connection, `/api/v1/nodes?labelSelector=${encodeURIComponent(selector)}`, signal);
  if (nodes.length === 0) throw new ProcessError("REQUEST_FAILED", `no Node matches --node-selector "${selector}"`);
  const addresses = nodes.flatMap((node) => {
    const status = isRecord(node) && isRecord(node.status) ? node.status : {};
    return Array.isArray(status.addresses) ? (status.addresses as readonly unknown[]) : [];
  });
  const texts = addresses.flatMap((one) =>
    isRecord(one) && usedTypes.has(String(one.type)) && typeof one.address === "string" ? [one.address] : [],
  );
  return [...new Set(texts)].toSorted().map(subjectNameOf);
}

async function list(connection: KubeConnection, path: string, signal: AbortSignal): Promise<readonly unknown[]> {
  let text = "";
  let status: number;
  try {
    const response = await connection.get(path, AbortSignal.any([signal, AbortSignal.timeout(limitMs)]));
    ({ status } = response);
    for await (const chunk of response.body) text += chunk.toString("utf8");
  } catch (cause) {
    throw new ProcessError("REQUEST_FAILED", `${connection.server} cannot be asked for its Nodes`, { cause });
  } finally {
    connection.close();
  }
  if (status !== 200) {
    throw new ProcessError(
      "REQUEST_FAILED",
      `${connection.server} does not list its Nodes (${status}): ${text.slice(0, 300)}`,
    );
  }
  const body: unknown = JSON.parse(text);
  return isRecord(body) && Array.isArray(body.items) ? body.items : [];
}
