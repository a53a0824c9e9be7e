// Installs what a fresh clone needs and runs a script of the project with the Node.js of node_modules:
//
//   node deploy/development/run.mjs [--tools a,b,c] SCRIPT [ARGUMENT...]
//
// Plain JavaScript without packages: it runs before packages are installed, on the Node.js (≥ 20) of the machine.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, readFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const bin = join(root, "node_modules/.bin");

/** Debian package of each command, or of a file that is on no PATH, where its name differs. */
const debianPackages = {
  ip: "iproute2",
  "iptables-restore": "iptables",
  nft: "nftables",
  conntrack: "conntrack",
  nginx: "nginx-core",
  openssl: "openssl",
  setpriv: "util-linux",
  ping: "iputils-ping",
  "/usr/lib/cni/bridge": "containernetworking-plugins",
  "/usr/lib/frr/bgpd": "frr",
  "/bin/busybox": "busybox-static",
  dockerd: "docker.io",
  "docker-compose": "docker-compose",
  "linux.uml": "user-mode-linux",
  modprobe: "kmod",
  ipvsadm: "ipvsadm",
  ipset: "ipset",
  "qemu-system-x86_64": "qemu-system-x86",
  xz: "xz-utils",
};

/** Boots the guests of tests where user-mode Linux does not, as on CPUs with AMX. See test/guest. */
const emulator = "qemu-system-x86_64";

function say(text) {
  process.stderr.write(`setup: ${text}\n`);
}

function isOnPath(command) {
  const folders = command.startsWith("/")
    ? ["/"]
    : [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"];
  return folders.some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Packages by folder, of a lock file; {} if it does not exist. */
function lockedPackages(path) {
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).packages : {};
}

/**
 * True if node_modules has the packages of package-lock.json, whichever command installed them. npm lists there what it
 * installed; packages for other platforms are absent.
 */
function hasNpmPackages() {
  const installed = lockedPackages(join(root, "node_modules/.package-lock.json"));
  return Object.entries(lockedPackages(join(root, "package-lock.json"))).every(([folder, wanted]) => {
    if (!folder.startsWith("node_modules/") || installed[folder] !== undefined) {
      return !folder.startsWith("node_modules/") || wanted.version === installed[folder].version;
    }
    const isForUs = wanted.os?.includes(process.platform) && wanted.cpu?.includes(process.arch) && !wanted.libc;
    return wanted.optional === true && !isForUs;
  });
}

/** Installs the npm packages of the lock file, unless they are installed. */
function installNpmPackages() {
  if (hasNpmPackages()) return;
  say("installing npm packages, including Node.js 24 (about a minute)");
  // Without warnings: npm would warn for each package that this Node.js is too old, but the packages run on Node.js 24.
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: root, stdio: ["ignore", 2, 2] });
}

/** Whether user-mode Linux starts a process on this CPU. Takes a second. */
function bootsUserModeLinux() {
  const args = ["mem=64M", "rootfstype=hostfs", "rootflags=/", "ro", "init=/bin/busybox", "con=null", "con0=fd:0,fd:1"];
  const child = spawn("linux.uml", [...args, "--", "poweroff", "-f"], { stdio: "ignore", detached: true });
  return new Promise((resolve) => {
    const end = (boots) => {
      clearTimeout(timer);
      // After a panic, some of its processes go on. All are in its process group.
      if (child.pid !== undefined && !boots) spawnSync("kill", ["-KILL", "--", `-${child.pid}`], { stdio: "ignore" });
      resolve(boots);
    };
    const timer = setTimeout(() => end(false), 60_000);
    child.once("error", () => end(false)).once("exit", (code) => end(code === 0));
  });
}

/** Installs QEMU if tests need a guest and user-mode Linux does not boot. */
async function installEmulator(tools) {
  if (!tools.includes("linux.uml") || process.getuid?.() !== 0 || isOnPath(emulator)) return;
  if (!isOnPath("linux.uml") || (await bootsUserModeLinux())) return;
  say("user-mode Linux does not boot on this CPU; tests of IPVS will use QEMU");
  installSystemPackages([emulator, "xz"]);
}

/** Installs missing commands on Debian as root. Elsewhere it only names them; tests that need one fail and name it. */
function installSystemPackages(tools) {
  const missing = tools.filter((tool) => !isOnPath(tool));
  if (missing.length === 0) return;
  const packages = [...new Set(missing.map((tool) => debianPackages[tool] ?? tool))];
  if (process.getuid?.() !== 0 || !isOnPath("apt-get")) {
    say(
      `not found: ${missing.join(", ")} (Debian: apt-get install ${packages.join(" ")}); steps that need them will fail`,
    );
    return;
  }
  say(`installing Debian packages: ${packages.join(" ")}`);
  // RUNLEVEL: packages start no service.
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  const apt = (...args) => execFileSync("apt-get", ["-qq", ...args], { stdio: ["ignore", "ignore", 2], env });
  try {
    apt("update");
    apt("install", "-y", "--no-install-recommends", ...packages);
  } catch {
    say("apt-get failed; steps that need the packages will fail");
  }
}

/** Exits if Node.js 24 is missing in node_modules: `npm ci --ignore-scripts` silently omits it. */
function checkNode() {
  let version = "none";
  try {
    version = execFileSync(join(bin, "node"), ["--version"], { encoding: "utf8" }).trim();
  } catch {
    // Reported below.
  }
  if (Number(/^v(\d+)/.exec(version)?.[1] ?? 0) >= 24) return;
  say(`node_modules/.bin/node is ${version}, but 24 is required: run "npm ci" without --ignore-scripts`);
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
await installEmulator(tools);
checkNode();
run(script, rest);
