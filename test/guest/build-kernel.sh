#!/bin/bash
# Builds a kernel of user-mode Linux for KPNG_GUEST_KERNEL, with IPVS and what containers need: build-kernel.sh SOURCE TARGET
#
# SOURCE is the source of Linux 6.16 or later, such as that of Debian's package linux-source-7.2. It needs gcc, make, flex,
# bison and bc, and takes 5 minutes on two cores.
set -euo pipefail
source=$1 target=$(realpath "$2") config=$(realpath "$(dirname "$0")/kernel.config")
cd "$source"
make ARCH=um x86_64_defconfig
scripts/kconfig/merge_config.sh -m .config "$config"
make ARCH=um olddefconfig
# An option that the kernel no longer has, or that needs another one, is left out without a message.
missing=$(grep '^CONFIG_' "$config" | grep --invert-match --line-regexp --fixed-strings --file=.config || :)
[ -z "$missing" ] || { echo "not in the configuration: $missing" >&2; exit 1; }
make ARCH=um -j"$(nproc)" linux
cp linux "$target"
