#!/bin/sh
# Make the machine's own files stand where programs look for them, and run a command there.
#
# usage: enter.sh FOLDER COMMAND ARGUMENT...
#
# tests/gpu/stand_in.py runs it in a mount namespace of its own, so that all of this ends with the last process in it.
# FOLDER/root holds what the machine has; what it does not name is that of the machine underneath.
set -eu
folder=$1
shift
root=$folder/root
new=$folder/new
here=$PWD
PATH=$PATH:/usr/sbin:/sbin

mount -t tmpfs -o mode=755 stand-in "$new"
for entry in /* /.[!.]*; do
    name=${entry##*/}
    case $name in
    dev | .dockerenv) ;; # a container's mark, on a machine that is none
    *)
        if [ -L "$entry" ]; then
            cp -P "$entry" "$new/$name"
        elif [ -d "$entry" ]; then
            mkdir "$new/$name"
            mount --rbind "$entry" "$new/$name"
        elif [ -e "$entry" ]; then
            : >"$new/$name"
            mount --bind "$entry" "$new/$name"
        fi
        ;;
    esac
done

# node NAME MAJOR MINOR OTHER NUMBERS: nobody can make nodes outside the first user namespace, and OTHER takes its place.
node() {
    number=$2:$3
    mknod -m 666 "$new/dev/$1" c "$2" "$3" 2>/dev/null || {
        number=$5
        : >"$new/dev/$1"
        mount --bind "/dev/$4" "$new/dev/$1"
    }
    ln -s "../$1" "$new/dev/char/$number"
}

mkdir "$new/dev"
mount -t tmpfs -o mode=755 stand-in "$new/dev"
for entry in /dev/*; do
    name=${entry##*/}
    case $name in
    nvidia* | char | tty?* | vcs* | loop*) ;;
    *)
        if [ -L "$entry" ]; then
            cp -P "$entry" "$new/dev/$name"
        elif [ -d "$entry" ]; then
            mkdir "$new/dev/$name"
            mount --rbind "$entry" "$new/dev/$name"
        else
            : >"$new/dev/$name"
            mount --bind "$entry" "$new/dev/$name"
        fi
        ;;
    esac
done
mkdir "$new/dev/char"
umask 0
node nvidia0 195 0 zero 1:5
node nvidiactl 195 255 full 1:7
node nvidia-modeset 195 254 random 1:8
node nvidia-uvm 508 0 urandom 1:9
node nvidia-uvm-tools 508 1 tty 5:0
umask 022

# What the kernel shows cannot be added to, only replaced, and only where it is.
for part in proc/driver proc/modules proc/cmdline sys/module sys/bus sys/class/dmi boot; do
    [ ! -e "$new/$part" ] || [ ! -e "$root/$part" ] || mount --bind "$root/$part" "$new/$part"
done
for part in run usr/lib; do
    mount -t overlay -o "lowerdir=$root/$part:/$part" stand-in "$new/$part"
done
# An engine mounts these over files of its image, and an overlay shows what is below.
for file in hosts resolv.conf hostname; do
    cp -L "/etc/$file" "$root/etc/$file" 2>/dev/null || true
done
printf '%s\n' /usr/local/lib /usr/lib/x86_64-linux-gnu /lib/x86_64-linux-gnu >"$folder/ld.so.conf"
ldconfig -r "$new" -X -C "$folder/ld.so.cache" -f "$folder/ld.so.conf" 2>/dev/null
mv "$folder/ld.so.cache" "$root/etc/ld.so.cache"
mount -t overlay -o "lowerdir=$root/etc:/etc" stand-in "$new/etc"

mkdir "$new/.old"
pivot_root "$new" "$new/.old"
cd "$here"
umount -l /.old
rmdir /.old
# shellcheck disable=SC3045 # where a shell does not know it, the limit stays
ulimit -n 1048576 2>/dev/null || true
# shellcheck disable=SC3045
ulimit -l unlimited 2>/dev/null || true
exec "$@"
