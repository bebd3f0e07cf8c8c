# The first process of a machine (`machine.rs`): makes its root directory, then becomes systemd.
# $1: an empty directory of this machine. Everything that is mounted is seen by the machine alone.
set -eu
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir changes work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" root
cd root

mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
if [ -d /sys/fs/cgroup/systemd ]; then
    mount -t tmpfs tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
    if [ -d /sys/fs/cgroup/unified ]; then
        mkdir sys/fs/cgroup/unified
        mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
    fi
else
    mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
mount -t tmpfs tmpfs dev
mkdir dev/net dev/pts dev/shm
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 net/tun:10:200; do
    name=${device%%:*}
    numbers=${device#*:}
    # As udev makes them: everybody may open them.
    mknod -m 666 "dev/$name" c "${numbers%:*}" "${numbers#*:}"
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp

# Nothing starts by itself but the journal: other units would set parameters of the kernel that all machines share.
find etc/systemd/system usr/lib/systemd/system -path '*.wants/*' ! -name 'systemd-journald.service' \
    ! -name 'systemd-journald.socket' ! -name 'systemd-journald-dev-log.socket' -delete
: > etc/machine-id
# The machine has never seen Gramway.
rm -rf var/lib/gramway var/lib/gramway-connect var/lib/private/gramway* etc/gramway
rm -f etc/systemd/system/gramway* usr/lib/systemd/system/gramway*
ip link set lo up
# As outside of containers: credentials of services are mounted by a process with mounts of its own.
mount --make-rshared "$1/root"
exec env -i container=gramway-bed PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot . /lib/systemd/systemd --system --unit=basic.target --show-status=false
