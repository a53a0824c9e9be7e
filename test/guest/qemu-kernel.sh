#!/usr/bin/env bash
# Makes the kernel and the initial RAM disk of a guest in QEMU: `qemu-kernel.sh FOLDER`. Prints the folder that has them:
# vmlinux, initrd.img, lib/modules and version. Debian's kernel is unpacked there on first use (70 MB to download, 500 MB
# on disk) and never installed.
set -euo pipefail
apt-cache show linux-image-amd64 > /dev/null 2>&1 || apt-get -qq update >&2
package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
version=${package#linux-image-}
folder=$1/$version
if [ ! -e "$folder/version" ]; then
  rm -rf "$folder" && mkdir -p "$folder/initrd/bin" && cd "$folder"
  apt-get -qq -o APT::Sandbox::User=root download "$package" >&2 && dpkg -x ./*.deb . && rm ./*.deb && depmod -b . "$version"
  # Unpacked here once: emulated, that takes 6 s a start. xz complains of what follows the stream; its output is whole.
  packed=$(LC_ALL=C grep -obUaP '\xFD7zXZ\x00' "boot/vmlinuz-$version" | head -1 | cut -d: -f1)
  tail -c "+$((packed + 1))" "boot/vmlinuz-$version" | xz -dc --single-stream > vmlinux 2> /dev/null || [ -s vmlinux ]
  cp "$(command -v busybox)" initrd/bin/busybox
  # Modules that reach the machine's files.
  for module in virtio_pci 9pnet_virtio 9p overlay; do modprobe -d . -S "$version" --show-depends "$module"; done |
    awk '$1 == "insmod" && !seen[$2]++ {print $2}' > modules
  while read -r file; do cp "$file" initrd/; echo "insmod /${file##*/}"; done < modules > insmods
  cat > initrd/init <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin; export PATH=/bin; mkdir /proc /low /mem /new; mount -t proc proc /proc
$(cat insmods)
share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o ro,cache=loose,\$share root /low && mount -t tmpfs -o mode=755 mem /mem && mkdir /mem/up /mem/work
mount -t overlay -o lowerdir=/low,upperdir=/mem/up,workdir=/mem/work root /new
mount -t devtmpfs dev /new/dev; mkdir -p /new/dev/pts; mount -t devpts pts /new/dev/pts
shared=\$(sed 's/.* shared=\([^ ]*\).*/\1/' /proc/cmdline); umount /proc
mkdir -p "/new\$shared"; mount -t 9p -o rw,cache=mmap,\$share shared "/new\$shared"
exec switch_root /new /bin/bash "\$shared/init"
INIT
  chmod +x initrd/init
  (cd initrd && find . | busybox cpio -o -H newc 2> /dev/null) > initrd.img
  echo "$version" > version
fi
echo "$folder"
