#!/usr/bin/env bash
# The Debian package as a person meets it, on a machine that has nothing: a fresh Debian root in which it is installed,
# started from the menu, chatted with, updated and removed (the steps are in tests/packaged/steps.sh).
#
#   sudo tests/packaged_app.sh NEW.deb [--older OLDER.deb] [--keep] [FOLDER]
#
# Needs root, debootstrap, a network, 2 GB and about five minutes. FOLDER (default: a new temporary one) receives
# screenshots and logs, and with --keep also the root. OLDER is a package of an earlier version: chats and settings are made
# with it and must outlive the update; without it that step is left out. Prints one line a check, and how long what a person
# waits for took; exit code 1 if any check failed. The limits of time hold for two cores that have nothing else to do.
#
# Taken from the environment, as this machine is set up: MIRROR and SUITE for debootstrap (default: debootstrap's own
# mirror, bookworm), /etc/resolv.conf and the proxy variables.
set -euo pipefail

new= older= keep= folder=
while [ $# -gt 0 ]; do
  case $1 in
    --older) older=$(realpath "$2"); shift ;;
    --keep) keep=1 ;;
    *.deb) new=$(realpath "$1") ;;
    *) folder=$1 ;;
  esac
  shift
done
here=$(cd "$(dirname "$0")" && pwd)
folder=$(realpath "${folder:-$(mktemp -d)}")
root=$folder/root
suite=${SUITE:-bookworm}

in_root() { # in_root COMMAND...: with processes and mounts of its own, which end with it
  unshare --mount --pid --fork --kill-child sh -c '
    root=$1; shift
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && exec chroot "$root" "$@"' - "$root" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@" </dev/null
}
clean_up() { [ -n "$keep" ] || rm -rf --one-file-system "$root"; }
trap clean_up EXIT

echo "== a fresh root ($suite)"
mkdir -p "$folder"
rm -rf --one-file-system "$root"
debootstrap --variant=minbase "$suite" "$root" ${MIRROR:-} >"$folder/debootstrap.log"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir "$root/packaged" "$root/results"
cp "$here"/packaged/*.sh "$here/data/tiny/llama.gguf" "$root/packaged/"
cp "$new" "$root/packaged/new.deb"
[ -z "$older" ] || cp "$older" "$root/packaged/older.deb"
status=0
in_root bash /packaged/steps.sh || status=1
cp -r "$root/results/." "$folder/"
echo "Screenshots and logs: $folder"
exit $status
