#!/bin/bash
# Unpacks Debian packages, with everything that they depend on, without installing them:
#
#   unpack.sh ARCHITECTURE FOLDER PACKAGE...
#
# Leaves out packages that an earlier call has unpacked elsewhere. Records each package in var/lib/dpkg/status.d, where
# scanners look for the packages of an image without a package manager. Needs Debian and its package sources.
set -euo pipefail
architecture=$1 folder=$2
shift 2
# What the earlier calls have unpacked, as dpkg records what is installed.
state=${UNPACK_STATE:-/var/lib/kpng-unpack}
mkdir -p "$state/lists/partial" "$state/archives/partial" "$folder/var/lib/dpkg/status.d"
touch "$state/status"
[ -s "$state/status" ] && is_first=false || is_first=true
rm -f "$state"/archives/*.deb

apt() {
  apt-get -qq -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
    -o Dir::Cache::archives="$state/archives" -o APT::Architecture="$architecture" \
    -o APT::Architectures="$architecture" -o APT::Install-Recommends=false -o APT::Sandbox::User=root \
    -o Debug::NoLocking=true "$@"
}
[ -n "$(ls "$state/lists"/*_Packages* 2>/dev/null)" ] || apt update
apt install --yes --download-only "$@"

for name in bin lib sbin $([ "$architecture" = arm64 ] || echo lib64); do
  mkdir -p "$folder/usr/$name"
  [ -e "$folder/$name" ] || ln -s "usr/$name" "$folder/$name"
done
# No program reads these parts of packages. Copyright files stay, as licenses demand.
unneeded=(--exclude=./usr/share/{man,info,locale,lintian,bug,bash-completion,doc-base} --exclude='changelog*')
for deb in "$state"/archives/*.deb; do
  { dpkg-deb --field "$deb"; printf 'Status: install ok installed\n\n'; } >> "$state/status"
  # mawk: packages need it only for maintainer scripts, which never run here.
  case $deb in */mawk_*) continue ;; esac
  dpkg-deb --fsys-tarfile "$deb" |
    tar --extract --directory "$folder" --keep-directory-symlink --no-same-owner --preserve-permissions "${unneeded[@]}"
  dpkg-deb --field "$deb" > "$folder/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"
done
# The link that Debian's alternatives make when iptables is installed.
for name in {ip,ip6}tables{,-save,-restore}; do
  target=${name/tables/tables-nft}
  [ ! -e "$folder/usr/sbin/$target" ] || ln -sf "$target" "$folder/usr/sbin/$name"
done
# The first folder of an image has these links.
$is_first || find "$folder" -maxdepth 1 -type l -delete
find "$folder" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
