/**
 * Returns the environment for the system's network tools: our own, with the C locale, so that their messages can be
 * parsed; with the folders for administrators, which a user's PATH may lack; and with huge pages for the heap, for
 * glibc 2.35 and newer: iptables-legacy needs a kilobyte of new memory for each rule, and page faults would take up to
 * a quarter of its time.
 *
 * `runProgram` also runs users' programs, in the plain environment.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const { PATH = "/usr/bin:/bin", GLIBC_TUNABLES = "" } = process.env;
  const tunables = [GLIBC_TUNABLES, "glibc.malloc.hugetlb=1"].filter((text) => text !== "").join(":");
  return { ...process.env, LC_ALL: "C", PATH: `${PATH}:/usr/sbin:/sbin`, GLIBC_TUNABLES: tunables };
}
