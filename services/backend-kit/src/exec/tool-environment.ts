/**
 * Environment for the system's network tools (iptables, conntrack).
 *
 * The C locale, so that their messages can be parsed; the folders for administrators, which a user's PATH may lack; and
 * huge pages for the heap, where the C library is glibc (from 2.35) and the kernel leaves it to the program:
 * iptables-legacy takes a kilobyte of new memory for each rule, and touching it page by page is up to a quarter of its
 * time.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const { PATH = "/usr/bin:/bin", GLIBC_TUNABLES = "" } = process.env;
  const tunables = [GLIBC_TUNABLES, "glibc.malloc.hugetlb=1"].filter((text) => text !== "").join(":");
  return { ...process.env, LC_ALL: "C", PATH: `${PATH}:/usr/sbin:/sbin`, GLIBC_TUNABLES: tunables };
}
