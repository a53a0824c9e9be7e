#!/bin/bash
# Runs a command in a guest in which nodes can start: guest.sh SHARED FOLDER COMMAND…. guest-nodes.ts calls it.
#
# SHARED has the images of the cluster. Everything that nodes write is in FOLDER, in the guest's memory, because containers
# need a file system that can be the upper one of overlayfs.
set -euo pipefail
shared=$1 folder=$2
shift 2
mount -t cgroup2 cgroup /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
  echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
mount -t tmpfs -o size=80% nodes "$(dirname "$folder")"
mkdir "$folder"
cp --archive "$shared/images" "$folder/images"
status=0
"$@" || status=$?
for log in "$folder"/*/log; do
  node=$(basename "$(dirname "$log")")
  mkdir -p "$shared/$node"
  cp --archive "$log" "$folder/$node/node.log" "$shared/$node/" || :
done
exit "$status"
