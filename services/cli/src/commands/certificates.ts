import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { addOptions, type OptionSpec, parseWholeNumber, repeatable, textOption } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Command } from "commander";
import type { CertificateRequest, SubjectName } from "../certificates/issue.ts";
import type { Options } from "../context/command-context.ts";
import { withPlainErrors } from "../inspect/client.ts";

const issueOptions: readonly OptionSpec[] = [
  textOption(
    "--folder <folder>",
    "folder of the CA (ca.key, ca.crt) and of the files written; a missing CA is made",
    "kpng-certificates",
  ),
  {
    flags: "--days <count>",
    description: "days until the certificate expires; not later than its CA, which is made for 10 years",
    default: 365,
    parse: parseWholeNumber("--days", 1, 3_650),
  },
];

const nameOption = repeatable(
  "--name <name>",
  "address or DNS name under which nodes reach a watcher, as in their --api; several separated by commas or spaces",
);

const rightOption = repeatable(
  "--right <uri>",
  "what the client may do: kpng://node/NAME, kpng://node/*, kpng://state or kpng://inspection",
);

/** `kpng certificates`: makes a CA and certificates for watchers and their clients. */
export function makeCertificates(): Command {
  const serving = addOptions(new Command("serving"), [nameOption, ...issueOptions])
    .description("issue the certificate with which watchers serve TLS")
    .addHelpText(
      "after",
      `
Examples:
  kpng certificates serving --name 10.0.0.11 --name watcher.example

docs/install.md has the commands for a cluster.
`,
    )
    .action((options: Options) => withPlainErrors(() => issueServing(options)));
  const client = addOptions(new Command("client"), [rightOption, ...issueOptions])
    .argument("<name>", "name of the client, and of the files: NAME.key and NAME.crt")
    .description("issue a certificate for a client of watchers")
    .addHelpText(
      "after",
      `
Examples:
  kpng certificates client n1 --right kpng://node/n1
  kpng certificates client operator --right kpng://inspection --days 30
`,
    )
    .action((name: string, options: Options) => withPlainErrors(() => issueClient(name, options)));
  return new Command("certificates").addCommand(serving).addCommand(client);
}

async function issueServing(options: Options): Promise<void> {
  const texts = (options.name as readonly string[]).flatMap((text) => text.split(/\s+/).filter((word) => word !== ""));
  if (texts.length === 0) throw new ProcessError("BAD_OPTION", "a serving certificate needs a name: give --name");
  const names = [...new Set(texts)].map(subjectNameOf);
  await issue(options, "serving", { commonName: "kpng-watcher", names, usage: "server" });
}

async function issueClient(name: string, options: Options): Promise<void> {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/.test(name) || name === "ca" || name === "serving") {
    const text = `the name "${name}" cannot be that of a file: use letters, digits, ".", "_", "-"; not "ca" or "serving"`;
    throw new ProcessError("BAD_OPTION", text);
  }
  const names = (options.right as readonly string[]).map(rightNameOf);
  if (names.length === 0) throw new ProcessError("BAD_OPTION", "a client certificate without --right allows nothing");
  await issue(options, name, { commonName: name.slice(0, 64), names, usage: "client" });
}

async function issue(options: Options, name: string, request: Omit<CertificateRequest, "days">): Promise<void> {
  // Load the X.509 library only on demand, because it takes a tenth of a second.
  const { issueCertificate, openAuthority, writePair } = await import("../certificates/issue.ts");
  const [now, folder] = [new Date(), String(options.folder)];
  const authority = await openAuthority(folder, now);
  if (authority.isNew) say(`new CA: ${folder}/ca.crt; keep ${folder}/ca.key secret, and for the next certificate`);
  const pair = await issueCertificate(authority, { ...request, days: Number(options.days) }, now);
  const end = new X509Certificate(pair.certificate).validToDate.toISOString();
  say(`certificate for ${request.names.map(({ value }) => value).join(", ")}, valid until ${end}`);
  say(`written: ${writePair(folder, name, pair).join(", ")}`);
}

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

const dnsName = /^(?:\*\.)?(?:[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?$/;

/** Returns a watcher's name in the form used in its certificate. Errors: BAD_OPTION. */
export function subjectNameOf(text: string): SubjectName {
  if (isIP(text) !== 0) return { type: "ip", value: text };
  if (text.length <= 253 && dnsName.test(text)) return { type: "dns", value: text };
  throw new ProcessError("BAD_OPTION", `--name "${text}" is neither an address nor a DNS name: write 10.0.0.11`);
}

const right = /^kpng:\/\/(?:state|inspection|node\/(?:\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?))$/;

/** Returns a client's right in the form used in its certificate; see `rightsOfCertificate`. Errors: BAD_OPTION. */
export function rightNameOf(text: string): SubjectName {
  if (right.test(text)) return { type: "url", value: text };
  const known = "kpng://node/NAME, kpng://node/*, kpng://state, kpng://inspection";
  throw new ProcessError("BAD_OPTION", `--right "${text}" is not a right: use ${known}`);
}
