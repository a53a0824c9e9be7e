// Sets a fresh clone up and runs a script of the project under its own Node.js:
//
//   node deploy/development/run.mjs [--tools a,b,c] SCRIPT [ARGUMENT...]
//
// Plain JavaScript without packages, because it runs before there are any, on whatever Node.js (≥ 20) the machine has.
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const bin = join(root, "node_modules/.bin");
const marker = join(root, "node_modules/.kpng-installed");

/** Debian's package for each command that is not part of every installation. */
const debianPackages = {
  ip: "iproute2",
  "iptables-restore": "iptables",
  nft: "nftables",
  conntrack: "conntrack",
  nfacct: "nfacct",
  openssl: "openssl",
  etcd: "etcd-server",
  setpriv: "util-linux",
  ping: "iputils-ping",
};

function say(text) {
  process.stderr.write(`setup: ${text}\n`);
}

function isOnPath(command) {
  const folders = [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"];
  return folders.some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** npm packages as the lock file has them; nothing if they are there already. */
function installNpmPackages() {
  const lock = createHash("sha256")
    .update(readFileSync(join(root, "package-lock.json")))
    .digest("hex");
  const wanted = `${lock} ${process.platform} ${process.arch}`;
  if (existsSync(marker) && readFileSync(marker, "utf8") === wanted) return;
  say("installing npm packages, Node.js 24 among them (about a minute)");
  // Without the warnings: that this Node.js is older than the packages want, one by one, is no matter, for none runs under it.
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: root, stdio: ["ignore", 2, 2] });
  writeFileSync(marker, wanted);
}

/** Missing commands, as root on Debian; elsewhere what needs them says so itself. */
function installSystemPackages(tools) {
  const missing = tools.filter((tool) => !isOnPath(tool));
  if (missing.length === 0) return;
  const packages = [...new Set(missing.map((tool) => debianPackages[tool] ?? tool))];
  if (process.getuid?.() !== 0 || !isOnPath("apt-get")) {
    say(
      `not found: ${missing.join(", ")} (Debian: apt-get install ${packages.join(" ")}); what needs them will say so`,
    );
    return;
  }
  say(`installing Debian packages: ${packages.join(" ")}`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const apt = (...args) => execFileSync("apt-get", ["-qq", ...args], { stdio: ["ignore", "ignore", 2], env });
  try {
    apt("update");
    apt("install", "-y", "--no-install-recommends", ...packages);
  } catch {
    say("apt-get failed; what needs the packages will say so");
  }
}

/** Our own Node.js must be there: `npm ci --ignore-scripts` leaves it out without a word. */
function checkNode() {
  let version = "none";
  try {
    version = execFileSync(join(bin, "node"), ["--version"], { encoding: "utf8" }).trim();
  } catch {
    // Said below.
  }
  if (Number(/^v(\d+)/.exec(version)?.[1] ?? 0) >= 24) return;
  say(`node_modules/.bin/node is ${version}, 24 is needed: run "npm ci" without --ignore-scripts`);
  process.exit(1);
}

function run(script, args) {
  const env = { ...process.env, PATH: [bin, process.env.PATH ?? "", "/usr/sbin", "/sbin"].join(delimiter) };
  const child = spawn(join(bin, "node"), [join(root, script), ...args], { stdio: "inherit", env });
  for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => child.kill(name));
  child.on("exit", (code, signal) => process.exit(code ?? (signal === null ? 1 : 130)));
}

const args = process.argv.slice(2);
const tools = args[0] === "--tools" ? args.splice(0, 2)[1].split(",") : [];
const [script, ...rest] = args;
installNpmPackages();
installSystemPackages(tools);
checkNode();
run(script, rest);
