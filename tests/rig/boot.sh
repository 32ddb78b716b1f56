#!/bin/bash
# PID 1 of a rig host, in namespaces of its own: makes its file system, then runs sshd (and Docker).
# Arguments: BASE HOME NAME AUTHORIZED_KEY FAKE_NVIDIA_SMI DOCKER(yes|no)
set -e
base=$1 home=$2 name=$3 key=$4 smi=$5 docker=$6 root=$2/root
mount --make-rprivate /
mkdir -p "$home"/{upper,work,docker} "$root"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$home/upper,workdir=$home/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
# The kernel is the machine's own: its settings are read-only here, those of the network excepted.
mount --bind "$root/proc/sys" "$root/proc/sys"; mount -o remount,bind,ro "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"; mount -o remount,bind,rw "$root/proc/sys/net"
mount -t tmpfs dev "$root/dev" -o mode=755
for node in null zero full random urandom tty; do
  touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir -p "$root"/dev/{pts,shm}
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666,mode=620,gid=5
ln -sf pts/ptmx "$root/dev/ptmx"
ln -sf /proc/self/fd "$root/dev/fd"
for n in 0:stdin 1:stdout 2:stderr; do ln -sf "fd/${n%:*}" "$root/dev/${n#*:}"; done
mount -t tmpfs shm "$root/dev/shm"
mount -t tmpfs run "$root/run"; mkdir -p "$root"/run/{lock,sshd}
if [ "$docker" = yes ]; then
  mount -t tmpfs cgroup "$root/sys/fs/cgroup"
  for c in cpu cpuacct cpuset memory devices freezer blkio pids; do
    mkdir "$root/sys/fs/cgroup/$c"; mount -t cgroup -o $c cgroup "$root/sys/fs/cgroup/$c"
  done
  # Docker sees an out-of-memory kill only with this hierarchy.
  mkdir "$root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
  # Docker's own overlays cannot lie on this one.
  mkdir -p "$root/var/lib/docker"; mount --bind "$home/docker" "$root/var/lib/docker"
fi
hostname "$name"; echo "$name" >"$root/etc/hostname"
echo "127.0.0.1 localhost $name" >"$root/etc/hosts"
ip link set lo up
install -m755 "$smi" "$root/usr/bin/nvidia-smi"
# pivot_root, never chroot: under chroot a container's mount namespace would have the machine's
# real root as its own.
mkdir -p "$root/.old"; cd "$root"; pivot_root . .old; cd /; umount -l /.old; rmdir /.old
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
rm -f /etc/ssh/ssh_host_*
for type in ed25519 rsa; do ssh-keygen -q -t $type -N '' -f /etc/ssh/ssh_host_${type}_key; done
useradd -m -s /bin/bash ops; usermod -p '*' ops
[ "$docker" = yes ] && usermod -aG docker ops
install -d -m700 -o ops -g ops /home/ops/.ssh
echo "$key" >/home/ops/.ssh/authorized_keys; chown ops:ops /home/ops/.ssh/authorized_keys
mkdir -p /etc/ssh/sshd_config.d
printf 'UsePAM no\nPasswordAuthentication no\nPerSourcePenalties no\n' >/etc/ssh/sshd_config.d/50-rig.conf
/usr/sbin/sshd -E /var/log/sshd.log
if [ "$docker" = yes ]; then
  mkdir -p /etc/docker; echo '{"features": {"cdi": true}, "live-restore": true}' >/etc/docker/daemon.json
  setsid dockerd >>/var/log/dockerd.log 2>&1 </dev/null &
fi
echo ready
exec /usr/bin/tini -g -- sleep infinity >/dev/null
