#!/bin/bash
# Process 1 of a node of test/e2e: containerd and kubelet, in namespaces of their own. cluster/node.ts starts it.
#
#   node.sh FOLDER ADDRESSES KUBELET KUBECONFIG NAME
#
# FOLDER has the files of makeNodeFiles and what the node writes; it stays when the node restarts, like a disk. What is
# in /run does not.
set -euo pipefail
folder=$1 addresses=$2 kubelet=$3 kubeconfig=$4 name=$5

# The laboratory keeps the machine's /proc, so this is the process id that the machine sees.
read -r pid _ </proc/self/stat
echo "$pid" >"$folder/pid"

hostname "$name"
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/lock "$folder"/{lib/kubelet,lib/cni,log,tmp,sysctl,etc,etc-work,static-pods}
chmod 1777 "$folder/tmp"
mount --bind "$folder/lib" /var/lib
mount --bind /var/lib/kubelet /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
mount --bind "$folder/log" /var/log
mount --bind "$folder/tmp" /tmp
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$folder/etc,workdir=$folder/etc-work" /etc
mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/resolv.conf" /etc/resolv.conf

# A cgroup of version 2 and a BPF file system of its own, so that kpng-ebpf serves the processes of this node only. Where
# version 2 is the only one, containerd's groups are in the same tree, and the node has no group.
unified=/sys/fs/cgroup/unified
if [[ -e $unified/cgroup.procs ]]; then
  mkdir -p "$unified/k8s.io/$name-$pid"
  echo 0 >"$unified/k8s.io/$name-$pid/cgroup.procs"
  mount --bind "$unified/k8s.io/$name-$pid" "$unified"
  mount -t bpf bpf /sys/fs/bpf
fi

# kubelet sets these for the whole machine. It finds its values, and leaves the machine alone.
keep() {
  echo "$2" >"$folder/sysctl/${1//\//-}"
  mount --bind "$folder/sysctl/${1//\//-}" "/proc/sys/$1"
}
keep vm/overcommit_memory 1
keep kernel/panic 10
keep kernel/panic_on_oops 1
keep kernel/keys/root_maxkeys 1000000
keep kernel/keys/root_maxbytes 25000000

# kubelet reads a frequency, which user-mode Linux does not name.
if ! grep -q 'cpu MHz' /proc/cpuinfo; then
  sed 's/^processor.*/&\ncpu MHz\t\t: 1000.000/' /proc/cpuinfo >"$folder/cpuinfo"
  mount --bind "$folder/cpuinfo" /proc/cpuinfo
fi

# Addresses of pods that ended with the last run of this node.
rm -rf /var/lib/cni/*

containerd --config "$folder/containerd.toml" >>/var/log/containerd.log 2>&1 &
containerd=$!
until ctr version >/dev/null 2>&1; do
  kill -0 "$containerd" || { echo "containerd has exited" >&2; tail -n 20 /var/log/containerd.log >&2; exit 1; }
  sleep 0.1
done

# As a service manager does.
while true; do
  status=0
  "$kubelet" --config "$folder/kubelet.yaml" --kubeconfig "$kubeconfig" --hostname-override "$name" \
    --node-ip "$addresses" --v 2 >>/var/log/kubelet.log 2>&1 || status=$?
  echo "kubelet has exited with status $status; it is started again" >&2
  sleep 1
done
