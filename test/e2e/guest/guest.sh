#!/bin/bash
# Runs a command in a guest in which clusters can start: guest.sh FOLDER COMMAND…. test/e2e/guest/run-in-guest.ts calls it.
#
# FOLDER has the images of the cluster. Everything that a cluster writes is in the guest's memory, because containers need
# a file system that can be the upper one of overlayfs. Its folder is not below /run or /tmp, which nodes hide (node.sh).
set -euo pipefail
folder=$1
shift
# The name of the API server's lease.
hostname guest
mount -t cgroup2 cgroup /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
  echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
mount -t tmpfs -o size=80% cache "$XDG_CACHE_HOME"
mkdir -p "$XDG_CACHE_HOME/kpng/e2e"
cp --archive "$folder/images" "$XDG_CACHE_HOME/kpng/e2e/images"
status=0
"$@" || status=$?
# What --keep has left.
cp --archive "$XDG_CACHE_HOME"/kpng/e2e/run-* "$folder/" 2>/dev/null || :
exit "$status"
