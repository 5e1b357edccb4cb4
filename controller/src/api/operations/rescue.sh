#!/bin/sh
# The rescue environment: people come in by SSH, as root, until one of them says `leave` or the time is over.
# $1: the machine's name. $2: for how many seconds. What follows: the public keys of those who may come in.
set -eu
if ! command -v dropbear > /dev/null; then
    echo 'this ephemeral image has no SSH server: build it anew with `basalt image build ephemeral`'
    exit 1
fi
name=$1 lasts=$2
shift 2
here=$PWD

seconds() {
    read -r up _ < /proc/uptime
    echo "${up%.*}"
}
end=$(($(seconds) + lasts))
until=$(date -u -d "+$lasts seconds" '+%Y-%m-%d %H:%M UTC')

# Packages of this system are unpacked, not configured: it has no accounts yet.
echo 'root:x:0:0:root:/root:/bin/bash' > /etc/passwd
printf 'root:x:0:\ntty:x:5:\n' > /etc/group
echo /bin/bash > /etc/shells
mkdir -p /root/.ssh /dev/pts /mnt /tmp
chmod 700 /root /root/.ssh
printf '%s\n' "$@" > /root/.ssh/authorized_keys
echo "PS1='rescue of \\h:\\w# '" > /root/.profile
echo "$name" > /proc/sys/kernel/hostname
mountpoint -q /dev/pts || mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts

# An editor, ping and the like, where nothing else has that name.
for applet in $(busybox --list); do
    command -v "$applet" > /dev/null || ln -s "$(command -v busybox)" "/usr/bin/$applet"
done

rm -f "$here/left"
cat > /usr/bin/leave <<END
#!/bin/sh
touch '$here/left'
echo 'The rescue ends: file systems are unmounted, and the machine goes on as it is declared.'
END
chmod 755 /usr/bin/leave
for other in reboot poweroff halt; do
    ln -sf leave /usr/bin/$other
done
cat > /etc/motd <<END

This is the rescue environment of $name, in memory. Its disks are not mounted: lsblk and blkid show them.
When you are done, say leave. It ends by itself at $until.

END

dropbearkey -t ed25519 -f "$here/host_key" > "$here/public" 2> /dev/null ||
    dropbearkey -y -f "$here/host_key" > "$here/public"
print=$(awk '/^Fingerprint: / {print $2}' "$here/public")
dropbear -F -E -s -p 22 -r "$here/host_key" 2>> "$here/log" &
server=$!

listens() {
    grep -q ':0016 .* 0A ' /proc/net/tcp /proc/net/tcp6 2> /dev/null
}
until listens; do
    kill -0 $server || { cat "$here/log"; exit 1; }
    sleep 0.1
done

# The region finds this line by its beginning, and shows the last one. $1: what is new.
tell() {
    address=$(busybox ip -o addr show scope global | awk '{sub("/.*", "", $4); print $4; exit}')
    echo "ssh root@$address, host key $print, until $until${1:+; $1}"
}
tell
seen=0 warned=
while sleep 1; do
    left=$((end - $(seconds)))
    if [ -e "$here/left" ] || [ "$left" -le 0 ]; then
        break
    fi
    kill -0 $server || { cat "$here/log"; exit 1; }
    lines=$(wc -l < "$here/log")
    if [ "$lines" -gt "$seen" ]; then
        tail -n "+$((seen + 1))" "$here/log" | sed -n 's/^\[[0-9]*\] \(.*\(auth succeeded\|Exit (root)\).*\)/\1/p' |
            while read -r news; do tell "$news"; done
        seen=$lines
    fi
    # It lies in memory, and whoever tries keys fills it.
    if [ "$lines" -gt 5000 ]; then
        : > "$here/log"
        seen=0
    fi
    if [ -z "$warned" ] && [ "$left" -le 300 ]; then
        warned=yes
        for terminal in /dev/pts/[0-9]*; do
            [ ! -c "$terminal" ] || echo "This rescue ends in $left seconds." 2> /dev/null > "$terminal" || true
        done
    fi
done

# What people mounted is written and let go, so that the machine finds it whole.
sync
awk '$1 ~ "^/dev/" && $2 != "/" {print $2}' /proc/mounts | tac | while read -r at; do
    umount "$at" 2> /dev/null || mount -o remount,ro "$at" 2> /dev/null || echo "$at is still in use"
done
sync
echo 'the rescue has ended'
