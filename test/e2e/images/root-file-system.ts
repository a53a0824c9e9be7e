import { execFile } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { DebianArchive, extract } from "../../../deploy/images/debian.ts";
import { defaultCache, hostArchitecture } from "../../../deploy/images/npm.ts";

/** Debian packages with the commands that Kubernetes' network tests run in their pods. */
const packages: readonly string[] = [
  ...["base-files", "base-passwd", "bash", "busybox-static", "ca-certificates", "coreutils", "dash", "findutils"],
  ...["gawk", "grep", "hostname", "libc-bin", "procps", "sed", "util-linux"],
  ...["bind9-dnsutils", "conntrack", "curl", "ethtool", "iperf", "iproute2", "iptables", "netcat-openbsd", "wget"],
];

/**
 * Shell commands that finish the file system in "$0". The packages are only unpacked, so their scripts have not created
 * the links of Debian's alternatives. BusyBox provides the commands that no package does.
 */
const finish = `
  ln -sf dash "$0/usr/bin/sh"; ln -sf nc.openbsd "$0/usr/bin/nc"; ln -sf gawk "$0/usr/bin/awk"
  for tool in iptables ip6tables iptables-save ip6tables-save; do ln -sf xtables-nft-multi "$0/usr/sbin/$tool"; done
  for tool in $("$0/usr/bin/busybox" --list); do
    for place in "$0/usr/bin/$tool" "$0/usr/sbin/$tool"; do [ ! -e "$place" ] && [ ! -L "$place" ] || continue 2; done
    ln -s busybox "$0/usr/bin/$tool"
  done
  # A test expects wget to fail at once, as that of BusyBox does.
  echo "tries = 1" >>"$0/etc/wgetrc"
  for table in passwd group; do cp "$0/usr/share/base-passwd/$table.master" "$0/etc/$table"; done
  mkdir -p "$0/uploads" "$0/tmp"; chmod 1777 "$0/tmp"
  chroot "$0" /sbin/ldconfig`;

/**
 * Fills a folder with a small Debian root file system, in which Kubernetes' tests run their commands. It uses the same
 * packages as our own images.
 */
export async function fillWithDebian(root: string): Promise<void> {
  const architecture = hostArchitecture();
  for (const name of ["bin", "lib", "sbin", ...(architecture === "amd64" ? ["lib64"] : [])]) {
    mkdirSync(join(root, "usr", name), { recursive: true });
    symlinkSync(`usr/${name}`, join(root, name));
  }
  extract(new DebianArchive(architecture, defaultCache).download(packages), root);
  await promisify(execFile)("sh", ["-ec", finish, root]);
}
