#!/bin/bash
# PID 1 of a rig host, in namespaces of its own: makes its file system, then runs sshd (and Docker).
# Settings: BASE HOST_HOME NAME KEY PARTS HIERARCHIES (empty: no Docker) GPUS ACCESS
# SHARED (a line each, here:there)
set -e
root=$HOST_HOME/root
mount --make-rprivate /
mkdir -p "$HOST_HOME"/{upper,work,docker} "$root"
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$HOST_HOME/upper,workdir=$HOST_HOME/work" "$root"
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
# GPUs without a driver: whoever may open one is told that there is no such device, others that
# they may not.
for ((gpu = 0; gpu < GPUS; gpu++)); do mknod -m 666 "$root/dev/nvidia$gpu" c 195 $gpu; done
((GPUS == 0)) || mknod -m 666 "$root/dev/nvidiactl" c 195 255
install -m755 "$PARTS/nvidia_smi.py" "$root/usr/bin/nvidia-smi"
((GPUS == 0)) || install -m644 "$HOST_HOME/gpus.json" "$root/etc/rig-gpus.json"
case $ACCESS in
gpus) install -m755 "$PARTS/gpu_hook.py" "$root/usr/bin/nvidia-container-runtime-hook" ;;
cdi) install -Dm644 "$HOST_HOME/cdi.json" "$root/etc/cdi/nvidia.json" ;;
esac
if [ -n "$HIERARCHIES" ]; then
  mount -t tmpfs cgroup "$root/sys/fs/cgroup"
  for options in $HIERARCHIES; do
    folder=$root/sys/fs/cgroup/${options#name=}
    mkdir "$folder"
    # One without a controller is mounted by its name alone.
    case $options in name=*) options=none,$options ;; esac
    mount -t cgroup -o "$options" cgroup "$folder"
  done
  # Docker's own overlays cannot lie on this one.
  mkdir -p "$root/var/lib/docker"; mount --bind "$HOST_HOME/docker" "$root/var/lib/docker"
fi
# Folders of this machine, which the host may read.
while IFS=: read -r here there; do
  mkdir -p "$root$there"; mount --bind "$here" "$root$there"
  mount -o remount,bind,ro "$root$there"
done <<<"$SHARED"
hostname "$NAME"; echo "$NAME" >"$root/etc/hostname"
echo "127.0.0.1 localhost $NAME" >"$root/etc/hosts"
ip link set lo up
# pivot_root, never chroot: under chroot a container's mount namespace would have the machine's
# real root as its own.
mkdir -p "$root/.old"; cd "$root"; pivot_root . .old; cd /; umount -l /.old; rmdir /.old
# Nothing of the machine's own environment goes on to what runs here.
for variable in $(compgen -e); do
  case $variable in NAME | KEY | HIERARCHIES) ;; *) unset "$variable" ;; esac
done
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
# A second boot finds the keys and the users of the first.
[ -e /etc/rig-booted ] || rm -f /etc/ssh/ssh_host_*
for type in ed25519 rsa; do
  [ -e /etc/rig-booted ] || ssh-keygen -q -t $type -N '' -f /etc/ssh/ssh_host_${type}_key
done
# ops may use Docker, guest may not.
for user in ops guest; do
  [ ! -e /etc/rig-booted ] || break
  useradd -m -s /bin/bash $user; usermod -p '*' $user
  install -d -m700 -o $user -g $user /home/$user/.ssh
  echo "$KEY" >/home/$user/.ssh/authorized_keys; chown $user:$user /home/$user/.ssh/authorized_keys
done
[ -z "$HIERARCHIES" ] || usermod -aG docker ops
touch /etc/rig-booted
mkdir -p /etc/ssh/sshd_config.d
printf 'UsePAM no\nPasswordAuthentication no\nPerSourcePenalties no\n' >/etc/ssh/sshd_config.d/50-rig.conf
/usr/sbin/sshd -E /var/log/sshd.log
if [ -n "$HIERARCHIES" ]; then
  mkdir -p /etc/docker; echo '{"features": {"cdi": true}, "live-restore": true}' >/etc/docker/daemon.json
  setsid dockerd >>/var/log/dockerd.log 2>&1 </dev/null &
fi
echo ready
exec /usr/bin/tini -g -- sleep infinity >/dev/null
